//! Writes actions and recovery scripts. There are few of them, and they are written whole.

use std::collections::HashSet;
use std::sync::LazyLock;

use sqlx::SqliteConnection;
use torc_core::ids::{JobId, WorkflowId};
use torc_core::rows::{ActionRow, Changes, RecoveryRow};

use crate::bulk::BulkStatement;
use crate::error::QueryError;
use crate::records::to_json;

/// Writes actions and recoveries. Rows of a workflow that the same group deletes are left out.
pub(super) async fn write(
    connection: &mut SqliteConnection,
    changes: &Changes,
    gone: &HashSet<WorkflowId>,
) -> Result<(), QueryError> {
    let actions: Vec<&ActionRow> = changes.actions.iter().filter(|row| !gone.contains(&row.workflow)).collect();
    write_actions(connection, &actions).await?;
    remove_actions(connection, &changes.removed_actions).await?;
    let recoveries: Vec<&RecoveryRow> = changes.recoveries.iter().filter(|row| !gone.contains(&row.workflow)).collect();
    write_recoveries(connection, &recoveries).await?;
    end_recoveries(connection, &changes.ended_recoveries).await
}

/// Deletes the rows of a workflow.
pub(super) async fn delete_workflow(connection: &mut SqliteConnection, workflow: WorkflowId) -> Result<(), QueryError> {
    let id = workflow.0;
    sqlx::query!("delete from actions where workflow = ?", id).execute(&mut *connection).await?;
    sqlx::query!("delete from recoveries where workflow = ?", id).execute(&mut *connection).await?;
    Ok(())
}

async fn write_actions(connection: &mut SqliteConnection, rows: &[&ActionRow]) -> Result<(), QueryError> {
    static INSERT: LazyLock<BulkStatement> = LazyLock::new(|| {
        BulkStatement::new(2, "insert or replace into actions (id, data) select * from $rows where column1 is not null")
    });
    Ok(INSERT.run(connection, rows, |row, binder| binder.add(row.id.0)?.add(to_json(row)?).map(drop)).await?)
}

async fn remove_actions(connection: &mut SqliteConnection, ids: &[JobId]) -> Result<(), QueryError> {
    static DELETE: LazyLock<BulkStatement> =
        LazyLock::new(|| BulkStatement::new(1, "delete from actions where id in (select column1 from $rows)"));
    Ok(DELETE.run(connection, ids, |id, binder| binder.add(id.0).map(drop)).await?)
}

async fn write_recoveries(connection: &mut SqliteConnection, rows: &[&RecoveryRow]) -> Result<(), QueryError> {
    static INSERT: LazyLock<BulkStatement> = LazyLock::new(|| {
        BulkStatement::new(
            2,
            "insert or replace into recoveries (job, data) select * from $rows where column1 is not null",
        )
    });
    Ok(INSERT.run(connection, rows, |row, binder| binder.add(row.job.0)?.add(to_json(row)?).map(drop)).await?)
}

async fn end_recoveries(connection: &mut SqliteConnection, jobs: &[JobId]) -> Result<(), QueryError> {
    static DELETE: LazyLock<BulkStatement> =
        LazyLock::new(|| BulkStatement::new(1, "delete from recoveries where job in (select column1 from $rows)"));
    Ok(DELETE.run(connection, jobs, |job, binder| binder.add(job.0).map(drop)).await?)
}
