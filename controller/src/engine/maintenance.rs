//! Maintenance of the store, remote workers, and the event cursor.

use torc_api::api;
use torc_api::remote::{RemoteWorker, WorkerAddress};
use torc_core::ids::WorkflowId;

use super::{EngineError, EngineHandle};
use crate::{clock, views};

impl EngineHandle {
    /// Returns the last event that was published to Kubernetes.
    pub(crate) async fn event_cursor(&self) -> Result<i64, EngineError> {
        Ok(self.store.event_cursor().await?)
    }

    /// Records that all events up to `sequence` were published to Kubernetes.
    pub(crate) async fn set_event_cursor(&self, sequence: i64) -> Result<(), EngineError> {
        Ok(self.store.set_event_cursor(sequence).await?)
    }

    /// Deletes superseded results and old events.
    pub async fn gc(&self, request: &api::GcRequest) -> Result<api::GcResponse, EngineError> {
        let before_ms = clock::now().wall_ms - request.older_than_seconds.saturating_mul(1_000);
        let report = self.store.gc(before_ms, request.dry_run).await?;
        if !request.dry_run {
            let forgotten = report.allocations.clone();
            self.write(move |engine, _| {
                engine.forget_allocations(&forgotten);
                Ok(())
            })
            .await?;
        }
        Ok(views::gc(report))
    }

    /// Returns the remote workers of a workflow.
    pub async fn remote_workers(&self, id: WorkflowId) -> Result<Vec<RemoteWorker>, EngineError> {
        Ok(self.store.remote_workers(id).await?)
    }

    /// Adds remote workers to a workflow and returns all of them.
    pub async fn add_remote_workers(
        &self,
        id: WorkflowId,
        workers: &[RemoteWorker],
    ) -> Result<Vec<RemoteWorker>, EngineError> {
        for worker in workers {
            let parsed: Result<WorkerAddress, _> = worker.address.parse();
            parsed.map_err(|error| EngineError::bad_request(format!("worker '{}': {error}", worker.address)))?;
        }
        self.store.add_remote_workers(id, workers, clock::now().wall_ms).await?;
        self.audit_only().await?;
        Ok(self.store.remote_workers(id).await?)
    }

    /// Removes a remote worker from a workflow.
    pub async fn remove_remote_worker(&self, id: WorkflowId, address: &str) -> Result<(), EngineError> {
        let was_there = self.store.remove_remote_worker(id, address).await?;
        self.audit_only().await?;
        if was_there { Ok(()) } else { Err(EngineError::no_worker(address)) }
    }

    /// Writes a copy of the store to `to`.
    pub async fn backup(&self, to: &std::path::Path) -> Result<(), EngineError> {
        self.audit_only().await?;
        Ok(self.store.backup(to).await?)
    }
}
