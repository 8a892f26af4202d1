//! Slurm allocations, those that are over too.

use sqlx::{FromRow, QueryBuilder, SqliteConnection};
use torc_api::api::Page;
use torc_api::filter::AllocationFilter;
use torc_core::ids::{AllocationId, JobId, WorkflowId};
use torc_core::rows::AllocationRow;

use super::{page, parse_cursor, push_limit};
use crate::error::Failure;
use crate::records::small;

#[derive(FromRow)]
struct AllocationRecord {
    id: i64,
    workflow: i64,
    cluster: String,
    scheduler: Option<String>,
    origin: String,
    action: Option<i64>,
    status: String,
    slurm_job_id: Option<String>,
    slurm_state: Option<String>,
    slurm_reason: Option<String>,
    partition: Option<String>,
    account: Option<String>,
    nodes: i64,
    cpus: i64,
    memory_bytes: i64,
    gpus: i64,
    seconds: i64,
    one_worker_per_node: i64,
    max_parallel_jobs: Option<i64>,
    node_list: Option<String>,
    created_ms: i64,
    called_ms: Option<i64>,
    submitted_ms: Option<i64>,
    started_ms: Option<i64>,
    ended_ms: Option<i64>,
    estimated_start_ms: Option<i64>,
    expected_end_ms: Option<i64>,
    canceled_ms: Option<i64>,
    unseen_since_ms: Option<i64>,
    has_reported: i64,
    message: Option<String>,
}

impl TryFrom<AllocationRecord> for AllocationRow {
    type Error = Failure;

    fn try_from(record: AllocationRecord) -> Result<Self, Failure> {
        Ok(Self {
            id: AllocationId(record.id),
            workflow: WorkflowId(record.workflow),
            cluster: record.cluster,
            scheduler: record.scheduler,
            origin: record.origin.parse().map_err(Failure::Damage)?,
            action: record.action.map(JobId),
            status: record.status.parse().map_err(Failure::Damage)?,
            slurm_job_id: record.slurm_job_id,
            slurm_state: record.slurm_state,
            slurm_reason: record.slurm_reason,
            partition: record.partition,
            account: record.account,
            nodes: record.nodes,
            cpus: record.cpus,
            memory_bytes: record.memory_bytes,
            gpus: record.gpus,
            seconds: record.seconds,
            one_worker_per_node: record.one_worker_per_node != 0,
            max_parallel_jobs: record.max_parallel_jobs.map(|most| small("parallel jobs", most)).transpose()?,
            node_list: record.node_list,
            created_ms: record.created_ms,
            called_ms: record.called_ms,
            submitted_ms: record.submitted_ms,
            started_ms: record.started_ms,
            ended_ms: record.ended_ms,
            estimated_start_ms: record.estimated_start_ms,
            expected_end_ms: record.expected_end_ms,
            canceled_ms: record.canceled_ms,
            unseen_since_ms: record.unseen_since_ms,
            has_reported: record.has_reported != 0,
            message: record.message,
        })
    }
}

fn statement(filter: &AllocationFilter<i64>) -> Result<QueryBuilder<sqlx::Sqlite>, Failure> {
    let mut sql = QueryBuilder::new("select * from allocations where true");
    if let Some(workflow) = filter.workflow {
        sql.push(" and workflow = ").push_bind(workflow);
    }
    if filter.live {
        sql.push(" and status in ('pending', 'active')");
    }
    if let Some(cursor) = &filter.cursor {
        let [after] = parse_cursor(cursor)?;
        sql.push(" and id > ").push_bind(after);
    }
    sql.push(" order by id");
    Ok(sql)
}

/// Lists allocations, a page at a time.
pub(crate) async fn list(
    connection: &mut SqliteConnection,
    filter: &AllocationFilter<i64>,
) -> Result<Page<AllocationRow>, Failure> {
    let mut sql = statement(filter)?;
    push_limit(&mut sql, filter.limit);
    let records: Vec<AllocationRecord> = sql.build_query_as().fetch_all(connection).await?;
    let rows: Result<Vec<AllocationRow>, Failure> = records.into_iter().map(AllocationRow::try_from).collect();
    Ok(page(rows?, filter.limit, |row| row.id.to_string()))
}

/// Every allocation that a query asks for.
pub(crate) async fn all(
    connection: &mut SqliteConnection,
    filter: &AllocationFilter<i64>,
) -> Result<Vec<AllocationRow>, Failure> {
    let records: Vec<AllocationRecord> = statement(filter)?.build_query_as().fetch_all(connection).await?;
    records.into_iter().map(AllocationRow::try_from).collect()
}
