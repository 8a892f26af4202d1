//! Writes Slurm allocations and clusters. There are few of them, and they are written whole.

use std::collections::HashSet;
use std::sync::LazyLock;

use sqlx::SqliteConnection;
use torc_core::ids::WorkflowId;
use torc_core::rows::{AllocationRow, Changes};

use crate::bulk::BulkStatement;
use crate::error::QueryError;
use crate::records::to_json;

/// Writes allocations and clusters. Rows of a workflow that the same group deletes are left out.
pub(super) async fn write(
    connection: &mut SqliteConnection,
    changes: &Changes,
    gone: &HashSet<WorkflowId>,
) -> Result<(), QueryError> {
    let rows: Vec<&AllocationRow> = changes.allocations.iter().filter(|row| !gone.contains(&row.workflow)).collect();
    write_allocations(connection, &rows).await?;
    for row in &changes.clusters {
        sqlx::query!(
            "insert or replace into slurm_clusters (name, document, generation, created_ms) values (?, ?, ?, ?)",
            row.name,
            row.document,
            row.generation,
            row.created_ms
        )
        .execute(&mut *connection)
        .await?;
    }
    for name in &changes.removed_clusters {
        sqlx::query!("delete from slurm_clusters where name = ?", name).execute(&mut *connection).await?;
    }
    Ok(())
}

/// Deletes the rows of a workflow.
pub(super) async fn delete_workflow(connection: &mut SqliteConnection, workflow: WorkflowId) -> Result<(), QueryError> {
    let id = workflow.0;
    sqlx::query!("delete from allocations where workflow = ?", id).execute(&mut *connection).await?;
    Ok(())
}

async fn write_allocations(connection: &mut SqliteConnection, rows: &[&AllocationRow]) -> Result<(), QueryError> {
    static INSERT: LazyLock<BulkStatement> = LazyLock::new(|| {
        BulkStatement::new(
            2,
            "insert or replace into allocations (id, data) select * from $rows where column1 is not null",
        )
    });
    Ok(INSERT.run(connection, rows, |row, binder| binder.add(row.id.0)?.add(to_json(row)?).map(drop)).await?)
}
