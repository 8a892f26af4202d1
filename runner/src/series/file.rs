//! The tables of a measurement file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteRow};
use sqlx::{ConnectOptions as _, Connection, Row, SqliteConnection};
use thiserror::Error;
use torc_api::wire::{AttemptKey, Resources, Usage};

use super::{DataPoint, JobUsageRow, Measurement, NodePoint, NodeSummary, Series};
use crate::clock::BootInstant;

/// The prefix of every file's name.
const PREFIX: &str = "resource_metrics_";
/// Time to wait for another process that reads the file.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

const TABLES: &str = "
create table if not exists job_resource_samples (
    job_id integer not null, attempt_id integer not null, timestamp integer not null,
    cpu_percent real not null, memory_bytes integer not null, num_processes integer not null,
    gpu_percent real, gpu_memory_bytes integer,
    primary key (job_id, attempt_id, timestamp)
);
create table if not exists job_metadata (
    job_id integer not null, attempt_id integer not null, job_name text not null,
    workflow_id integer not null, run_id integer not null, start_ms integer not null, end_ms integer not null,
    return_code integer not null, cause text, num_cpus integer not null, memory_bytes integer not null,
    memory_limit_bytes integer, gpus text not null,
    peak_memory_bytes integer, avg_memory_bytes integer, peak_cpu_percent real, avg_cpu_percent real,
    peak_gpu_percent real, avg_gpu_percent real, peak_gpu_memory_bytes integer,
    primary key (job_id, attempt_id)
);
create table if not exists system_resource_samples (
    timestamp integer primary key, cpu_percent real, memory_bytes integer, total_memory_bytes integer,
    gpu_percent real, gpu_memory_bytes integer, total_gpu_memory_bytes integer
);
create table if not exists system_resource_summary (
    hostname text primary key, sample_count integer not null, peak_cpu_percent real, avg_cpu_percent real,
    peak_memory_bytes integer, avg_memory_bytes integer,
    peak_gpu_percent real, avg_gpu_percent real, peak_gpu_memory_bytes integer
);
";

/// The error of a measurement file.
#[derive(Debug, Error)]
pub enum SeriesError {
    /// The folder cannot be created or read.
    #[error("cannot use the folder {}", path.display())]
    Folder {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The file cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: sqlx::Error,
    },
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: sqlx::Error,
    },
}

/// Adds measurements to a file in one transaction. `wall_ms` converts moments to milliseconds since 1970.
pub(crate) async fn write(
    path: &Path,
    host: &str,
    measurements: &[Measurement],
    wall_ms: impl Fn(BootInstant) -> i64,
) -> Result<(), SeriesError> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(|source| SeriesError::Folder { path: folder.to_path_buf(), source })?;
    }
    let failed = |source| SeriesError::Write { path: path.to_path_buf(), source };
    let mut file = open(path, true).await.map_err(failed)?;
    add(&mut file, host, measurements, wall_ms).await.map_err(failed)?;
    file.close().await.map_err(failed)
}

async fn open(path: &Path, create: bool) -> sqlx::Result<SqliteConnection> {
    // There is no write-ahead log, because these files are often on network file systems.
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(create)
        .read_only(!create)
        .busy_timeout(LOCK_TIMEOUT)
        .disable_statement_logging();
    let options = if create { options.journal_mode(SqliteJournalMode::Delete) } else { options };
    SqliteConnection::connect_with(&options).await
}

async fn add(
    file: &mut SqliteConnection,
    host: &str,
    measurements: &[Measurement],
    wall_ms: impl Fn(BootInstant) -> i64,
) -> sqlx::Result<()> {
    let mut transaction = file.begin().await?;
    sqlx::raw_sql(TABLES).execute(&mut *transaction).await?;
    for measurement in measurements {
        let query = match measurement {
            Measurement::JobSample { key, at, point } => {
                sqlx::query("insert or replace into job_resource_samples values (?, ?, ?, ?, ?, ?, ?, ?)")
                    .bind(key.job)
                    .bind(key.attempt)
                    .bind(wall_ms(*at) / 1_000)
                    .bind(point.cpu_percent)
                    .bind(point.memory_bytes)
                    .bind(point.processes)
                    .bind(point.gpu_percent)
                    .bind(point.gpu_memory_bytes)
            }
            Measurement::Job(job) => sqlx::query(
                "insert or replace into job_metadata
                    values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            )
            .bind(job.key.job)
            .bind(job.key.attempt)
            .bind(&job.name)
            .bind(job.key.workflow)
            .bind(job.key.run)
            .bind(wall_ms(job.started))
            .bind(wall_ms(job.ended))
            .bind(job.return_code)
            .bind(job.cause.map(|cause| cause.to_string()))
            .bind(job.resources.cpus)
            .bind(job.resources.memory_bytes)
            .bind(job.memory_limit_bytes)
            .bind(job.devices.join(","))
            .bind(job.usage.peak_memory_bytes)
            .bind(job.usage.average_memory_bytes)
            .bind(job.usage.peak_cpu_percent)
            .bind(job.usage.average_cpu_percent)
            .bind(job.usage.peak_gpu_percent)
            .bind(job.usage.average_gpu_percent)
            .bind(job.usage.peak_gpu_memory_bytes),
            Measurement::NodeSample { at, point } => {
                sqlx::query("insert or replace into system_resource_samples values (?, ?, ?, ?, ?, ?, ?)")
                    .bind(wall_ms(*at) / 1_000)
                    .bind(point.cpu_percent)
                    .bind(point.memory_bytes)
                    .bind(point.total_memory_bytes)
                    .bind(point.gpu_percent)
                    .bind(point.gpu_memory_bytes)
                    .bind(point.total_gpu_memory_bytes)
            }
            Measurement::Node(summary) => {
                sqlx::query("insert or replace into system_resource_summary values (?, ?, ?, ?, ?, ?, ?, ?, ?)")
                    .bind(host)
                    .bind(summary.samples)
                    .bind(summary.peak_cpu_percent)
                    .bind(summary.average_cpu_percent)
                    .bind(summary.peak_memory_bytes)
                    .bind(summary.average_memory_bytes)
                    .bind(summary.peak_gpu_percent)
                    .bind(summary.average_gpu_percent)
                    .bind(summary.peak_gpu_memory_bytes)
            }
        };
        query.execute(&mut *transaction).await?;
    }
    transaction.commit().await
}

/// Returns the measurement files at these places: files, and all files below folders.
pub fn files_in(places: &[PathBuf]) -> Result<Vec<PathBuf>, SeriesError> {
    let mut files = Vec::new();
    let mut open: Vec<PathBuf> = places.to_vec();
    while let Some(place) = open.pop() {
        if !place.is_dir() {
            files.push(place);
            continue;
        }
        let failed = |source| SeriesError::Folder { path: place.clone(), source };
        for entry in std::fs::read_dir(&place).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            // A link may lead back to a parent folder.
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_folder || name.starts_with(PREFIX) && name.ends_with(".db") {
                open.push(entry.path());
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Reads a measurement file. Workflow, run and host are part of its name.
pub async fn read(path: &Path) -> Result<Series, SeriesError> {
    let failed = |source| SeriesError::Read { path: path.to_path_buf(), source };
    let mut file = open(path, false).await.map_err(failed)?;
    let mut series = contents(&mut file).await.map_err(failed)?;
    let (workflow, host, run) = named(path).unwrap_or_default();
    (series.workflow, series.run, series.host) = (workflow, run, host);
    Ok(series)
}

async fn contents(file: &mut SqliteConnection) -> sqlx::Result<Series> {
    let mut series = Series::default();
    let jobs = sqlx::query("select * from job_metadata order by start_ms, job_id, attempt_id").fetch_all(&mut *file);
    series.jobs = jobs.await?.iter().map(job_row).collect::<sqlx::Result<_>>()?;
    let mut samples: BTreeMap<(i64, i32), Vec<(i64, DataPoint)>> = BTreeMap::new();
    let rows = sqlx::query("select * from job_resource_samples order by job_id, attempt_id, timestamp");
    for row in rows.fetch_all(&mut *file).await? {
        let point = DataPoint {
            cpu_percent: row.try_get("cpu_percent")?,
            memory_bytes: row.try_get("memory_bytes")?,
            processes: row.try_get("num_processes")?,
            gpu_percent: row.try_get("gpu_percent")?,
            gpu_memory_bytes: row.try_get("gpu_memory_bytes")?,
        };
        let attempt = (row.try_get("job_id")?, row.try_get("attempt_id")?);
        samples.entry(attempt).or_default().push((row.try_get("timestamp")?, point));
    }
    series.samples = samples;
    let rows = sqlx::query("select * from system_resource_samples order by timestamp").fetch_all(&mut *file).await?;
    for row in rows {
        let point = NodePoint {
            cpu_percent: row.try_get("cpu_percent")?,
            memory_bytes: row.try_get("memory_bytes")?,
            total_memory_bytes: row.try_get("total_memory_bytes")?,
            gpu_percent: row.try_get("gpu_percent")?,
            gpu_memory_bytes: row.try_get("gpu_memory_bytes")?,
            total_gpu_memory_bytes: row.try_get("total_gpu_memory_bytes")?,
        };
        series.node.push((row.try_get("timestamp")?, point));
    }
    let summary = sqlx::query("select * from system_resource_summary").fetch_optional(&mut *file).await?;
    series.node_summary = summary.as_ref().map(node_summary).transpose()?;
    Ok(series)
}

fn node_summary(row: &SqliteRow) -> sqlx::Result<NodeSummary> {
    Ok(NodeSummary {
        samples: row.try_get("sample_count")?,
        peak_cpu_percent: row.try_get("peak_cpu_percent")?,
        average_cpu_percent: row.try_get("avg_cpu_percent")?,
        peak_memory_bytes: row.try_get("peak_memory_bytes")?,
        average_memory_bytes: row.try_get("avg_memory_bytes")?,
        peak_gpu_percent: row.try_get("peak_gpu_percent")?,
        average_gpu_percent: row.try_get("avg_gpu_percent")?,
        peak_gpu_memory_bytes: row.try_get("peak_gpu_memory_bytes")?,
    })
}

fn job_row(row: &SqliteRow) -> sqlx::Result<JobUsageRow<i64>> {
    let gpus: String = row.try_get("gpus")?;
    let cause: Option<String> = row.try_get("cause")?;
    let devices: Vec<String> = gpus.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
    Ok(JobUsageRow {
        key: AttemptKey {
            workflow: row.try_get("workflow_id")?,
            job: row.try_get("job_id")?,
            run: row.try_get("run_id")?,
            attempt: row.try_get("attempt_id")?,
            lease_id: 0,
        },
        name: row.try_get("job_name")?,
        started: row.try_get("start_ms")?,
        ended: row.try_get("end_ms")?,
        return_code: row.try_get("return_code")?,
        cause: cause.and_then(|name| serde_json::from_value(name.into()).ok()),
        usage: Usage {
            peak_memory_bytes: row.try_get("peak_memory_bytes")?,
            average_memory_bytes: row.try_get("avg_memory_bytes")?,
            peak_cpu_percent: row.try_get("peak_cpu_percent")?,
            average_cpu_percent: row.try_get("avg_cpu_percent")?,
            peak_gpu_percent: row.try_get("peak_gpu_percent")?,
            average_gpu_percent: row.try_get("avg_gpu_percent")?,
            peak_gpu_memory_bytes: row.try_get("peak_gpu_memory_bytes")?,
        },
        resources: Resources {
            cpus: row.try_get("num_cpus")?,
            memory_bytes: row.try_get("memory_bytes")?,
            gpus: i64::try_from(devices.len()).unwrap_or(i64::MAX),
            nodes: 1,
        },
        memory_limit_bytes: row.try_get("memory_limit_bytes")?,
        devices,
    })
}

/// Parses workflow, host and run from a file name such as `resource_metrics_wf1_hnode7_r1_p123.db`.
fn named(path: &Path) -> Option<(i64, String, i32)> {
    let name = path.file_stem()?.to_str()?.strip_prefix(PREFIX)?.strip_prefix("wf")?;
    let (workflow, rest) = name.split_once("_h")?;
    let (rest, _process) = rest.rsplit_once("_p")?;
    let (host, run) = rest.rsplit_once("_r")?;
    Some((workflow.parse().ok()?, host.to_owned(), run.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use torc_api::state::Cause;

    use super::*;

    #[test]
    fn a_file_says_whose_it_is() {
        let cases = [
            ("resource_metrics_wf12_hnode_r7_3_r2_p99.db", Some((12, "node_r7_3".to_owned(), 2))),
            ("resource_metrics_wfx_hnode_r2_p99.db", None),
            ("other.db", None),
        ];
        for (name, expected) in cases {
            assert_eq!(named(Path::new(name)), expected, "{name}");
        }
    }

    #[tokio::test]
    async fn what_is_written_is_read_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("below/resource_metrics_wf1_hnode_r2_p3.db");
        let key = AttemptKey { workflow: 1, job: 5, run: 2, attempt: 3, lease_id: 0 };
        let point = DataPoint {
            cpu_percent: 12.5,
            memory_bytes: 7,
            processes: 2,
            gpu_percent: Some(170.0),
            gpu_memory_bytes: Some(11),
        };
        let node = NodePoint {
            cpu_percent: Some(3.0),
            memory_bytes: None,
            total_memory_bytes: Some(9),
            gpu_percent: Some(4.0),
            gpu_memory_bytes: Some(12),
            total_gpu_memory_bytes: Some(13),
        };
        let summary = NodeSummary {
            samples: 4,
            peak_cpu_percent: Some(5.0),
            peak_gpu_percent: Some(6.0),
            average_gpu_percent: Some(7.0),
            peak_gpu_memory_bytes: Some(8),
            ..NodeSummary::default()
        };
        let row = JobUsageRow {
            key,
            name: "a".to_owned(),
            started: BootInstant(1_000_000),
            ended: BootInstant(3_500_000),
            return_code: 137,
            cause: Some(Cause::OutOfMemory),
            usage: Usage {
                peak_memory_bytes: Some(8),
                peak_gpu_percent: Some(99.0),
                average_gpu_percent: Some(98.0),
                peak_gpu_memory_bytes: Some(97),
                ..Usage::default()
            },
            resources: Resources { cpus: 2, memory_bytes: 6, gpus: 2, nodes: 1 },
            memory_limit_bytes: Some(6),
            devices: vec!["0".to_owned(), "GPU-1".to_owned()],
        };
        let wall_ms = |moment: BootInstant| i64::try_from(moment.0 / 1_000).expect("fits");
        let first = [
            Measurement::JobSample { key, at: BootInstant(2_000_000), point },
            Measurement::Job(Box::new(row.clone())),
        ];
        let second = [Measurement::NodeSample { at: BootInstant(4_000_000), point: node }, Measurement::Node(summary)];
        write(&path, "node", &first, wall_ms).await.expect("written");
        write(&path, "node", &second, wall_ms).await.expect("written again");
        assert_eq!(files_in(&[folder.path().to_path_buf()]).expect("found"), std::slice::from_ref(&path));
        let expected = Series {
            workflow: 1,
            run: 2,
            host: "node".to_owned(),
            jobs: vec![JobUsageRow {
                key,
                name: row.name,
                started: 1_000,
                ended: 3_500,
                return_code: row.return_code,
                cause: row.cause,
                usage: row.usage,
                resources: row.resources,
                memory_limit_bytes: row.memory_limit_bytes,
                devices: row.devices,
            }],
            samples: BTreeMap::from([((5, 3), vec![(2, point)])]),
            node: vec![(4, node)],
            node_summary: Some(summary),
        };
        assert_eq!(read(&path).await.expect("read"), expected);
    }

    // J13. Every column has a value of its own, and attempts of one job have rows of their own.
    #[tokio::test]
    async fn every_column_keeps_its_own_value() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("resource_metrics_wf1_hnode_r2_p3.db");
        let row = |attempt: i32| {
            let number = |column: i32| i64::from(attempt * 100 + column);
            let real = |column: i32| f64::from(attempt * 100 + column) + 0.5;
            JobUsageRow {
                key: AttemptKey { workflow: 1, job: 5, run: 2, attempt, lease_id: 0 },
                name: format!("name {attempt}"),
                started: BootInstant(u64::from(attempt.unsigned_abs()) * 1_000_000),
                ended: BootInstant(u64::from(attempt.unsigned_abs()) * 1_000_000 + 7_000),
                return_code: attempt + 60,
                cause: Some(if attempt == 1 { Cause::Timeout } else { Cause::ExitCode }),
                usage: Usage {
                    peak_memory_bytes: Some(number(1)),
                    average_memory_bytes: Some(number(2)),
                    peak_cpu_percent: Some(real(3)),
                    average_cpu_percent: Some(real(4)),
                    peak_gpu_percent: Some(real(5)),
                    average_gpu_percent: Some(real(6)),
                    peak_gpu_memory_bytes: Some(number(7)),
                },
                resources: Resources { cpus: number(8), memory_bytes: number(9), gpus: 1, nodes: 1 },
                memory_limit_bytes: Some(number(10)),
                devices: vec![format!("GPU-{attempt}")],
            }
        };
        let point = |number: i64| NodePoint {
            cpu_percent: Some(1.5),
            memory_bytes: Some(number + 2),
            total_memory_bytes: Some(number + 3),
            gpu_percent: Some(4.5),
            gpu_memory_bytes: Some(number + 5),
            total_gpu_memory_bytes: Some(number + 6),
        };
        let summary = NodeSummary {
            samples: 1,
            peak_cpu_percent: Some(2.5),
            average_cpu_percent: Some(3.5),
            peak_memory_bytes: Some(4),
            average_memory_bytes: Some(5),
            peak_gpu_percent: Some(6.5),
            average_gpu_percent: Some(7.5),
            peak_gpu_memory_bytes: Some(8),
        };
        let sample = |attempt, memory_bytes| Measurement::JobSample {
            key: row(attempt).key,
            at: BootInstant(9_999_000),
            point: DataPoint { memory_bytes, ..DataPoint::default() },
        };
        let measurements = [
            Measurement::Job(Box::new(row(2))),
            Measurement::Job(Box::new(row(1))),
            sample(1, 71),
            sample(2, 72),
            Measurement::NodeSample { at: BootInstant(8_000_000), point: point(20) },
            Measurement::NodeSample { at: BootInstant(7_000_000), point: point(10) },
            Measurement::Node(summary),
        ];
        write(&path, "node", &measurements, |moment| i64::try_from(moment.0 / 1_000).expect("fits"))
            .await
            .expect("written");
        let series = read(&path).await.expect("read");
        let expected = [1, 2].map(|attempt| {
            let JobUsageRow { key, name, return_code, cause, usage, resources, memory_limit_bytes, devices, .. } =
                row(attempt);
            let started = i64::from(attempt) * 1_000;
            let ended = started + 7;
            JobUsageRow { key, name, started, ended, return_code, cause, usage, resources, memory_limit_bytes, devices }
        });
        assert_eq!(series.jobs, expected, "in the order of their start");
        let memory: Vec<_> =
            series.samples.iter().map(|(of, points)| (*of, points[0].0, points[0].1.memory_bytes)).collect();
        assert_eq!(memory, [((5, 1), 9, 71), ((5, 2), 9, 72)]);
        assert_eq!(series.node, [(7, point(10)), (8, point(20))], "in order of time");
        assert_eq!(series.node_summary, Some(summary));
    }

    #[test]
    fn only_files_of_measurements_are_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let below = folder.path().join("below");
        std::fs::create_dir(&below).expect("a folder");
        for name in
            ["resource_metrics_a.db", "other.db", "resource_metrics_a.db-journal", "below/resource_metrics_b.db"]
        {
            std::fs::write(folder.path().join(name), "").expect("written");
        }
        let found = files_in(&[folder.path().to_path_buf()]).expect("found");
        assert_eq!(found, [below.join("resource_metrics_b.db"), folder.path().join("resource_metrics_a.db")]);
    }

    #[tokio::test]
    async fn what_cannot_be_used_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("garbage.db");
        std::fs::write(&path, "not a database, whatever its name may say").expect("written");
        let read = read(&path).await.expect_err("no database").to_string();
        let written = write(&path, "node", &[], |_| 0).await.expect_err("no database").to_string();
        assert!(read.contains("garbage.db") && written.contains("garbage.db"), "{read} {written}");
    }
}
