//! Writes actions and recovery scripts. There are few of them, and they are written whole.

use std::collections::HashSet;
use std::sync::LazyLock;

use sqlx::SqliteConnection;
use torc_core::ids::{JobId, WorkflowId};
use torc_core::rows::{ActionRow, Changes, RecoveryRow};

use crate::bulk::BulkStatement;
use crate::error::Failure;

/// Writes what changed. Rows of a workflow that the same group deletes are left out.
pub(super) async fn write(
    connection: &mut SqliteConnection,
    changes: &Changes,
    gone: &HashSet<WorkflowId>,
) -> Result<(), Failure> {
    let actions: Vec<&ActionRow> = changes.actions.iter().filter(|row| !gone.contains(&row.workflow)).collect();
    write_actions(connection, &actions).await?;
    remove_actions(connection, &changes.removed_actions).await?;
    let recoveries: Vec<&RecoveryRow> = changes.recoveries.iter().filter(|row| !gone.contains(&row.workflow)).collect();
    write_recoveries(connection, &recoveries).await?;
    end_recoveries(connection, &changes.ended_recoveries).await
}

/// Deletes what belongs to a workflow.
pub(super) async fn delete_workflow(connection: &mut SqliteConnection, workflow: WorkflowId) -> Result<(), Failure> {
    let id = workflow.0;
    sqlx::query!("delete from actions where workflow = ?", id).execute(&mut *connection).await?;
    sqlx::query!("delete from recoveries where workflow = ?", id).execute(&mut *connection).await?;
    Ok(())
}

async fn write_actions(connection: &mut SqliteConnection, rows: &[&ActionRow]) -> Result<(), Failure> {
    static INSERT: LazyLock<BulkStatement> = LazyLock::new(|| {
        BulkStatement::new(
            17,
            "insert or replace into actions (id, workflow, position, worker, state, run, attempt, tries, lease_id, runner,
                started_ms, ended_ms, return_code, message, stdout, stderr, definition)
            select * from $rows where column1 is not null",
        )
    });
    let write = INSERT.run(connection, rows, |row, places| {
        let lease = &row.lease;
        places.add(row.id.0)?.add(row.workflow.0)?.add(row.position)?;
        places.add(row.worker.map(|worker| worker.0))?.add(row.state.as_str())?;
        places.add(lease.run)?.add(lease.attempt)?.add(lease.tries)?.add(lease.lease_id)?;
        places.add(lease.runner.map(|runner| runner.0))?.add(lease.started_ms)?;
        places.add(row.ended_ms)?.add(row.return_code)?.add(row.message.as_deref())?;
        places.add(row.stdout.as_deref())?.add(row.stderr.as_deref())?.add(row.definition.as_deref()).map(drop)
    });
    Ok(write.await?)
}

async fn remove_actions(connection: &mut SqliteConnection, ids: &[JobId]) -> Result<(), Failure> {
    static DELETE: LazyLock<BulkStatement> =
        LazyLock::new(|| BulkStatement::new(1, "delete from actions where id in (select column1 from $rows)"));
    Ok(DELETE.run(connection, ids, |id, places| places.add(id.0).map(drop)).await?)
}

async fn write_recoveries(connection: &mut SqliteConnection, rows: &[&RecoveryRow]) -> Result<(), Failure> {
    static INSERT: LazyLock<BulkStatement> = LazyLock::new(|| {
        BulkStatement::new(
            12,
            "insert or replace into recoveries (job, workflow, script, return_code, cause, preferred, run, attempt, tries,
                lease_id, runner, started_ms)
            select * from $rows where column1 is not null",
        )
    });
    let write = INSERT.run(connection, rows, |row, places| {
        let lease = &row.lease;
        places.add(row.job.0)?.add(row.workflow.0)?.add(row.script.as_str())?;
        places.add(row.return_code)?.add(row.cause.as_str())?.add(row.preferred.map(|runner| runner.0))?;
        places.add(lease.run)?.add(lease.attempt)?.add(lease.tries)?.add(lease.lease_id)?;
        places.add(lease.runner.map(|runner| runner.0))?.add(lease.started_ms).map(drop)
    });
    Ok(write.await?)
}

async fn end_recoveries(connection: &mut SqliteConnection, jobs: &[JobId]) -> Result<(), Failure> {
    static DELETE: LazyLock<BulkStatement> =
        LazyLock::new(|| BulkStatement::new(1, "delete from recoveries where job in (select column1 from $rows)"));
    Ok(DELETE.run(connection, jobs, |job, places| places.add(job.0).map(drop)).await?)
}
