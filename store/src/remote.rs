//! Machines reached over SSH: kept for people, unknown to the engine.

use sqlx::SqliteConnection;
use torc_api::remote::RemoteWorker;
use torc_core::ids::WorkflowId;
use torc_core::time::rfc3339;

use crate::error::Failure;

/// The workers of a workflow, in the order in which they were added.
pub(crate) async fn list(
    connection: &mut SqliteConnection,
    workflow: WorkflowId,
) -> Result<Vec<RemoteWorker>, Failure> {
    let records = sqlx::query!(
        "select address, folder, added_ms from remote_workers where workflow = ? order by added_ms, address",
        workflow.0
    )
    .fetch_all(connection)
    .await?;
    let worker = |address, folder, added_ms| RemoteWorker { address, folder, creation_time: Some(rfc3339(added_ms)) };
    Ok(records.into_iter().map(|record| worker(record.address, record.folder, record.added_ms)).collect())
}

/// Adds workers; those that are there keep their folders unless another is said. A workflow that is gone gets none.
pub(crate) async fn add(
    connection: &mut SqliteConnection,
    workflow: WorkflowId,
    workers: &[RemoteWorker],
    now_ms: i64,
) -> Result<(), Failure> {
    for worker in workers {
        let (id, address, folder) = (workflow.0, worker.address.as_str(), worker.folder.as_deref());
        sqlx::query!(
            "insert into remote_workers (workflow, address, folder, added_ms)
            select id, ?, ?, ? from workflows where id = ?
            on conflict (workflow, address) do update set folder = coalesce(excluded.folder, folder)",
            address,
            folder,
            now_ms,
            id
        )
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
}

/// Forgets a worker; says whether it was there.
pub(crate) async fn remove(
    connection: &mut SqliteConnection,
    workflow: WorkflowId,
    address: &str,
) -> Result<bool, Failure> {
    let id = workflow.0;
    let removed = sqlx::query!("delete from remote_workers where workflow = ? and address = ?", id, address)
        .execute(connection)
        .await?;
    Ok(removed.rows_affected() > 0)
}
