//! The side of the controller that talks with Slurm: a level-triggered loop, one tick for all workflows.
//!
//! A tick asks the engine what workflows need and have, asks Slurm about what there is when that is due, and closes the
//! difference. It decides nothing: that is `torc_core::planning`. "Slurm did not answer" never means "gone". An allocation is
//! written down before `sbatch` is called, so that nobody asks for it twice, whoever dies when.

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

/// News of the engine are acted upon at most so often: a tick looks at all that came meanwhile.
const MIN_TICK_INTERVAL: Duration = Duration::from_millis(500);
/// Slurm is looked at so many times as often while an allocation seems to be about to end.
const ENDING_POLL_DIVISOR: u32 = 3;
/// Between two looks at allocations that are being waited for to go.
const RELEASE_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// A Slurm that has not answered for so long is not waited for by whoever wants to know how things stand.
const SLURM_TIMEOUT: Duration = Duration::from_secs(20);
/// How long allocations of a workflow that is deleted are waited for.
pub(crate) const RELEASE_TIMEOUT: Duration = Duration::from_secs(60);

/// How allocations are asked for.
#[derive(Clone, Debug)]
pub struct SlurmConfig {
    /// Whose workflows get allocations; none for a process that only looks and cancels when it is told to.
    pub serves: Option<RunnerScope>,
    /// Between two looks at Slurm while allocations live.
    pub poll: Duration,
    /// The program that runs in an allocation, and its first words.
    pub runner: Vec<String>,
    /// Where the files are that runners read their secrets from.
    pub folder: PathBuf,
    /// Where job logs go, in the folder of the workflow.
    pub output_dir: PathBuf,
    /// The folder with a folder for each Secret that has keys for ssh.
    pub ssh_secrets: Option<PathBuf>,
    /// Programs that stand in for Slurm's, by the names of the variables that say so.
    pub replaced: BTreeMap<String, String>,
}

/// The way to the loop.
#[derive(Clone)]
pub struct SlurmHandle {
    context: Arc<Mutex<SlurmContext>>,
    engine: EngineHandle,
    wake: Arc<Notify>,
    has_loop: bool,
    /// Everything is to go.
    is_winding_down: Arc<AtomicBool>,
}

impl SlurmHandle {
    /// Starts the loop, if this process was asked to serve somebody.
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
        let moments = Arc::new(Instant::now);
        let context =
            SlurmContext::new(engine.clone(), config, credentials, leadership, Arc::clone(&is_winding_down), moments);
        let context = Arc::new(Mutex::new(context));
        let handle = Self { context: Arc::clone(&context), engine, wake: Arc::clone(&wake), has_loop, is_winding_down };
        let task = has_loop.then(|| tokio::spawn(run(context, wake, poll, stop)));
        (handle, task)
    }

    /// One look at everything that Slurm knows of, now, and at what the request says of runners: what of a workflow is over or lost.
    pub async fn find_orphans(
        &self,
        workflow: WorkflowId,
        request: SyncStatusRequest,
    ) -> Result<OrphanReport, EngineError> {
        let look = async { self.context.lock().await.find_orphans(workflow, request.clone()).await };
        if let Ok(report) = tokio::time::timeout(SLURM_TIMEOUT, look).await {
            return report;
        }
        // A call hangs. Nothing is known of any allocation; jobs whose runners are gone can be found without Slurm.
        let needs = self.engine.slurm_needs(None).await?;
        let rows = needs.iter().flat_map(|one| &one.allocations).map(|one| &one.row);
        let unanswered = rows.map(|row| Observation::unanswered((row.workflow, row.id))).collect();
        self.engine.sync_status(unanswered, workflow, request).await
    }

    /// Something was stopped: its allocations go. Where nobody ticks this is done here and now.
    pub async fn reconcile_now(&self) -> Result<(), EngineError> {
        if self.has_loop {
            self.wake.notify_one();
            return Ok(());
        }
        if self.engine.live_allocations(None).await? > 0 {
            let look = async { self.context.lock().await.tick(true).await };
            // Where a call hangs, whoever ticks next asks Slurm again.
            if let Ok(looked) = tokio::time::timeout(SLURM_TIMEOUT, look).await {
                looked?;
            }
        }
        Ok(())
    }

    /// Whether allocations are looked after without anybody asking for it.
    pub fn has_loop(&self) -> bool {
        self.has_loop
    }

    /// How many allocations are not over.
    pub async fn live_allocations(&self) -> Result<usize, EngineError> {
        self.engine.live_allocations(None).await
    }

    /// Waits until a workflow that has ended has no allocations any more, for a while.
    pub async fn await_release(&self, workflow: WorkflowId, patience: Duration) -> Result<(), EngineError> {
        self.until_gone(Some(workflow), patience).await
    }

    /// Cancels every allocation of the store and waits until they are gone, for a while. Nothing is submitted any more.
    pub async fn drain(&self, patience: Duration) -> Result<(), EngineError> {
        // A tick may be under way, and its Slurm may hang: it is not waited for.
        self.is_winding_down.store(true, Ordering::Relaxed);
        self.until_gone(None, patience).await
    }

    async fn until_gone(&self, workflow: Option<WorkflowId>, patience: Duration) -> Result<(), EngineError> {
        let start = Instant::now();
        while self.engine.live_allocations(workflow).await? > 0 && start.elapsed() < patience {
            let look = async { self.context.lock().await.tick(true).await };
            match tokio::time::timeout(SLURM_TIMEOUT, look).await {
                Ok(looked) => looked?,
                // A call hangs. A tick can be cut short anywhere: whoever ticks next finds out how far it came.
                Err(_) => return Ok(()),
            };
            if self.engine.live_allocations(workflow).await? > 0 {
                tokio::time::sleep(RELEASE_POLL_INTERVAL).await;
            }
        }
        Ok(())
    }

    /// Asks a cluster what it has, so that there is something to say of it.
    pub(crate) async fn probe(&self, name: &str) -> Result<(), EngineError> {
        let greeting = async { self.context.lock().await.probe(name).await };
        // One that hangs has nothing to say.
        tokio::time::timeout(SLURM_TIMEOUT, greeting).await.unwrap_or(Ok(()))
    }

    /// Slurm clusters: those that somebody has described, and the one of this machine if it was spoken with.
    pub async fn clusters(&self) -> Result<Vec<SlurmCluster>, EngineError> {
        let mut clusters = self.engine.clusters().await?;
        // A tick that waits for Slurm is not waited for: what is known of clusters can be asked again.
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

/// How long Slurm is left alone: shorter while an allocation seems to be about to end.
fn pause_between_looks(poll: Duration, is_left: bool) -> Duration {
    if is_left { poll / ENDING_POLL_DIVISOR } else { poll }
}

/// Ticks when the engine has news, and often enough to see what Slurm does.
async fn run(context: Arc<Mutex<SlurmContext>>, wake: Arc<Notify>, poll: Duration, stop: CancellationToken) {
    let mut looked: Option<Instant> = None;
    let mut pause = poll;
    loop {
        let is_due = looked.is_none_or(|looked| looked.elapsed() >= pause);
        match context.lock().await.tick(is_due).await {
            Ok(is_left) => pause = pause_between_looks(poll, is_left),
            Err(error) => tracing::warn!(%error, "allocations were not reconciled"),
        }
        if is_due {
            looked = Some(Instant::now());
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(MIN_TICK_INTERVAL) => {}
        }
        let rest = looked.map_or(Duration::ZERO, |looked| pause.saturating_sub(looked.elapsed()));
        tokio::select! {
            () = stop.cancelled() => return,
            () = wake.notified() => {}
            () = tokio::time::sleep(rest.max(MIN_TICK_INTERVAL)) => {}
        }
    }
}
