//! Writes a group of changes, within a transaction of the caller.
//!
//! The order matters: deletions free names before new rows take them, and whole rows come before updates.

mod actions;
mod allocations;
mod data;

use std::collections::HashSet;
use std::sync::LazyLock;

use sqlx::SqliteConnection;
use torc_core::ids::{JobId, WorkflowId};
use torc_core::rows::{
    AuditRow, Changes, DetachedLease, DetachedState, EventRow, JobRow, JobUpdate, LastIds, ProfileRow, ResultRow,
    RunnerRow, WorkflowRow,
};

use crate::bulk::BulkStatement;
use crate::error::QueryError;
use crate::records::to_json;
use crate::varint::{encode_jobs, encode_transitions};

/// Writes all changes. Rows of a workflow that the same group deletes are left out, except events, which report the deletion.
pub(crate) async fn write(connection: &mut SqliteConnection, changes: &Changes) -> Result<(), QueryError> {
    let gone: HashSet<WorkflowId> = changes.deleted_workflows.iter().copied().collect();
    remove_jobs(connection, &changes.removed_jobs).await?;
    for workflow in &changes.deleted_workflows {
        delete_workflow(connection, *workflow).await?;
    }
    for workflow in changes.workflows.iter().filter(|row| !gone.contains(&row.id)) {
        write_workflow(connection, workflow).await?;
    }
    let profiles: Vec<&ProfileRow> = changes.profiles.iter().filter(|row| !gone.contains(&row.workflow)).collect();
    write_profiles(connection, &profiles).await?;
    let jobs: Vec<&JobRow> = changes.jobs.iter().filter(|row| !gone.contains(&row.workflow)).collect();
    write_jobs(connection, &jobs, &changes.removed_jobs).await?;
    move_jobs(connection, &changes.job_updates).await?;
    let results: Vec<&ResultRow> = changes.results.iter().filter(|row| !gone.contains(&row.workflow)).collect();
    write_results(connection, &results).await?;
    let stats: Vec<_> = changes.slurm_stats.iter().filter(|row| !gone.contains(&WorkflowId(row.workflow))).collect();
    data::write_slurm_stats(connection, &stats).await?;
    let files: Vec<_> = changes.files.iter().filter(|row| !gone.contains(&row.workflow)).collect();
    data::write_files(connection, &files).await?;
    let user_data: Vec<_> = changes.user_data.iter().filter(|row| !gone.contains(&row.workflow)).collect();
    data::remove_user_data(connection, &changes.removed_user_data).await?;
    data::write_user_data(connection, &user_data).await?;
    forget_detached_leases(connection, &changes.ended_leases).await?;
    let detached_leases: Vec<&DetachedLease> =
        changes.detached_leases.iter().filter(|row| !gone.contains(&row.workflow)).collect();
    write_detached_leases(connection, &detached_leases).await?;
    actions::write(connection, changes, &gone).await?;
    allocations::write(connection, changes, &gone).await?;
    for runner in &changes.runners {
        write_runner(connection, runner).await?;
    }
    write_events(connection, &changes.events).await?;
    for row in &changes.audit {
        write_audit(connection, row).await?;
    }
    raise_last_ids(connection, &highest(changes)).await
}

async fn remove_jobs(connection: &mut SqliteConnection, jobs: &[JobId]) -> Result<(), QueryError> {
    static REMOVE: LazyLock<BulkStatement> =
        LazyLock::new(|| BulkStatement::new(1, "update jobs set removed = 1 where id in (select column1 from $rows)"));
    Ok(REMOVE.run(connection, jobs, |job, binder| binder.add(job.0).map(drop)).await?)
}

async fn delete_workflow(connection: &mut SqliteConnection, workflow: WorkflowId) -> Result<(), QueryError> {
    let id = workflow.0;
    sqlx::query!("delete from job_states where id in (select id from jobs where workflow = ?)", id)
        .execute(&mut *connection)
        .await?;
    sqlx::query!("delete from jobs where workflow = ?", id).execute(&mut *connection).await?;
    sqlx::query!("delete from profiles where workflow = ?", id).execute(&mut *connection).await?;
    actions::delete_workflow(connection, workflow).await?;
    allocations::delete_workflow(connection, workflow).await?;
    sqlx::query!("delete from results where workflow = ?", id).execute(&mut *connection).await?;
    sqlx::query!("delete from slurm_stats where workflow = ?", id).execute(&mut *connection).await?;
    sqlx::query!("delete from files where workflow = ?", id).execute(&mut *connection).await?;
    sqlx::query!("delete from user_data where workflow = ?", id).execute(&mut *connection).await?;
    sqlx::query!("delete from events where workflow = ?", id).execute(&mut *connection).await?;
    sqlx::query!("delete from detached_leases where workflow = ?", id).execute(&mut *connection).await?;
    sqlx::query!("delete from remote_workers where workflow = ?", id).execute(&mut *connection).await?;
    sqlx::query!("delete from documents where workflow = ?", id).execute(&mut *connection).await?;
    sqlx::query!("delete from workflows where id = ?", id).execute(&mut *connection).await?;
    Ok(())
}

async fn write_workflow(connection: &mut SqliteConnection, row: &WorkflowRow) -> Result<(), QueryError> {
    let id = row.id.0;
    let data = to_json(row)?;
    sqlx::query!(
        "insert into workflows (id, data) values (?, ?) on conflict (id) do update set data = excluded.data",
        id,
        data
    )
    .execute(&mut *connection)
    .await?;
    write_document(connection, row).await
}

/// Writes the document if its generation is new: most changes of a workflow only change its status.
async fn write_document(connection: &mut SqliteConnection, row: &WorkflowRow) -> Result<(), QueryError> {
    let id = row.id.0;
    let stored = sqlx::query_scalar!("select generation from documents where workflow = ?", id)
        .fetch_optional(&mut *connection)
        .await?;
    if stored == Some(row.generation) {
        return Ok(());
    }
    sqlx::query!(
        "insert into documents (workflow, generation, document) values (?, ?, ?)
        on conflict (workflow) do update set generation = excluded.generation, document = excluded.document",
        id,
        row.generation,
        row.document
    )
    .execute(&mut *connection)
    .await?;
    Ok(())
}

async fn write_profiles(connection: &mut SqliteConnection, rows: &[&ProfileRow]) -> Result<(), QueryError> {
    static INSERT: LazyLock<BulkStatement> = LazyLock::new(|| {
        BulkStatement::new(
            3,
            "insert into profiles (id, workflow, profile) select * from $rows where column1 is not null
            on conflict (id) do update set workflow = excluded.workflow, profile = excluded.profile",
        )
    });
    let write = INSERT.run(connection, rows, |row, binder| {
        binder.add(row.id.0)?.add(row.workflow.0)?.add(to_json(&row.profile)?).map(drop)
    });
    Ok(write.await?)
}

/// Writes jobs. A job that the group writes and removes was removed by a later command: it is stored as removed.
async fn write_jobs(connection: &mut SqliteConnection, rows: &[&JobRow], removed: &[JobId]) -> Result<(), QueryError> {
    static INSERT: LazyLock<BulkStatement> = LazyLock::new(|| {
        BulkStatement::new(
            9,
            "insert into jobs (id, workflow, name, command, profile, priority, hash, depends_on, removed)
            select * from $rows where column1 is not null
            on conflict (id) do update set
                workflow = excluded.workflow, name = excluded.name, command = excluded.command,
                profile = excluded.profile, priority = excluded.priority, hash = excluded.hash,
                depends_on = excluded.depends_on, removed = excluded.removed",
        )
    });
    static INSERT_STATES: LazyLock<BulkStatement> = LazyLock::new(|| {
        BulkStatement::new(
            7,
            "insert into job_states (id, state, run, attempt, lease_id, runner, started_ms)
            select * from $rows where column1 is not null
            on conflict (id) do update set
                state = excluded.state, run = excluded.run, attempt = excluded.attempt, lease_id = excluded.lease_id,
                runner = excluded.runner, started_ms = excluded.started_ms",
        )
    });
    let removed: HashSet<JobId> = removed.iter().copied().collect();
    let write = INSERT.run(connection, rows, |row, binder| {
        binder.add(row.id.0)?.add(row.workflow.0)?.add(row.name.as_str())?.add(row.command.as_str())?;
        binder.add(row.profile.0)?.add(row.priority)?.add(row.hash.as_slice())?;
        binder.add(encode_jobs(&row.depends_on))?.add(removed.contains(&row.id)).map(drop)
    });
    write.await?;
    let write = INSERT_STATES.run(connection, rows, |row, binder| {
        binder.add(row.id.0)?.add(row.state.code())?.add(row.run)?.add(row.attempt)?.add(row.lease_id)?;
        binder.add(row.runner.map(|runner| runner.0))?.add(row.started_ms).map(drop)
    });
    Ok(write.await?)
}

async fn move_jobs(connection: &mut SqliteConnection, updates: &[JobUpdate]) -> Result<(), QueryError> {
    static UPDATE: LazyLock<BulkStatement> = LazyLock::new(|| {
        BulkStatement::new(
            7,
            "update job_states set
                state = column2, run = column3, attempt = column4, lease_id = column5, runner = column6, started_ms = column7
            from $rows where id = column1",
        )
    });
    let updates = latest_per_job(updates);
    let write = UPDATE.run(connection, &updates, |row, binder| {
        binder.add(row.id.0)?.add(row.state.code())?.add(row.run)?.add(row.attempt)?.add(row.lease_id)?;
        binder.add(row.runner.map(|runner| runner.0))?.add(row.started_ms).map(drop)
    });
    Ok(write.await?)
}

/// Returns the last update of each job, in the order of the table.
fn latest_per_job(updates: &[JobUpdate]) -> Vec<JobUpdate> {
    let mut last = updates.to_vec();
    last.sort_by_key(|update| update.id);
    last.dedup_by(|later, kept| {
        let is_same = later.id == kept.id;
        if is_same {
            *kept = *later;
        }
        is_same
    });
    last
}

async fn write_results(connection: &mut SqliteConnection, rows: &[&ResultRow]) -> Result<(), QueryError> {
    static INSERT: LazyLock<BulkStatement> = LazyLock::new(|| {
        BulkStatement::new(
            20,
            "insert into results (workflow, job, run, attempt, state, return_code, cause, message, started_ms, ended_ms,
                runner, stdout, stderr, peak_memory_bytes, average_memory_bytes, peak_cpu_percent, average_cpu_percent,
                peak_gpu_percent, average_gpu_percent, peak_gpu_memory_bytes)
            select * from $rows where column1 is not null
            on conflict (workflow, job, run, attempt) do nothing",
        )
    });
    let write = INSERT.run(connection, rows, |row, binder| {
        binder.add(row.workflow.0)?.add(row.job.0)?.add(row.run)?.add(row.attempt)?;
        binder.add(row.state.code())?.add(row.return_code)?;
        binder.add(row.cause.map(|cause| cause.as_str()))?.add(row.message.as_deref())?;
        binder.add(row.started_ms)?.add(row.ended_ms)?.add(row.runner.map(|runner| runner.0))?;
        binder.add(row.stdout.as_deref())?.add(row.stderr.as_deref())?;
        binder.add(row.usage.peak_memory_bytes)?.add(row.usage.average_memory_bytes)?;
        binder.add(row.usage.peak_cpu_percent)?.add(row.usage.average_cpu_percent)?;
        binder.add(row.usage.peak_gpu_percent)?.add(row.usage.average_gpu_percent)?;
        binder.add(row.usage.peak_gpu_memory_bytes).map(drop)
    });
    Ok(write.await?)
}

async fn forget_detached_leases(connection: &mut SqliteConnection, lease_ids: &[i64]) -> Result<(), QueryError> {
    static DELETE: LazyLock<BulkStatement> = LazyLock::new(|| {
        BulkStatement::new(1, "delete from detached_leases where lease_id in (select column1 from $rows)")
    });
    Ok(DELETE.run(connection, lease_ids, |lease_id, binder| binder.add(*lease_id).map(drop)).await?)
}

async fn write_detached_leases(connection: &mut SqliteConnection, rows: &[&DetachedLease]) -> Result<(), QueryError> {
    static INSERT: LazyLock<BulkStatement> = LazyLock::new(|| {
        BulkStatement::new(
            9,
            "insert into detached_leases (lease_id, workflow, job, run, attempt, runner, started_ms, expired, role)
            select * from $rows where column1 is not null
            on conflict (lease_id) do update set
                workflow = excluded.workflow, job = excluded.job, run = excluded.run, attempt = excluded.attempt,
                runner = excluded.runner, started_ms = excluded.started_ms, expired = excluded.expired,
                role = excluded.role",
        )
    });
    let write = INSERT.run(connection, rows, |row, binder| {
        binder.add(row.lease_id)?.add(row.workflow.0)?.add(row.job.0)?.add(row.run)?.add(row.attempt)?;
        binder.add(row.runner.0)?.add(row.started_ms)?.add(row.state == DetachedState::Expired)?;
        binder.add(row.role.as_str()).map(drop)
    });
    Ok(write.await?)
}

async fn write_runner(connection: &mut SqliteConnection, row: &RunnerRow) -> Result<(), QueryError> {
    let (id, data) = (row.id.0, to_json(row)?);
    sqlx::query!("insert or replace into runners (id, data) values (?, ?)", id, data).execute(connection).await?;
    Ok(())
}

async fn write_events(connection: &mut SqliteConnection, rows: &[EventRow]) -> Result<(), QueryError> {
    static INSERT: LazyLock<BulkStatement> = LazyLock::new(|| {
        BulkStatement::new(
            6,
            "insert into events (sequence, time_ms, workflow, reason, message, jobs)
            select * from $rows where column1 is not null",
        )
    });
    let write = INSERT.run(connection, rows, |row, binder| {
        binder.add(row.sequence)?.add(row.time_ms)?.add(row.workflow.map(|workflow| workflow.0))?;
        binder.add(row.reason.as_str())?.add(row.message.as_str())?.add(encode_transitions(&row.jobs)).map(drop)
    });
    Ok(write.await?)
}

async fn write_audit(connection: &mut SqliteConnection, row: &AuditRow) -> Result<(), QueryError> {
    sqlx::query!(
        "insert into audit (time_ms, who, scope, verb, object, outcome) values (?, ?, ?, ?, ?, ?)",
        row.time_ms,
        row.who,
        row.scope,
        row.verb,
        row.object,
        row.outcome
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Returns the highest number of each kind among the changes; 0 where there is none.
fn highest(changes: &Changes) -> LastIds {
    fn max(numbers: impl Iterator<Item = i64>) -> i64 {
        numbers.max().unwrap_or_default()
    }
    let leases = changes.actions.iter().map(|row| row.lease).chain(changes.recoveries.iter().map(|row| row.lease));
    let lease_ids =
        changes.jobs.iter().map(|row| row.lease_id).chain(changes.job_updates.iter().map(|row| row.lease_id));
    let lease_ids = lease_ids.chain(changes.user_data.iter().map(|row| row.lease_id));
    let lease_ids = lease_ids.chain(changes.detached_leases.iter().map(|lease| lease.lease_id));
    let lease_ids = lease_ids.chain(leases.map(|lease| lease.lease_id));
    let (jobs, actions) = (changes.jobs.iter().map(|row| &row.id), changes.actions.iter().map(|row| &row.id));
    // A workflow that was created and deleted in the same group has no row here.
    let deleted = changes.deleted_workflows.iter().copied();
    LastIds {
        workflow: max(changes.workflows.iter().map(|row| row.id).chain(deleted).map(|id| id.0)),
        job: max(jobs.chain(actions).chain(&changes.removed_actions).map(|id| id.0)),
        profile: max(changes.profiles.iter().map(|row| row.id.0)),
        runner: max(changes.runners.iter().map(|row| row.id.0)),
        event: max(changes.events.iter().map(|row| row.sequence)),
        lease_id: max(lease_ids),
        allocation: max(changes.allocations.iter().map(|row| row.id.0)),
    }
}

async fn raise_last_ids(connection: &mut SqliteConnection, last: &LastIds) -> Result<(), QueryError> {
    sqlx::query!(
        "update last_ids set workflow = max(workflow, ?), job = max(job, ?), profile = max(profile, ?),
            runner = max(runner, ?), event = max(event, ?), lease_id = max(lease_id, ?), allocation = max(allocation, ?)",
        last.workflow,
        last.job,
        last.profile,
        last.runner,
        last.event,
        last.lease_id,
        last.allocation
    )
    .execute(&mut *connection)
    .await?;
    Ok(())
}
