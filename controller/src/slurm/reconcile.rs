//! One tick: compares the demand of workflows with what Slurm reports, and closes the difference.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use torc_api::allocation::OrphanReport;
use torc_api::cluster::{SlurmClusterSpec, SlurmClusterStatus};
use torc_api::failure::RecoveryPolicy;
use torc_api::recovery::SyncStatusRequest;
use torc_api::workflow::WorkflowSpec;
use torc_core::backoff::Backoff;
use torc_core::engine::{AllocationKey, Observation};
use torc_core::ids::WorkflowId;
use torc_core::planning::allocation_plan::{AllocationPlan, ClusterView, WorkflowDemand, plan_allocations};
use torc_core::planning::orphans::SlurmObservation;
use torc_core::planning::partition::PartitionLimits;
use torc_core::rows::AllocationRow;
use torc_slurm::error::SlurmError;
use torc_slurm::sbatch;
use tracing::Instrument as _;

use super::SlurmConfig;
use super::clusters::{ClusterConnection, Clusters};
use super::credential_files::{CredentialFiles, CredentialTarget};
use super::poll::{self, MissingSince, PollResult};
use super::submit::{self, slurm_job_name};
use crate::clock::{self, InstantSource};
use crate::credentials::CredentialIssuer;
use crate::engine::{EngineError, EngineHandle};
use crate::leadership::Leadership;
use crate::metrics::Reconciler;

/// Back-off after the first refusal; each further one is twice as long.
const INITIAL_BACKOFF: Duration = Duration::from_secs(10);
/// Maximum back-off after Slurm has refused submissions.
const MAX_BACKOFF: Duration = Duration::from_secs(300);

/// Context of the Slurm loop.
pub(super) struct SlurmContext {
    engine: EngineHandle,
    config: SlurmConfig,
    credential_files: CredentialFiles,
    /// Checked before each call that cannot be undone: another server may use the same Slurm.
    leadership: Leadership,
    clusters: Clusters,
    unseen: MissingSince,
    backoffs: HashMap<WorkflowId, SubmitBackoff>,
    /// Partitions that the engine has, by cluster: they limit what a retry may request.
    noted_partitions: HashMap<String, Vec<PartitionLimits>>,
    /// `true` while all allocations are being canceled.
    is_winding_down: Arc<AtomicBool>,
    instants: InstantSource,
}

/// Back-off after Slurm has refused submissions of a workflow.
struct SubmitBackoff {
    count: u32,
    until: Instant,
    /// The message of Slurm.
    message: String,
    /// The refused document: a changed one is tried at once.
    spec: Arc<WorkflowSpec>,
}

/// Continues from the times in the store: a process that polls once could otherwise never conclude that an allocation is gone.
fn remember_unseen(seen: &mut [Observation], rows: &[AllocationRow], now_ms: i64) {
    let is_missing =
        |one: &&mut Observation| matches!(one.observation, SlurmObservation::Unseen | SlurmObservation::Recorded(_));
    for one in seen.iter_mut().filter(is_missing) {
        let row = rows.iter().find(|row| (row.workflow, row.id) == one.key);
        if let Some(since_ms) = row.and_then(|row| row.unseen_since_ms) {
            one.unseen_ms = one.unseen_ms.max(now_ms.saturating_sub(since_ms));
        }
    }
}

/// Returns the back-off after this number of consecutive refusals.
fn delay_after(count: u32, first: Duration) -> Duration {
    Backoff::new(first, MAX_BACKOFF).after(count)
}

type ClusterSpecs = BTreeMap<String, SlurmClusterSpec>;

impl SlurmContext {
    pub fn new(
        engine: EngineHandle,
        config: SlurmConfig,
        credentials: CredentialIssuer,
        leadership: Leadership,
        is_winding_down: Arc<AtomicBool>,
        instants: InstantSource,
    ) -> Self {
        let (replaced, secrets) = (config.replaced.clone(), config.ssh_secrets.clone());
        let clusters = Clusters::new(replaced, secrets, engine.shared_metrics(), Arc::clone(&instants));
        Self {
            engine,
            config,
            credential_files: CredentialFiles::new(credentials),
            leadership,
            clusters,
            unseen: MissingSince::new(),
            backoffs: HashMap::new(),
            noted_partitions: HashMap::new(),
            is_winding_down,
            instants,
        }
    }

    /// Detects the partitions of a cluster.
    pub async fn probe(&mut self, name: &str) -> Result<(), EngineError> {
        let described = self.described().await?;
        if let Some(cluster) = self.clusters.get(name, described.get(name)) {
            cluster.detect().await;
        }
        Ok(())
    }

    pub fn cluster_status(&self, name: &str) -> Option<SlurmClusterStatus> {
        self.clusters.status(name)
    }

    /// Polls Slurm if that is due, and then closes the difference between demand and allocations.
    /// Returns whether a runner seems to have left, so that Slurm should be polled soon.
    pub async fn tick(&mut self, is_due: bool) -> Result<bool, EngineError> {
        let start = Instant::now();
        let ticked = self.apply_plans(is_due).instrument(tracing::info_span!("allocation_tick")).await;
        self.engine.metrics().reconciled(Reconciler::Allocation, start.elapsed());
        ticked
    }

    async fn apply_plans(&mut self, is_due: bool) -> Result<bool, EngineError> {
        let mut needs = self.engine.slurm_needs(self.config.serves.clone()).await?;
        if needs.is_empty() || !self.leadership.is_held() {
            return Ok(false);
        }
        let described = self.described().await?;
        if is_due && needs.iter().any(|one| !one.allocations.is_empty()) {
            let observations = self.observe(&needs, &described).await;
            self.engine.observe_allocations(observations).await?;
            self.resolve_submissions(&needs, &described).await?;
            let after = self.engine.slurm_needs(self.config.serves.clone()).await?;
            self.remove_unused_credentials(&needs, &after, &described).await?;
            self.renew_credentials(&after, &described).await?;
            needs = after;
        }
        let (mut is_left, workflows) = (false, needs.len());
        for mut one in needs {
            one.is_canceled |= self.is_winding_down.load(Ordering::Relaxed);
            self.reconcile(&one, &described).await?;
            is_left |= one.allocations.iter().any(|one| one.is_left());
        }
        tracing::debug!(workflows, polled = is_due, "allocations reconciled");
        Ok(is_left)
    }

    /// Polls Slurm for all allocations, and returns the lost allocations and jobs of a workflow.
    pub async fn find_orphans(
        &mut self,
        workflow: WorkflowId,
        request: SyncStatusRequest,
    ) -> Result<OrphanReport, EngineError> {
        let needs = self.engine.slurm_needs(None).await?;
        let described = self.described().await?;
        let observations = self.observe(&needs, &described).await;
        self.engine.sync_status(observations, workflow, request).await
    }

    async fn described(&self) -> Result<ClusterSpecs, EngineError> {
        Ok(self.engine.clusters().await?.into_iter().map(|cluster| (cluster.name, cluster.spec)).collect())
    }

    /// Polls all allocations, cluster by cluster. Allocations of a cluster without a description stay as they are.
    async fn observe(&mut self, needs: &[WorkflowDemand], described: &ClusterSpecs) -> Vec<Observation> {
        let mut observations = Vec::new();
        for (name, rows) in by_cluster(needs) {
            match self.clusters.get(&name, described.get(&name)) {
                Some(cluster) => {
                    let mut seen = poll::poll_allocations(cluster, &rows, &mut self.unseen).await;
                    remember_unseen(&mut seen, &rows, clock::now().wall_ms);
                    observations.extend(seen);
                }
                None => observations.extend(rows.iter().map(|row| Observation::unanswered((row.workflow, row.id)))),
            }
        }
        self.unseen.retain(|id, _| observations.iter().any(|seen| seen.key.1 == *id));
        observations
    }

    /// Removes the credential files of workflows whose allocations have all ended.
    async fn remove_unused_credentials(
        &mut self,
        before: &[WorkflowDemand],
        after: &[WorkflowDemand],
        described: &ClusterSpecs,
    ) -> Result<(), EngineError> {
        let (before, after) = (targets_of(before), targets_of(after));
        let identity = self.engine.identity().await?;
        for to in before.difference(&after) {
            if let Some(cluster) = self.clusters.get(&to.cluster, described.get(&to.cluster)) {
                self.credential_files.withdraw(to, &identity, cluster, &self.config).await;
            }
        }
        Ok(())
    }

    /// Renews the credential files: an allocation may wait for long and its runners may run for long.
    async fn renew_credentials(
        &mut self,
        needs: &[WorkflowDemand],
        described: &ClusterSpecs,
    ) -> Result<(), EngineError> {
        // Without a loop this process has no address for runners.
        let identity = self.engine.identity().await?;
        for to in targets_of(needs.iter().filter(|one| one.is_served)) {
            let Some(cluster) = self.clusters.get(&to.cluster, described.get(&to.cluster)) else { continue };
            let now_seconds = clock::now().wall_ms / 1_000;
            if let Err(error) = self.credential_files.deliver(&to, &identity, cluster, &self.config, now_seconds).await
            {
                tracing::warn!(workflow = to.workflow.0, %error, "runner credentials were not renewed");
            }
        }
        Ok(())
    }

    /// Resolves submissions whose result is unknown.
    async fn resolve_submissions(
        &mut self,
        needs: &[WorkflowDemand],
        described: &ClusterSpecs,
    ) -> Result<(), EngineError> {
        let identity = self.engine.identity().await?;
        for (name, rows) in by_cluster(needs) {
            let Some(cluster) = self.clusters.get(&name, described.get(&name)) else { continue };
            let named = |row: &AllocationRow| {
                let home = needs.iter().find(|one| one.workflow == row.workflow);
                home.map_or_else(String::new, |home| slurm_job_name(row, home, &identity))
            };
            let found = poll::search(cluster, &rows, &named, &identity, clock::now().wall_ms).await;
            for (key, found) in found {
                match found {
                    PollResult::There(number, copies) => {
                        let is_ours = self.engine.allocation_submitted(key, number.clone()).await?;
                        let unwanted = copies.into_iter().chain((!is_ours).then_some(number));
                        let unwanted: Vec<String> = unwanted.collect();
                        if let Some(cluster) =
                            self.clusters.get(&name, described.get(&name)).filter(|_| !unwanted.is_empty())
                        {
                            cancel(cluster, &unwanted).await;
                        }
                    }
                    PollResult::Lost => {
                        let message = "its submission did not create a Slurm job; it is submitted again".to_owned();
                        self.engine.allocation_not_submitted(key, message, false).await?;
                    }
                    PollResult::Unclear => {}
                }
            }
        }
        Ok(())
    }

    async fn reconcile(&mut self, needs: &WorkflowDemand, described: &ClusterSpecs) -> Result<(), EngineError> {
        let name = needs.cluster.clone().unwrap_or_default();
        let mut known = None;
        let (mut plan, unreachable) = match self.clusters.get(&name, described.get(&name)) {
            Some(cluster) => {
                let account = cluster.spec.default_account.clone();
                let has_ready = needs.kinds.iter().any(|kind| kind.ready > 0);
                let wants_partitions = needs.is_served && !is_over(needs) && (has_ready || may_escalate(needs));
                let partitions = if wants_partitions {
                    cluster.partitions().await.map(<[_]>::to_vec)
                } else {
                    cluster.known_partitions()
                };
                let view = ClusterView { partitions: partitions.as_deref(), account: account.as_deref() };
                let planned = (plan_allocations(needs, view, clock::now().wall_ms), cluster.unreachable());
                known = partitions;
                planned
            }
            None => {
                let mut plan = plan_allocations(needs, ClusterView::default(), clock::now().wall_ms);
                plan.summary.refused = needs.cluster.as_ref().map(|name| format!("there is no SlurmCluster '{name}'"));
                plan.intend.clear();
                plan.begin.clear();
                (plan, None)
            }
        };
        if let Some(partitions) = known {
            self.set_known_partitions(name, partitions).await?;
        }
        plan.summary.unreachable = unreachable;
        if self.backoffs.get(&needs.workflow).is_some_and(|backoffs| !Arc::ptr_eq(&backoffs.spec, &needs.spec)) {
            self.backoffs.remove(&needs.workflow);
        }
        if let Some(backoffs) = self.backoffs.get(&needs.workflow) {
            plan.summary.refused = Some(backoffs.message.clone());
        }
        self.cancel(needs, &plan, described).await?;
        self.submit_missing(needs, plan, described).await
    }

    /// Passes changed partitions of a cluster to the engine.
    async fn set_known_partitions(
        &mut self,
        cluster: String,
        partitions: Vec<PartitionLimits>,
    ) -> Result<(), EngineError> {
        if self.noted_partitions.get(&cluster) == Some(&partitions) {
            return Ok(());
        }
        self.engine.set_known_partitions(cluster.clone(), partitions.clone()).await?;
        self.noted_partitions.insert(cluster, partitions);
        Ok(())
    }

    async fn cancel(
        &mut self,
        needs: &WorkflowDemand,
        plan: &AllocationPlan,
        described: &ClusterSpecs,
    ) -> Result<(), EngineError> {
        if plan.cancel.is_empty() {
            return Ok(());
        }
        let keys: Vec<AllocationKey> = plan.cancel.iter().map(|id| (needs.workflow, *id)).collect();
        let rows = self.engine.cancel_allocations(keys).await?;
        let mut by_cluster: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for row in rows {
            by_cluster.entry(row.cluster).or_default().extend(row.slurm_job_id);
        }
        for (name, numbers) in by_cluster {
            if let Some(cluster) = self.clusters.get(&name, described.get(&name)) {
                cancel(cluster, &numbers).await;
            }
        }
        Ok(())
    }

    /// Submits missing allocations, and those that Slurm has refused, unless their back-off is not over.
    async fn submit_missing(
        &mut self,
        needs: &WorkflowDemand,
        plan: AllocationPlan,
        described: &ClusterSpecs,
    ) -> Result<(), EngineError> {
        let is_held_off = self.backoffs.get(&needs.workflow).is_some_and(|backoffs| (self.instants)() < backoffs.until);
        let AllocationPlan { intend, begin, executed, summary, cancel } = plan;
        let mut rows = Vec::new();
        if !is_held_off && needs.is_served && !is_over(needs) {
            for one in &needs.allocations {
                let row = &one.row;
                let is_unasked = row.slurm_job_id.is_none() && row.called_ms.is_none() && row.canceled_ms.is_none();
                if is_unasked && !cancel.contains(&row.id) {
                    rows.extend(self.engine.record_sbatch_call((row.workflow, row.id)).await?);
                }
            }
            if !intend.is_empty() || !executed.is_empty() {
                rows.extend(self.engine.record_submissions(needs.workflow, intend, begin, executed).await?);
            }
        }
        self.engine.set_allocation_summary(needs.workflow, summary).await?;
        if rows.is_empty() {
            return Ok(());
        }
        // Allocations that were just recorded count as well when runners are limited.
        let needs = self
            .engine
            .slurm_needs(self.config.serves.clone())
            .await?
            .into_iter()
            .find(|one| one.workflow == needs.workflow);
        let Some(needs) = needs else { return Ok(()) };
        let mut refused: Option<String> = None;
        for row in rows {
            let key = (row.workflow, row.id);
            match &refused {
                // Slurm would refuse the others as well: they are submitted later.
                Some(message) => self.engine.allocation_not_submitted(key, message.clone(), false).await?,
                None => refused = self.submit(&needs, &row, described).await?,
            }
        }
        Ok(())
    }

    /// Submits one allocation and returns the message of Slurm if it was refused.
    async fn submit(
        &mut self,
        needs: &WorkflowDemand,
        row: &AllocationRow,
        described: &ClusterSpecs,
    ) -> Result<Option<String>, EngineError> {
        let key = (row.workflow, row.id);
        let identity = self.engine.identity().await?;
        let Some(cluster) = self.clusters.get(&row.cluster, described.get(&row.cluster)) else {
            let message = format!("there is no SlurmCluster '{}'", row.cluster);
            self.engine.allocation_not_submitted(key, message.clone(), false).await?;
            return Ok(Some(message));
        };
        if !self.leadership.is_held() {
            let message = "this server may no longer be the leader".to_owned();
            self.engine.allocation_not_submitted(key, message.clone(), false).await?;
            return Ok(Some(message));
        }
        let to = target_of(needs, row);
        let delivered =
            self.credential_files.deliver(&to, &identity, cluster, &self.config, clock::now().wall_ms / 1_000).await;
        let answer = match delivered {
            Ok(file) => submit::submit(cluster, &self.config, &file, needs, row, &identity).await,
            Err(error) => Err(error),
        };
        match answer {
            Ok(number) => {
                self.backoffs.remove(&needs.workflow);
                if !self.engine.allocation_submitted(key, number.clone()).await?
                    && let Some(cluster) = self.clusters.get(&row.cluster, described.get(&row.cluster))
                {
                    // The workflow was deleted during the call.
                    cancel(cluster, &[number]).await;
                }
                Ok(None)
            }
            Err(error) => {
                let maybe_delivered = matches!(error, SlurmError::NoAnswer { maybe_delivered: true, .. });
                let message = error.to_string();
                self.engine.allocation_not_submitted(key, message.clone(), maybe_delivered).await?;
                let count = self.backoffs.remove(&needs.workflow).map_or(1, |backoffs| backoffs.count + 1);
                let until = (self.instants)() + delay_after(count, self.config.poll.min(INITIAL_BACKOFF));
                let spec = Arc::clone(&needs.spec);
                self.backoffs.insert(needs.workflow, SubmitBackoff { count, until, message: message.clone(), spec });
                Ok(Some(message))
            }
        }
    }
}

/// Cancels jobs of Slurm. The next poll cancels those that remain again.
async fn cancel(cluster: &mut ClusterConnection, numbers: &[String]) {
    let answer = cluster.ask(&sbatch::cancel(numbers.iter().map(String::as_str))).await;
    if let Err(error) = sbatch::read_canceled(answer) {
        tracing::warn!(slurm_jobs = numbers.join(","), %error, "Slurm jobs were not canceled");
    }
}

/// Returns whether jobs of a workflow may be retried with more memory or time: the partitions must be known before.
fn may_escalate(needs: &WorkflowDemand) -> bool {
    needs.spec.recovery.as_ref().and_then(|recovery| recovery.policy) == Some(RecoveryPolicy::Auto)
}

/// Returns whether a workflow needs no more allocations, because it is canceled or has finished.
fn is_over(needs: &WorkflowDemand) -> bool {
    needs.is_canceled || needs.finished_ms.is_some()
}

fn target_of(needs: &WorkflowDemand, row: &AllocationRow) -> CredentialTarget {
    let (cluster, workflow, working_dir) = (row.cluster.clone(), row.workflow, needs.working_dir.clone());
    CredentialTarget { cluster, workflow, working_dir }
}

/// Returns the targets of all live allocations: their runners read credential files now or later.
fn targets_of<'a>(needs: impl IntoIterator<Item = &'a WorkflowDemand>) -> BTreeSet<CredentialTarget> {
    let all = needs.into_iter().flat_map(|one| one.allocations.iter().map(move |live| target_of(one, &live.row)));
    all.collect()
}

/// Returns the live allocations of each cluster.
fn by_cluster(needs: &[WorkflowDemand]) -> BTreeMap<String, Vec<AllocationRow>> {
    let mut rows: BTreeMap<String, Vec<AllocationRow>> = BTreeMap::new();
    for one in needs.iter().flat_map(|one| &one.allocations) {
        rows.entry(one.row.cluster.clone()).or_default().push(one.row.clone());
    }
    rows
}

#[cfg(test)]
mod tests;
