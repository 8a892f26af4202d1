//! Collects measurements in memory, and writes them to the files of their runs at intervals.
//!
//! A failed write loses its rows only. It is logged once, and the next write tries again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use torc_api::execution::MonitorPlan;

use crate::clock::{self, BootInstant};
use crate::plots;
use crate::series::{self, FOLDER, Measurement, MeasurementRecord};

/// Handle of the task that writes measurements. The task writes the rest when the handle is closed or dropped.
pub struct Recorder {
    records: UnboundedSender<Vec<MeasurementRecord>>,
    task: JoinHandle<Vec<String>>,
}

impl Recorder {
    /// Starts the task. Files are created below `output_dir`; `log_problem` is called for each problem.
    pub fn start(output_dir: &Path, host: &str, log_problem: impl Fn(String) + Send + 'static) -> Self {
        let (records, incoming) = unbounded_channel();
        let buffer = SampleBuffer {
            folder: output_dir.join(FOLDER),
            host: host.to_owned(),
            files: BTreeMap::new(),
            failure_logged: false,
        };
        Self { records, task: tokio::spawn(buffer.keep(incoming, log_problem)) }
    }

    pub fn record(&self, records: Vec<MeasurementRecord>) {
        // The task lives as long as its sender.
        let _ = self.records.send(records);
    }

    /// Writes the rest and the requested plots. Returns the problems.
    pub async fn close(self) -> Vec<String> {
        drop(self.records);
        self.task.await.unwrap_or_default()
    }
}

/// Measurements that are not written yet.
struct SampleBuffer {
    folder: PathBuf,
    host: String,
    /// Files by workflow and run.
    files: BTreeMap<(i64, i32), Pending>,
    failure_logged: bool,
}

struct Pending {
    path: PathBuf,
    plan: MonitorPlan,
    measurements: Vec<Measurement>,
    flush_at: Instant,
}

impl SampleBuffer {
    async fn keep(
        mut self,
        mut incoming: UnboundedReceiver<Vec<MeasurementRecord>>,
        log_problem: impl Fn(String) + Send + 'static,
    ) -> Vec<String> {
        loop {
            let due = self.files.values().filter(|file| !file.measurements.is_empty()).map(|file| file.flush_at).min();
            let wait = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                records = incoming.recv() => match records {
                    Some(records) => records.into_iter().for_each(|record| self.add(record)),
                    None => break,
                },
                () = wait => self.flush(Some(Instant::now())).await.into_iter().for_each(&log_problem),
            }
        }
        let mut problems: Vec<String> = self.flush(None).await.into_iter().collect();
        problems.extend(self.plot().await);
        problems
    }

    fn add(&mut self, record: MeasurementRecord) {
        let MeasurementRecord { workflow, run, plan, measurement } = record;
        let every = Duration::from_secs(plan.flush_interval_seconds.into());
        let pending = self.files.entry((workflow, run)).or_insert_with(|| {
            let name = format!("resource_metrics_wf{workflow}_h{}_r{run}_p{}.db", self.host, std::process::id());
            Pending { path: self.folder.join(name), plan, measurements: Vec::new(), flush_at: Instant::now() + every }
        });
        if pending.measurements.is_empty() {
            pending.flush_at = Instant::now() + every;
        }
        pending.plan = plan;
        pending.measurements.push(measurement);
    }

    /// Writes the files that are due at `until`, or all files if it is absent. Returns only the first problem of the
    /// runner's life.
    async fn flush(&mut self, until: Option<Instant>) -> Option<String> {
        let mut problem = None;
        for pending in self.files.values_mut() {
            if pending.measurements.is_empty() || until.is_some_and(|until| pending.flush_at > until) {
                continue;
            }
            let measurements = std::mem::take(&mut pending.measurements);
            if let Err(error) = series::write(&pending.path, &self.host, &measurements, wall_clock()).await
                && !std::mem::replace(&mut self.failure_logged, true)
            {
                let reason = std::error::Error::source(&error).map_or(String::new(), |source| format!(": {source}"));
                problem = Some(format!("{error}{reason}; time series are incomplete, results keep peaks and averages"));
            }
        }
        problem
    }

    /// Draws the requested plots, each from all files of its run, and returns the problems.
    async fn plot(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for ((workflow, run), _) in self.files.iter().filter(|(_, pending)| pending.plan.plots) {
            let folder = self.folder.join(format!("plots_wf{workflow}_r{run}"));
            let made = plots::make(std::slice::from_ref(&self.folder), Some((*workflow, *run)), &folder).await;
            problems.extend(made.err().map(|error| format!("cannot plot workflow {workflow}: {error}")));
        }
        problems
    }
}

/// Returns a function that converts moments to milliseconds since 1970, by the current clocks.
fn wall_clock() -> impl Fn(BootInstant) -> i64 {
    let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let (now, now_ms) = (clock::now(), i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX));
    move |moment| now_ms - i64::try_from(now.since(moment).as_millis()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::{NodeSummary, files_in};

    fn record(workflow: i64, flush_interval_seconds: u32) -> MeasurementRecord {
        let plan = MonitorPlan { flush_interval_seconds, ..MonitorPlan::default() };
        MeasurementRecord { workflow, run: 2, plan, measurement: Measurement::Node(NodeSummary::default()) }
    }

    // J13. A file is written at its own interval, and at the end.
    #[tokio::test]
    async fn a_file_is_written_at_its_own_interval() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut buffer = SampleBuffer {
            folder: folder.path().to_path_buf(),
            host: "host".to_owned(),
            files: BTreeMap::new(),
            failure_logged: false,
        };
        let began = Instant::now();
        buffer.add(record(1, 3_600));
        buffer.add(record(2, 36_000));
        let written = || {
            let found = files_in(&[folder.path().to_path_buf()]).expect("found");
            found.len()
        };
        for (after, count) in [(Some(3_000), 0), (Some(10_000), 1), (None, 2)] {
            let until = after.map(|seconds| began + Duration::from_secs(seconds));
            assert_eq!(buffer.flush(until).await, None, "no problem");
            assert_eq!(written(), count, "{after:?} s");
        }
        let name = format!("resource_metrics_wf1_hhost_r2_p{}.db", std::process::id());
        assert!(folder.path().join(name).exists());
    }

    // J13. A file that cannot be written is logged once.
    #[tokio::test]
    async fn a_problem_is_told_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let blocked = folder.path().join("blocked");
        std::fs::write(&blocked, "a file, and no folder").expect("written");
        let mut buffer =
            SampleBuffer { folder: blocked, host: "host".to_owned(), files: BTreeMap::new(), failure_logged: false };
        for is_told in [true, false] {
            buffer.add(record(1, 1));
            assert_eq!(buffer.flush(None).await.is_some(), is_told);
        }
    }
}
