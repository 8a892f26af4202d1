//! Slurm's accounting of steps.

use sqlx::{FromRow, QueryBuilder, SqliteConnection};
use torc_api::api::Page;
use torc_api::filter::SlurmStatsFilter;
use torc_api::slurm_stats::SlurmStats;

use super::{page, parse_cursor, push_limit};
use crate::error::QueryError;
use crate::records::small;

#[derive(FromRow)]
struct SlurmStatsRecord {
    workflow: i64,
    job: i64,
    run: i64,
    attempt: i64,
    slurm_job_id: Option<String>,
    step: Option<String>,
    max_rss_bytes: Option<i64>,
    max_vm_size_bytes: Option<i64>,
    max_disk_read_bytes: Option<i64>,
    max_disk_write_bytes: Option<i64>,
    ave_cpu_seconds: Option<f64>,
    node_list: Option<String>,
    state: Option<String>,
}

impl TryFrom<SlurmStatsRecord> for SlurmStats {
    type Error = QueryError;

    fn try_from(record: SlurmStatsRecord) -> Result<Self, QueryError> {
        Ok(Self {
            workflow: record.workflow,
            job: record.job,
            run: small("run", record.run)?,
            attempt: small("attempt", record.attempt)?,
            slurm_job_id: record.slurm_job_id,
            step: record.step,
            max_rss_bytes: record.max_rss_bytes,
            max_vm_size_bytes: record.max_vm_size_bytes,
            max_disk_read_bytes: record.max_disk_read_bytes,
            max_disk_write_bytes: record.max_disk_write_bytes,
            ave_cpu_seconds: record.ave_cpu_seconds,
            node_list: record.node_list,
            state: record.state,
        })
    }
}

/// Lists the accounting of steps, a page at a time.
pub(crate) async fn list(
    connection: &mut SqliteConnection,
    filter: &SlurmStatsFilter<i64>,
) -> Result<Page<SlurmStats>, QueryError> {
    let mut sql = QueryBuilder::new("select * from slurm_stats where true");
    if let Some(cursor) = &filter.cursor {
        let [workflow, job, run, attempt] = parse_cursor(cursor)?;
        sql.push(" and (workflow, job, run, attempt) > (");
        let mut key = sql.separated(", ");
        key.push_bind(workflow).push_bind(job).push_bind(run).push_bind(attempt);
        sql.push(")");
    }
    if let Some(workflow) = filter.workflow_id {
        sql.push(" and workflow = ").push_bind(workflow);
    }
    if let Some(job) = filter.job_id {
        sql.push(" and job = ").push_bind(job);
    }
    if let Some(run) = filter.run_id {
        sql.push(" and run = ").push_bind(run);
    }
    if let Some(attempt) = filter.attempt_id {
        sql.push(" and attempt = ").push_bind(attempt);
    }
    sql.push(" order by workflow, job, run, attempt");
    push_limit(&mut sql, filter.limit);
    let records: Vec<SlurmStatsRecord> = sql.build_query_as().fetch_all(connection).await?;
    let rows: Result<Vec<SlurmStats>, QueryError> = records.into_iter().map(SlurmStats::try_from).collect();
    Ok(page(rows?, filter.limit, |row| format!("{}.{}.{}.{}", row.workflow, row.job, row.run, row.attempt)))
}
