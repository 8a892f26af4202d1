//! The handle of an open store.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sqlx::SqlitePool;
use tokio::sync::{Mutex, MutexGuard};
use torc_api::api::Page;
use torc_api::filter::{
    AllocationFilter, AuditFilter, EventFilter, JobFilter, ResultFilter, RunnerFilter, SlurmStatsFilter,
};
use torc_api::remote::RemoteWorker;
use torc_api::slurm_stats::SlurmStats;
use torc_core::ids::{JobId, WorkflowId};
use torc_core::rows::{AllocationRow, AuditRow, Changes, FileRow, RunnerRow, Snapshot, UserDataRow};

use crate::connection::{self, ReadConnection, WriteConnection};
use crate::error::{QueryError, StoreError};
use crate::gc::{self, GcReport};
use crate::open::{self, OpenOptions};
use crate::query::events::{self, EventView};
use crate::query::jobs::{self, JobView};
use crate::query::results::{self, ResultView};
use crate::query::{allocations, audit, data, runners, slurm_stats};
use crate::{backup, leadership, load, remote, write};

/// An open store. Clones share it.
#[derive(Clone, Debug)]
pub struct Store {
    inner: Arc<SharedStore>,
}

#[derive(Debug)]
struct SharedStore {
    path: PathBuf,
    writer: Mutex<WriteConnection>,
    /// Absent where the file system has no shared memory: then reads use the writer's connection.
    readers: Option<SqlitePool>,
}

/// Runs a query on a connection for reading.
macro_rules! read {
    ($store:ident, |$connection:ident| $query:expr) => {{
        let mut reader = $store.reader().await?;
        let $connection = reader.connection().await.map_err(|failure| $store.at(failure))?;
        $query.await.map_err(|failure| $store.at(failure))
    }};
}

/// Runs a change in a transaction of its own.
macro_rules! change {
    ($store:ident, |$connection:ident| $change:expr) => {{
        let mut writer = $store.writer().await;
        let $connection = writer.begin().await.map_err(|failure| $store.at(failure))?;
        let changed = $change.await;
        writer.end(changed).await.map_err(|failure| $store.at(failure))
    }};
}

impl Store {
    /// Opens a store and locks it until it is closed or the process ends.
    pub async fn open(options: OpenOptions) -> Result<Self, StoreError> {
        let opened = open::open(&options).await?;
        let readers = (!opened.is_exclusive).then(|| connection::readers(&options.path));
        Ok(Self { inner: Arc::new(SharedStore { path: options.path, writer: Mutex::new(opened.writer), readers }) })
    }

    /// Returns the path of the database file.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Reads the live state.
    pub async fn load(&self) -> Result<Snapshot, StoreError> {
        let mut writer = self.writer().await;
        let connection = writer.connection().await.map_err(|failure| self.at(failure))?;
        load::load(connection).await.map_err(|failure| self.at(failure))
    }

    /// Writes a group of changes in one durable transaction.
    pub async fn commit(&self, changes: &Changes) -> Result<(), StoreError> {
        if changes.is_empty() {
            return Ok(());
        }
        change!(self, |connection| write::write(connection, changes))
    }

    /// Commits an empty transaction, to check whether a failed disk works again.
    pub async fn probe(&self) -> Result<(), StoreError> {
        change!(self, |connection| write::write(connection, &Changes::default()))
    }

    /// Returns a page of jobs.
    pub async fn jobs(&self, filter: &JobFilter) -> Result<Page<JobView>, StoreError> {
        read!(self, |connection| jobs::list(connection, filter))
    }

    /// Returns the names of jobs, including removed ones. Unknown numbers are left out.
    pub async fn job_names(&self, ids: &[JobId]) -> Result<HashMap<JobId, String>, StoreError> {
        read!(self, |connection| jobs::names(connection, ids))
    }

    /// Returns a page of results.
    pub async fn results(&self, filter: &ResultFilter<i64>) -> Result<Page<ResultView>, StoreError> {
        read!(self, |connection| results::list(connection, filter))
    }

    /// Returns a page of Slurm's accounting of steps.
    pub async fn slurm_stats(&self, filter: &SlurmStatsFilter<i64>) -> Result<Page<SlurmStats>, StoreError> {
        read!(self, |connection| slurm_stats::list(connection, filter))
    }

    /// Returns a page of events.
    pub async fn events(&self, filter: &EventFilter<i64>) -> Result<Page<EventView>, StoreError> {
        read!(self, |connection| events::list(connection, filter))
    }

    /// Returns a page of the audit log, each entry with its sequence number.
    pub async fn audit(&self, filter: &AuditFilter) -> Result<Page<(i64, AuditRow)>, StoreError> {
        read!(self, |connection| audit::list(connection, filter))
    }

    /// Returns the files as a range of jobs saw them.
    pub async fn files(&self, workflow: WorkflowId, jobs: RangeInclusive<JobId>) -> Result<Vec<FileRow>, StoreError> {
        read!(self, |connection| data::files(connection, workflow, jobs))
    }

    /// Returns the user data of a workflow, all or one.
    pub async fn user_data(&self, workflow: WorkflowId, name: Option<&str>) -> Result<Vec<UserDataRow>, StoreError> {
        read!(self, |connection| data::user_data(connection, workflow, name))
    }

    pub async fn runners(&self, filter: RunnerFilter) -> Result<Vec<RunnerRow>, StoreError> {
        read!(self, |connection| runners::list(connection, filter))
    }

    /// Returns a page of Slurm allocations.
    pub async fn allocations(&self, filter: &AllocationFilter<i64>) -> Result<Page<AllocationRow>, StoreError> {
        read!(self, |connection| allocations::list(connection, filter))
    }

    /// Returns the remote workers of a workflow.
    pub async fn remote_workers(&self, workflow: WorkflowId) -> Result<Vec<RemoteWorker>, StoreError> {
        read!(self, |connection| remote::list(connection, workflow))
    }

    /// Adds remote workers to a workflow. An existing worker keeps the values that the new entry leaves out.
    pub async fn add_remote_workers(
        &self,
        workflow: WorkflowId,
        workers: &[RemoteWorker],
        now_ms: i64,
    ) -> Result<(), StoreError> {
        change!(self, |connection| remote::add(connection, workflow, workers, now_ms))
    }

    /// Removes a remote worker. Returns whether it existed.
    pub async fn remove_remote_worker(&self, workflow: WorkflowId, address: &str) -> Result<bool, StoreError> {
        change!(self, |connection| remote::remove(connection, workflow, address))
    }

    /// Deletes superseded and old rows that ended before a time. A dry run only returns the report.
    pub async fn gc(&self, before_ms: i64, dry_run: bool) -> Result<GcReport, StoreError> {
        let mut writer = self.writer().await;
        let connection = writer.begin().await.map_err(|failure| self.at(failure))?;
        let collected = gc::collect(connection, before_ms).await;
        if dry_run && let Ok(report) = collected {
            writer.discard().await.map_err(|failure| self.at(failure))?;
            return Ok(report);
        }
        writer.end(collected).await.map_err(|failure| self.at(failure))
    }

    /// Writes a complete, durable copy to a new file while the store is in use.
    pub async fn backup(&self, to: &Path) -> Result<(), StoreError> {
        let mut reader = self.reader().await?;
        let connection = reader.connection().await.map_err(|failure| self.at(failure))?;
        backup::backup(connection, &self.inner.path, to).await
    }

    /// Returns the last event that was published to Kubernetes.
    pub async fn event_cursor(&self) -> Result<i64, StoreError> {
        read!(self, |connection| leadership::event_cursor(connection))
    }

    /// Records that all events up to `sequence` were published to Kubernetes.
    pub async fn set_event_cursor(&self, sequence: i64) -> Result<(), StoreError> {
        change!(self, |connection| leadership::set_event_cursor(connection, sequence))
    }

    /// Closes the store for all its clones and releases its lock.
    pub async fn close(self) -> Result<(), StoreError> {
        if let Some(readers) = &self.inner.readers {
            readers.close().await;
        }
        self.writer().await.close().await.map_err(|failure| self.at(failure))
    }

    async fn writer(&self) -> MutexGuard<'_, WriteConnection> {
        self.inner.writer.lock().await
    }

    async fn reader(&self) -> Result<ReadConnection<'_>, StoreError> {
        match &self.inner.readers {
            Some(readers) => match readers.acquire().await {
                Ok(connection) => Ok(ReadConnection::Pooled(connection)),
                Err(sqlx::Error::PoolClosed) => Err(self.at(QueryError::Closed)),
                Err(error) => Err(self.at(error.into())),
            },
            None => Ok(ReadConnection::Shared(self.writer().await)),
        }
    }

    fn at(&self, failure: QueryError) -> StoreError {
        failure.at(&self.inner.path)
    }
}

#[cfg(test)]
mod tests;
