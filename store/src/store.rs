//! The handle of an open store.

use std::collections::HashMap;
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

use crate::connection::{self, Reader, Writer};
use crate::error::{Failure, StoreError};
use crate::gc::{self, GcReport};
use crate::open::{self, OpenOptions};
use crate::query::events::{self, EventView};
use crate::query::jobs::{self, JobView};
use crate::query::results::{self, ResultView};
use crate::query::{allocations, audit, data, runners, slurm_stats};
use crate::{backup, leadership, load, remote, write};

/// An open store. Clones are the same store.
#[derive(Clone, Debug)]
pub struct Store {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    writer: Mutex<Writer>,
    /// Absent where the file system has no shared memory: then reads share the writer's connection.
    readers: Option<SqlitePool>,
}

/// Runs one query on a connection for readers.
macro_rules! read {
    ($store:ident, |$connection:ident| $query:expr) => {{
        let mut reader = $store.reader().await?;
        let $connection = reader.connection().await.map_err(|failure| $store.at(failure))?;
        $query.await.map_err(|failure| $store.at(failure))
    }};
}

/// Makes one change in a transaction of its own: durable, or without a trace.
macro_rules! change {
    ($store:ident, |$connection:ident| $change:expr) => {{
        let mut writer = $store.writer().await;
        let $connection = writer.begin().await.map_err(|failure| $store.at(failure))?;
        let changed = $change.await;
        writer.end(changed).await.map_err(|failure| $store.at(failure))
    }};
}

impl Store {
    /// Opens a store and keeps every other process out of it until it is closed or the process ends.
    pub async fn open(options: OpenOptions) -> Result<Self, StoreError> {
        let opened = open::open(&options).await?;
        let readers = (!opened.is_exclusive).then(|| connection::readers(&options.path));
        Ok(Self { inner: Arc::new(Inner { path: options.path, writer: Mutex::new(opened.writer), readers }) })
    }

    /// The database file.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Everything live.
    pub async fn load(&self) -> Result<Snapshot, StoreError> {
        let mut writer = self.writer().await;
        let connection = writer.connection().await.map_err(|failure| self.at(failure))?;
        load::load(connection).await.map_err(|failure| self.at(failure))
    }

    /// Writes a group of changes: durably and all of them, or none.
    pub async fn commit(&self, changes: &Changes) -> Result<(), StoreError> {
        if changes.is_empty() {
            return Ok(());
        }
        change!(self, |connection| write::write(connection, changes))
    }

    /// Writes something that changes nothing, durably: whether a disk that failed works again.
    pub async fn probe(&self) -> Result<(), StoreError> {
        change!(self, |connection| write::write(connection, &Changes::default()))
    }

    /// Jobs as they stand.
    pub async fn jobs(&self, filter: &JobFilter) -> Result<Page<JobView>, StoreError> {
        read!(self, |connection| jobs::list(connection, filter))
    }

    /// The names of jobs, removed ones too; numbers that no job has are left out.
    pub async fn job_names(&self, ids: &[JobId]) -> Result<HashMap<JobId, String>, StoreError> {
        read!(self, |connection| jobs::names(connection, ids))
    }

    /// Attempts that ended.
    pub async fn results(&self, filter: &ResultFilter<i64>) -> Result<Page<ResultView>, StoreError> {
        read!(self, |connection| results::list(connection, filter))
    }

    /// What Slurm's accounting said of steps.
    pub async fn slurm_stats(&self, filter: &SlurmStatsFilter<i64>) -> Result<Page<SlurmStats>, StoreError> {
        read!(self, |connection| slurm_stats::list(connection, filter))
    }

    /// What happened.
    pub async fn events(&self, filter: &EventFilter<i64>) -> Result<Page<EventView>, StoreError> {
        read!(self, |connection| events::list(connection, filter))
    }

    /// Who did what, each with its number.
    pub async fn audit(&self, filter: &AuditFilter) -> Result<Page<(i64, AuditRow)>, StoreError> {
        read!(self, |connection| audit::list(connection, filter))
    }

    /// Files as the jobs from one number to another saw them.
    pub async fn files(&self, workflow: WorkflowId, jobs: (JobId, JobId)) -> Result<Vec<FileRow>, StoreError> {
        read!(self, |connection| data::files(connection, workflow, jobs))
    }

    /// Data of a workflow, all or one.
    pub async fn user_data(&self, workflow: WorkflowId, name: Option<&str>) -> Result<Vec<UserDataRow>, StoreError> {
        read!(self, |connection| data::user_data(connection, workflow, name))
    }

    /// Runners.
    pub async fn runners(&self, filter: RunnerFilter) -> Result<Vec<RunnerRow>, StoreError> {
        read!(self, |connection| runners::list(connection, filter))
    }

    /// Slurm allocations.
    pub async fn allocations(&self, filter: &AllocationFilter<i64>) -> Result<Page<AllocationRow>, StoreError> {
        read!(self, |connection| allocations::list(connection, filter))
    }

    /// The machines of a workflow that are reached over SSH.
    pub async fn remote_workers(&self, workflow: WorkflowId) -> Result<Vec<RemoteWorker>, StoreError> {
        read!(self, |connection| remote::list(connection, workflow))
    }

    /// Adds machines to a workflow; those that are there keep their folders unless another is said.
    pub async fn add_remote_workers(
        &self,
        workflow: WorkflowId,
        workers: &[RemoteWorker],
        now_ms: i64,
    ) -> Result<(), StoreError> {
        change!(self, |connection| remote::add(connection, workflow, workers, now_ms))
    }

    /// Forgets a machine of a workflow; says whether it was there.
    pub async fn remove_remote_worker(&self, workflow: WorkflowId, address: &str) -> Result<bool, StoreError> {
        change!(self, |connection| remote::remove(connection, workflow, address))
    }

    /// Forgets what ended before a time and no longer counts; a dry run only says what that would be.
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

    /// Writes a complete, durable copy to a new file, while the store is in use.
    pub async fn backup(&self, to: &Path) -> Result<(), StoreError> {
        let mut reader = self.reader().await?;
        let connection = reader.connection().await.map_err(|failure| self.at(failure))?;
        backup::backup(connection, &self.inner.path, to).await
    }

    /// The last event that was told to Kubernetes.
    pub async fn told(&self) -> Result<i64, StoreError> {
        read!(self, |connection| leadership::told(connection))
    }

    /// Everything up to this event was told to Kubernetes.
    pub async fn note_told(&self, sequence: i64) -> Result<(), StoreError> {
        change!(self, |connection| leadership::note_told(connection, sequence))
    }

    /// Closes the store for all its clones and lets other processes have it.
    pub async fn close(self) -> Result<(), StoreError> {
        if let Some(readers) = &self.inner.readers {
            readers.close().await;
        }
        self.writer().await.close().await.map_err(|failure| self.at(failure))
    }

    async fn writer(&self) -> MutexGuard<'_, Writer> {
        self.inner.writer.lock().await
    }

    async fn reader(&self) -> Result<Reader<'_>, StoreError> {
        match &self.inner.readers {
            Some(readers) => match readers.acquire().await {
                Ok(connection) => Ok(Reader::Pooled(connection)),
                Err(sqlx::Error::PoolClosed) => Err(self.at(Failure::Closed)),
                Err(error) => Err(self.at(error.into())),
            },
            None => Ok(Reader::Shared(self.writer().await)),
        }
    }

    fn at(&self, failure: Failure) -> StoreError {
        failure.at(&self.inner.path)
    }
}

#[cfg(test)]
mod tests;
