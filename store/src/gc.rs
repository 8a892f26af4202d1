//! Garbage collection of superseded results, old events and ended runners and allocations.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::SqliteConnection;
use torc_core::ids::WorkflowId;

use crate::error::QueryError;

/// The rows that were deleted, or would be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GcReport {
    pub results: u64,
    pub events: u64,
    /// Runners that have left and that no result names.
    pub runners: u64,
    /// Ended Slurm allocations that neither a runner nor the accounting of a step names, by workflow.
    pub allocations: BTreeMap<WorkflowId, i64>,
    /// Removed jobs without results.
    pub jobs: u64,
    /// Output files of the deleted results that no other result names, sorted. The caller deletes them.
    pub log_files: Vec<String>,
}

/// Deletes rows that ended before a time, within a transaction of the caller.
pub(crate) async fn collect(connection: &mut SqliteConnection, before_ms: i64) -> Result<GcReport, QueryError> {
    let (results, logs) = collect_results(connection, before_ms).await?;
    let log_files = remove_unreferenced(connection, logs).await?;
    if results > 0 {
        collect_slurm_stats(connection).await?;
    }
    let events = sqlx::query!("delete from events where time_ms < ?", before_ms).execute(&mut *connection).await?;
    let runners = sqlx::query!(
        "delete from runners where ended_ms < ? and id not in (select runner from results where runner is not null)",
        before_ms
    )
    .execute(&mut *connection)
    .await?;
    let allocations = collect_allocations(connection, before_ms).await?;
    let jobs = collect_jobs(connection).await?;
    let (events, runners) = (events.rows_affected(), runners.rows_affected());
    Ok(GcReport { results, events, runners, allocations, jobs, log_files })
}

/// Deletes results that a later one of the same job supersedes. Results of a job's current run stay until the workflow is
/// complete: retry budgets count them.
async fn collect_results(
    connection: &mut SqliteConnection,
    before_ms: i64,
) -> Result<(u64, BTreeSet<String>), QueryError> {
    let deleted = sqlx::query!(
        "delete from results as r
        where ended_ms < ?
            and exists (select 1 from results later where later.workflow = r.workflow and later.job = r.job
                and (later.run, later.attempt) > (r.run, r.attempt))
            and not exists (select 1 from job_states s join workflows w on w.id = r.workflow
                where s.id = r.job and s.run = r.run and w.completed_ms is null)
        returning stdout, stderr",
        before_ms
    )
    .fetch_all(connection)
    .await?;
    let count = u64::try_from(deleted.len()).unwrap_or(u64::MAX);
    let logs = deleted.into_iter().flat_map(|row| [row.stdout, row.stderr]).flatten().collect();
    Ok((count, logs))
}

/// Deletes the accounting of attempts whose results were deleted: a later result supersedes them. The accounting of an attempt
/// without a result stays while the result may still arrive.
async fn collect_slurm_stats(connection: &mut SqliteConnection) -> Result<(), QueryError> {
    sqlx::query!(
        "delete from slurm_stats as s
        where not exists (select 1 from results r where r.workflow = s.workflow and r.job = s.job
                and (r.run, r.attempt) = (s.run, s.attempt))
            and exists (select 1 from results later where later.workflow = s.workflow and later.job = s.job
                and (later.run, later.attempt) > (s.run, s.attempt))"
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Deletes allocations that no runner and no accounting refers to.
async fn collect_allocations(
    connection: &mut SqliteConnection,
    before_ms: i64,
) -> Result<BTreeMap<WorkflowId, i64>, QueryError> {
    let deleted = sqlx::query_scalar!(
        "delete from allocations as a
        where ended_ms < ?
            and not exists (select 1 from runners r where r.slurm_job_id = a.slurm_job_id)
            and not exists (select 1 from slurm_stats s where s.workflow = a.workflow and s.slurm_job_id = a.slurm_job_id)
        returning workflow as \"workflow!\"",
        before_ms
    )
    .fetch_all(connection)
    .await?;
    let mut counts = BTreeMap::new();
    for workflow in deleted {
        *counts.entry(WorkflowId(workflow)).or_default() += 1;
    }
    Ok(counts)
}

/// Removes files that a result still names: attempts may share one.
async fn remove_unreferenced(
    connection: &mut SqliteConnection,
    mut logs: BTreeSet<String>,
) -> Result<Vec<String>, QueryError> {
    if !logs.is_empty() {
        let kept = sqlx::query!("select stdout, stderr from results where stdout is not null or stderr is not null")
            .fetch_all(connection)
            .await?;
        for path in kept.into_iter().flat_map(|row| [row.stdout, row.stderr]).flatten() {
            logs.remove(&path);
        }
    }
    Ok(logs.into_iter().collect())
}

async fn collect_jobs(connection: &mut SqliteConnection) -> Result<u64, QueryError> {
    let jobs = sqlx::query!(
        "delete from jobs as j where removed = 1
            and not exists (select 1 from results r where r.workflow = j.workflow and r.job = j.id)"
    )
    .execute(&mut *connection)
    .await?;
    if jobs.rows_affected() > 0 {
        sqlx::query!("delete from job_states where id not in (select id from jobs)").execute(&mut *connection).await?;
        sqlx::query!("delete from files where job not in (select id from jobs)").execute(connection).await?;
    }
    Ok(jobs.rows_affected())
}
