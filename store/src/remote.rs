//! Remote workers. The engine does not know them.

use sqlx::SqliteConnection;
use torc_api::remote::RemoteWorker;
use torc_core::ids::WorkflowId;
use torc_core::time::rfc3339;

use crate::error::QueryError;

/// Returns the workers of a workflow, in the order in which they were added.
pub(crate) async fn list(
    connection: &mut SqliteConnection,
    workflow: WorkflowId,
) -> Result<Vec<RemoteWorker>, QueryError> {
    let records = sqlx::query!(
        "select address, folder, remote_torc, added_ms from remote_workers where workflow = ? order by added_ms, address",
        workflow.0
    )
    .fetch_all(connection)
    .await?;
    let workers = records.into_iter().map(|record| RemoteWorker {
        address: record.address,
        folder: record.folder,
        remote_torc: record.remote_torc,
        creation_time: Some(rfc3339(record.added_ms)),
    });
    Ok(workers.collect())
}

/// Adds workers. An existing worker keeps the values that the new entry leaves out. A deleted workflow gets none.
pub(crate) async fn add(
    connection: &mut SqliteConnection,
    workflow: WorkflowId,
    workers: &[RemoteWorker],
    now_ms: i64,
) -> Result<(), QueryError> {
    for worker in workers {
        let (id, address) = (workflow.0, worker.address.as_str());
        let (folder, remote_torc) = (worker.folder.as_deref(), worker.remote_torc.as_deref());
        sqlx::query!(
            "insert into remote_workers (workflow, address, folder, remote_torc, added_ms)
            select id, ?, ?, ?, ? from workflows where id = ?
            on conflict (workflow, address) do update set folder = coalesce(excluded.folder, folder),
                remote_torc = coalesce(excluded.remote_torc, remote_torc)",
            address,
            folder,
            remote_torc,
            now_ms,
            id
        )
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
}

/// Removes a worker. Returns whether it existed.
pub(crate) async fn remove(
    connection: &mut SqliteConnection,
    workflow: WorkflowId,
    address: &str,
) -> Result<bool, QueryError> {
    let id = workflow.0;
    let removed = sqlx::query!("delete from remote_workers where workflow = ? and address = ?", id, address)
        .execute(connection)
        .await?;
    Ok(removed.rows_affected() > 0)
}
