//! The Slurm loop: a level-triggered reconcile, one tick for all workflows.
//!
//! A tick reads the demand from the engine, polls Slurm when that is due, and closes the difference. `torc_core::planning`
//! decides. "Slurm did not answer" never means "the allocation is gone". An allocation is recorded before `sbatch` is called, so
//! that no crash leads to a second one.

mod clusters;
mod credential_files;
mod login;
mod poll;
mod reconcile;
mod submit;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, Notify};
use tokio_util::sync::CancellationToken;
use torc_api::allocation::OrphanReport;
use torc_api::api::SlurmCluster;
use torc_api::cluster::{LOCAL, SlurmClusterSpec};
use torc_api::recovery::SyncStatusRequest;
use torc_api::wire::RunnerScope;
use torc_core::engine::Observation;
use torc_core::ids::WorkflowId;

use crate::credentials::CredentialIssuer;
use crate::engine::{EngineError, EngineHandle};
use crate::leadership::Leadership;
use reconcile::SlurmContext;

/// Minimum interval between ticks: a tick handles all changes since the last one.
const MIN_TICK_INTERVAL: Duration = Duration::from_millis(500);
/// Divisor of the poll interval while an allocation seems to be about to end.
const ENDING_POLL_DIVISOR: u32 = 3;
/// Interval between polls while waiting for allocations to end.
const RELEASE_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Timeout for queries of the user: a Slurm that hangs must not delay them further.
const SLURM_TIMEOUT: Duration = Duration::from_secs(20);
/// Time to wait for the allocations of a deleted workflow.
pub(crate) const RELEASE_TIMEOUT: Duration = Duration::from_secs(60);

/// Settings of the Slurm loop.
#[derive(Clone, Debug)]
pub struct SlurmConfig {
    /// The workflows that get allocations; `None` for a process that only polls and cancels on request.
    pub serves: Option<RunnerScope>,
    /// Interval between polls of Slurm while there are allocations.
    pub poll: Duration,
    /// The runner program and its first arguments.
    pub runner: Vec<String>,
    /// The folder of the credential files.
    pub folder: PathBuf,
    /// The folder of job logs, in the folder of the workflow.
    pub output_dir: PathBuf,
    /// The folder with a subfolder for each Secret that has keys for ssh.
    pub ssh_secrets: Option<PathBuf>,
    /// Replacements of Slurm's programs, by the names of their variables.
    pub replaced: BTreeMap<String, String>,
}

/// A handle to the Slurm loop.
#[derive(Clone)]
pub struct SlurmHandle {
    context: Arc<Mutex<SlurmContext>>,
    engine: EngineHandle,
    wake: Arc<Notify>,
    has_loop: bool,
    /// `true` while all allocations are being canceled.
    is_winding_down: Arc<AtomicBool>,
}

impl SlurmHandle {
    /// Starts the loop, if this process serves workflows.
    pub(crate) fn start(
        engine: EngineHandle,
        config: SlurmConfig,
        credentials: CredentialIssuer,
        leadership: Leadership,
        stop: CancellationToken,
    ) -> (Self, Option<tokio::task::JoinHandle<()>>) {
        let has_loop = config.serves.is_some();
        let wake = engine.changed();
        let poll = config.poll;
        let is_winding_down = Arc::new(AtomicBool::new(false));
        let instants = Arc::new(Instant::now);
        let context =
            SlurmContext::new(engine.clone(), config, credentials, leadership, Arc::clone(&is_winding_down), instants);
        let context = Arc::new(Mutex::new(context));
        let handle = Self { context: Arc::clone(&context), engine, wake: Arc::clone(&wake), has_loop, is_winding_down };
        let task = has_loop.then(|| tokio::spawn(run(context, wake, poll, stop)));
        (handle, task)
    }

    /// Polls Slurm for everything and returns the lost allocations and jobs of a workflow. `request` reports on the runners.
    pub async fn find_orphans(
        &self,
        workflow: WorkflowId,
        request: SyncStatusRequest,
    ) -> Result<OrphanReport, EngineError> {
        let poll = async { self.context.lock().await.find_orphans(workflow, request.clone()).await };
        if let Ok(report) = tokio::time::timeout(SLURM_TIMEOUT, poll).await {
            return report;
        }
        // A call hangs: nothing is known about allocations. Jobs of ended runners are found without Slurm.
        let needs = self.engine.slurm_needs(None).await?;
        let rows = needs.iter().flat_map(|one| &one.allocations).map(|one| &one.row);
        let unanswered = rows.map(|row| Observation::unanswered((row.workflow, row.id))).collect();
        self.engine.sync_status(unanswered, workflow, request).await
    }

    /// Cancels the allocations of stopped workflows. Without a loop, this runs a tick now.
    pub async fn reconcile_now(&self) -> Result<(), EngineError> {
        if self.has_loop {
            self.wake.notify_one();
            return Ok(());
        }
        if self.engine.live_allocations(None).await? > 0 {
            let poll = async { self.context.lock().await.tick(true).await };
            // A call hangs: the next tick asks Slurm again.
            if let Ok(polled) = tokio::time::timeout(SLURM_TIMEOUT, poll).await {
                polled?;
            }
        }
        Ok(())
    }

    /// Returns whether a loop manages allocations.
    pub fn has_loop(&self) -> bool {
        self.has_loop
    }

    /// Returns the number of allocations that have not ended.
    pub async fn live_allocations(&self) -> Result<usize, EngineError> {
        self.engine.live_allocations(None).await
    }

    /// Waits until an ended workflow has no more allocations, or the timeout.
    pub async fn await_release(&self, workflow: WorkflowId, timeout: Duration) -> Result<(), EngineError> {
        self.until_gone(Some(workflow), timeout).await
    }

    /// Cancels all allocations of the store and waits until they are gone, or the timeout. Submits nothing more.
    pub async fn drain(&self, timeout: Duration) -> Result<(), EngineError> {
        // A tick may be hanging in a call of Slurm: it is not waited for.
        self.is_winding_down.store(true, Ordering::Relaxed);
        self.until_gone(None, timeout).await
    }

    async fn until_gone(&self, workflow: Option<WorkflowId>, timeout: Duration) -> Result<(), EngineError> {
        let start = Instant::now();
        while self.engine.live_allocations(workflow).await? > 0 && start.elapsed() < timeout {
            let poll = async { self.context.lock().await.tick(true).await };
            match tokio::time::timeout(SLURM_TIMEOUT, poll).await {
                Ok(polled) => polled?,
                // A call hangs. A tick may be interrupted anywhere: the next one finds out how far it came.
                Err(_) => return Ok(()),
            };
            if self.engine.live_allocations(workflow).await? > 0 {
                tokio::time::sleep(RELEASE_POLL_INTERVAL).await;
            }
        }
        Ok(())
    }

    /// Queries the partitions of a cluster for its status.
    pub(crate) async fn probe(&self, name: &str) -> Result<(), EngineError> {
        let greeting = async { self.context.lock().await.probe(name).await };
        // A cluster that hangs has no status.
        tokio::time::timeout(SLURM_TIMEOUT, greeting).await.unwrap_or(Ok(()))
    }

    /// Returns the described Slurm clusters, and that of this machine if it was used.
    pub async fn clusters(&self) -> Result<Vec<SlurmCluster>, EngineError> {
        let mut clusters = self.engine.clusters().await?;
        // A tick may hang in a call of Slurm. The clusters are then returned without their status, instead of waiting
        // for the lock.
        let Ok(context) = self.context.try_lock() else { return Ok(clusters) };
        for cluster in &mut clusters {
            cluster.status = context.cluster_status(&cluster.name);
        }
        if !clusters.iter().any(|cluster| cluster.name == LOCAL)
            && let Some(status) = context.cluster_status(LOCAL)
        {
            let (name, spec) = (LOCAL.to_owned(), SlurmClusterSpec::default());
            clusters.push(SlurmCluster { name, generation: 0, creation_time: None, spec, status: Some(status) });
        }
        clusters.sort_by(|left, right| left.name.cmp(&right.name));
        Ok(clusters)
    }
}

/// Returns the time until the next poll: shorter while an allocation seems to be about to end.
fn poll_interval(poll: Duration, is_left: bool) -> Duration {
    if is_left { poll / ENDING_POLL_DIVISOR } else { poll }
}

/// Runs a tick after changes of the engine, and when a poll of Slurm is due.
async fn run(context: Arc<Mutex<SlurmContext>>, wake: Arc<Notify>, poll: Duration, stop: CancellationToken) {
    let mut polled: Option<Instant> = None;
    let mut interval = poll;
    loop {
        let is_due = polled.is_none_or(|polled| polled.elapsed() >= interval);
        match context.lock().await.tick(is_due).await {
            Ok(is_left) => interval = poll_interval(poll, is_left),
            Err(error) => tracing::warn!(%error, "allocations were not reconciled"),
        }
        if is_due {
            polled = Some(Instant::now());
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(MIN_TICK_INTERVAL) => {}
        }
        let rest = polled.map_or(Duration::ZERO, |polled| interval.saturating_sub(polled.elapsed()));
        tokio::select! {
            () = stop.cancelled() => return,
            () = wake.notified() => {}
            () = tokio::time::sleep(rest.max(MIN_TICK_INTERVAL)) => {}
        }
    }
}
