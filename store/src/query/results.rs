//! Queries of the results of attempts.

use sqlx::{FromRow, QueryBuilder, Sqlite, SqliteConnection};
use torc_api::api::Page;
use torc_api::filter::ResultFilter;
use torc_api::slurm_stats::SlurmStats;
use torc_api::state::JobState;
use torc_core::accounting::complete;
use torc_core::rows::ResultRow;

use super::{page, parse_cursor, push_limit, push_states};
use crate::error::QueryError;
use crate::records::ResultColumns;

/// Final states of failed attempts. A canceled one has not failed.
pub const FAILED_STATES: [JobState; 2] = [JobState::Failed, JobState::Terminated];

/// A result with the names of its workflow, job and host.
#[derive(Clone, Debug, PartialEq)]
pub struct ResultView {
    /// The result, completed with Slurm's accounting.
    pub result: ResultRow,
    pub workflow_name: String,
    pub job_name: String,
    /// The host of the runner.
    pub host: Option<String>,
}

#[derive(FromRow)]
struct ResultViewRecord {
    #[sqlx(flatten)]
    result: ResultColumns,
    workflow_name: String,
    job_name: String,
    host: Option<String>,
    max_rss_bytes: Option<i64>,
    ave_cpu_seconds: Option<f64>,
}

impl TryFrom<ResultViewRecord> for ResultView {
    type Error = QueryError;

    fn try_from(record: ResultViewRecord) -> Result<Self, QueryError> {
        let mut result: ResultRow = record.result.try_into()?;
        let stats = SlurmStats {
            max_rss_bytes: record.max_rss_bytes,
            ave_cpu_seconds: record.ave_cpu_seconds,
            ..SlurmStats::default()
        };
        result.usage = complete(result.usage, &stats, result.ended_ms.saturating_sub(result.started_ms));
        Ok(Self { result, workflow_name: record.workflow_name, job_name: record.job_name, host: record.host })
    }
}

pub(crate) async fn list(
    connection: &mut SqliteConnection,
    filter: &ResultFilter<i64>,
) -> Result<Page<ResultView>, QueryError> {
    let mut sql = QueryBuilder::new(
        "select r.*, w.name as workflow_name, j.name as job_name, n.host, s.max_rss_bytes, s.ave_cpu_seconds
        from results r join workflows w on w.id = r.workflow join jobs j on j.id = r.job
        left join runners n on n.id = r.runner
        left join slurm_stats s on (s.workflow, s.job, s.run, s.attempt) = (r.workflow, r.job, r.run, r.attempt)
        where true",
    );
    push_filters(&mut sql, filter)?;
    sql.push(" order by r.workflow, r.job, r.run, r.attempt");
    push_limit(&mut sql, filter.limit);
    let records: Vec<ResultViewRecord> = sql.build_query_as().fetch_all(connection).await?;
    let views: Result<Vec<ResultView>, QueryError> = records.into_iter().map(ResultView::try_from).collect();
    Ok(page(views?, filter.limit, |view| {
        let row = &view.result;
        format!("{}.{}.{}.{}", row.workflow, row.job, row.run, row.attempt)
    }))
}

fn push_filters(sql: &mut QueryBuilder<Sqlite>, filter: &ResultFilter<i64>) -> Result<(), QueryError> {
    if let Some(cursor) = &filter.cursor {
        let [workflow, job, run, attempt] = parse_cursor(cursor)?;
        sql.push(" and (r.workflow, r.job, r.run, r.attempt) > (");
        let mut key = sql.separated(", ");
        key.push_bind(workflow).push_bind(job).push_bind(run).push_bind(attempt);
        sql.push(")");
    }
    if let Some(workflow) = filter.workflow {
        sql.push(" and r.workflow = ").push_bind(workflow);
    }
    if let Some(job) = filter.job {
        // The table is clustered by workflow first: naming it turns a scan into a seek.
        sql.push(" and r.workflow = (select workflow from jobs where id = ").push_bind(job);
        sql.push(") and r.job = ").push_bind(job);
    }
    if let Some(run) = filter.run {
        sql.push(" and r.run = ").push_bind(run);
    }
    push_states(sql, "r.state", &filter.status);
    if filter.failed {
        push_states(sql, "r.state", &FAILED_STATES);
    }
    if let Some(code) = filter.return_code {
        sql.push(" and r.return_code = ").push_bind(code);
    }
    if filter.latest {
        sql.push(
            " and not exists (select 1 from results later where later.workflow = r.workflow and later.job = r.job
                and (later.run, later.attempt) > (r.run, r.attempt))",
        );
    }
    Ok(())
}
