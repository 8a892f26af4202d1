//! One tick: what workflows need and have, what Slurm says, and the difference closed.

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
use torc_core::planning::course::{AllocationPlan, ClusterView, WorkflowDemand, course};
use torc_core::planning::orphans::SlurmObservation;
use torc_core::planning::partition::PartitionLimits;
use torc_core::rows::AllocationRow;
use torc_slurm::sbatch;
use torc_slurm::trouble::SlurmError;
use tracing::Instrument as _;

use super::SlurmConfig;
use super::clusters::{Cluster, Clusters};
use super::credential_files::{CredentialFiles, CredentialTarget};
use super::poll::{self, MissingSince, PollResult};
use super::submit::{self, slurm_job_name};
use crate::clock::{self, Moments};
use crate::credentials::CredentialIssuer;
use crate::engine::{EngineError, EngineHandle};
use crate::leadership::Leadership;
use crate::metrics::Reconciler;

/// The first pause after a refusal; each further one is twice as long.
const INITIAL_BACKOFF: Duration = Duration::from_secs(10);
/// No pause is longer.
const MAX_BACKOFF: Duration = Duration::from_secs(300);

/// Context of the Slurm loop.
pub(super) struct SlurmContext {
    engine: EngineHandle,
    config: SlurmConfig,
    credential_files: CredentialFiles,
    /// Whether anybody else could be talking with Slurm about the same.
    leadership: Leadership,
    clusters: Clusters,
    unseen: MissingSince,
    backoffs: HashMap<WorkflowId, SubmitBackoff>,
    /// Partitions that the engine knows of, by cluster: a retry gets no more than they have.
    noted_partitions: HashMap<String, Vec<PartitionLimits>>,
    /// Everything is to go.
    is_winding_down: Arc<AtomicBool>,
    moments: Moments,
}

/// The pause after Slurm has refused a workflow's submissions.
struct SubmitBackoff {
    count: u32,
    until: Instant,
    /// In its own words.
    sentence: String,
    /// The document that it refused: another one is another question.
    spec: Arc<WorkflowSpec>,
}

/// Continues counting from the store: a process that asks Slurm only once would never be certain that an allocation is gone.
fn remember_unseen(seen: &mut [Observation], rows: &[AllocationRow], now_ms: i64) {
    let is_missing =
        |one: &&mut Observation| matches!(one.sighting, SlurmObservation::Unseen | SlurmObservation::Recorded(_));
    for one in seen.iter_mut().filter(is_missing) {
        let row = rows.iter().find(|row| (row.workflow, row.id) == one.key);
        if let Some(since_ms) = row.and_then(|row| row.unseen_since_ms) {
            one.unseen_ms = one.unseen_ms.max(now_ms.saturating_sub(since_ms));
        }
    }
}

/// Returns the pause after so many refusals in a row.
fn pause_after(count: u32, first: Duration) -> Duration {
    Backoff::new(first, MAX_BACKOFF).after(count)
}

type Described = BTreeMap<String, SlurmClusterSpec>;

impl SlurmContext {
    pub fn new(
        engine: EngineHandle,
        config: SlurmConfig,
        credentials: CredentialIssuer,
        leadership: Leadership,
        is_winding_down: Arc<AtomicBool>,
        moments: Moments,
    ) -> Self {
        let (replaced, secrets) = (config.replaced.clone(), config.ssh_secrets.clone());
        let clusters = Clusters::new(replaced, secrets, engine.shared_metrics(), Arc::clone(&moments));
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
            moments,
        }
    }

    /// Asks a cluster for its partitions.
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

    /// What Slurm says is taken in if that is due; then the difference between what should be and what is gets closed.
    /// Says whether somebody seems to have gone, so that Slurm should be looked at soon.
    pub async fn tick(&mut self, is_due: bool) -> Result<bool, EngineError> {
        let start = Instant::now();
        let ticked = self.close_difference(is_due).instrument(tracing::info_span!("allocation_tick")).await;
        self.engine.metrics().reconciled(Reconciler::Allocation, start.elapsed());
        ticked
    }

    async fn close_difference(&mut self, is_due: bool) -> Result<bool, EngineError> {
        let mut needs = self.engine.slurm_needs(self.config.serves.clone()).await?;
        if needs.is_empty() || !self.leadership.is_held() {
            return Ok(false);
        }
        let described = self.described().await?;
        if is_due && needs.iter().any(|one| !one.allocations.is_empty()) {
            let observations = self.observe(&needs, &described).await;
            self.engine.observe_allocations(observations).await?;
            self.settle_doubts(&needs, &described).await?;
            let after = self.engine.slurm_needs(self.config.serves.clone()).await?;
            self.tidy_up(&needs, &after, &described).await?;
            self.keep_up_to_date(&after, &described).await?;
            needs = after;
        }
        let mut is_left = false;
        for mut one in needs {
            one.is_canceled |= self.is_winding_down.load(Ordering::Relaxed);
            self.reconcile(&one, &described).await?;
            is_left |= one.allocations.iter().any(|one| one.is_left());
        }
        Ok(is_left)
    }

    /// One look at everything that Slurm knows of.
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

    async fn described(&self) -> Result<Described, EngineError> {
        Ok(self.engine.clusters().await?.into_iter().map(|cluster| (cluster.name, cluster.spec)).collect())
    }

    /// What Slurm says about every allocation, cluster by cluster. Of a cluster that nobody describes any more nothing is known.
    async fn observe(&mut self, needs: &[WorkflowDemand], described: &Described) -> Vec<Observation> {
        let mut observations = Vec::new();
        for (name, rows) in by_cluster(needs) {
            match self.clusters.get(&name, described.get(&name)) {
                Some(cluster) => {
                    let mut seen = poll::look(cluster, &rows, &mut self.unseen).await;
                    remember_unseen(&mut seen, &rows, clock::now().wall_ms);
                    observations.extend(seen);
                }
                None => observations.extend(rows.iter().map(|row| Observation::unanswered((row.workflow, row.id)))),
            }
        }
        self.unseen.retain(|id, _| observations.iter().any(|seen| seen.key.1 == *id));
        observations
    }

    /// Nobody reads any more what was handed to the runners of allocations that are all over.
    async fn tidy_up(
        &mut self,
        before: &[WorkflowDemand],
        after: &[WorkflowDemand],
        described: &Described,
    ) -> Result<(), EngineError> {
        let (before, after) = (recipients(before), recipients(after));
        let identity = self.engine.identity().await?;
        for to in before.difference(&after) {
            if let Some(cluster) = self.clusters.get(&to.cluster, described.get(&to.cluster)) {
                self.credential_files.withdraw((to, &identity), cluster, &self.config).await;
            }
        }
        Ok(())
    }

    /// Allocations that wait for long, and runners that run for long, find what is good today.
    async fn keep_up_to_date(&mut self, needs: &[WorkflowDemand], described: &Described) -> Result<(), EngineError> {
        // Whoever only looks, or serves others, cannot be reached by these runners.
        let identity = self.engine.identity().await?;
        for to in recipients(needs.iter().filter(|one| one.is_served)) {
            let Some(cluster) = self.clusters.get(&to.cluster, described.get(&to.cluster)) else { continue };
            let now_seconds = clock::now().wall_ms / 1_000;
            if let Err(trouble) =
                self.credential_files.deliver((&to, &identity), cluster, &self.config, now_seconds).await
            {
                tracing::warn!(workflow = to.workflow.0, error = %trouble, "runner credentials were not renewed");
            }
        }
        Ok(())
    }

    /// Finds out what became of submissions that were cut short.
    async fn settle_doubts(&mut self, needs: &[WorkflowDemand], described: &Described) -> Result<(), EngineError> {
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
                        let sentence = "nothing came of its submission; it is submitted again".to_owned();
                        self.engine.allocation_not_submitted(key, sentence, false).await?;
                    }
                    PollResult::Unclear => {}
                }
            }
        }
        Ok(())
    }

    /// Closes the difference of one workflow.
    async fn reconcile(&mut self, needs: &WorkflowDemand, described: &Described) -> Result<(), EngineError> {
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
                let ground = ClusterView { partitions: partitions.as_deref(), account: account.as_deref() };
                let planned = (course(needs, ground, clock::now().wall_ms), cluster.unreachable());
                known = partitions;
                planned
            }
            None => {
                let mut plan = course(needs, ClusterView::default(), clock::now().wall_ms);
                plan.summary.refused = needs.cluster.as_ref().map(|name| format!("there is no SlurmCluster '{name}'"));
                plan.intend.clear();
                plan.begin.clear();
                (plan, None)
            }
        };
        if let Some(partitions) = known {
            self.note_partitions(name, partitions).await?;
        }
        plan.summary.unreachable = unreachable;
        if self.backoffs.get(&needs.workflow).is_some_and(|backoffs| !Arc::ptr_eq(&backoffs.spec, &needs.spec)) {
            self.backoffs.remove(&needs.workflow);
        }
        if let Some(backoffs) = self.backoffs.get(&needs.workflow) {
            plan.summary.refused = Some(backoffs.sentence.clone());
        }
        self.cancel(needs, &plan, described).await?;
        self.ask_for(needs, plan, described).await
    }

    /// Tells the engine what a cluster has, when that has changed.
    async fn note_partitions(&mut self, cluster: String, partitions: Vec<PartitionLimits>) -> Result<(), EngineError> {
        if self.noted_partitions.get(&cluster) == Some(&partitions) {
            return Ok(());
        }
        self.engine.note_partitions(cluster.clone(), partitions.clone()).await?;
        self.noted_partitions.insert(cluster, partitions);
        Ok(())
    }

    async fn cancel(
        &mut self,
        needs: &WorkflowDemand,
        plan: &AllocationPlan,
        described: &Described,
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

    /// Submits what is missing, and what Slurm has refused before, unless that was just now.
    async fn ask_for(
        &mut self,
        needs: &WorkflowDemand,
        plan: AllocationPlan,
        described: &Described,
    ) -> Result<(), EngineError> {
        let is_held_off = self.backoffs.get(&needs.workflow).is_some_and(|backoffs| (self.moments)() < backoffs.until);
        let AllocationPlan { intend, begin, executed, summary, cancel } = plan;
        let mut rows = Vec::new();
        if !is_held_off && needs.is_served && !is_over(needs) {
            for one in &needs.allocations {
                let row = &one.row;
                let is_unasked = row.slurm_job_id.is_none() && row.called_ms.is_none() && row.canceled_ms.is_none();
                if is_unasked && !cancel.contains(&row.id) {
                    rows.extend(self.engine.call_allocation((row.workflow, row.id)).await?);
                }
            }
            if !intend.is_empty() || !executed.is_empty() {
                rows.extend(self.engine.intend_allocations(needs.workflow, intend, (begin, executed)).await?);
            }
        }
        self.engine.set_allocation_summary(needs.workflow, summary).await?;
        if rows.is_empty() {
            return Ok(());
        }
        // What was just written down counts, too, when runners are told how many they are.
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
                // Slurm would say the same of the others: they are asked for together, later.
                Some(sentence) => self.engine.allocation_not_submitted(key, sentence.clone(), false).await?,
                None => refused = self.submit(&needs, &row, described).await?,
            }
        }
        Ok(())
    }

    /// Submits one; what Slurm said if nothing came of it.
    async fn submit(
        &mut self,
        needs: &WorkflowDemand,
        row: &AllocationRow,
        described: &Described,
    ) -> Result<Option<String>, EngineError> {
        let key = (row.workflow, row.id);
        let identity = self.engine.identity().await?;
        let Some(cluster) = self.clusters.get(&row.cluster, described.get(&row.cluster)) else {
            let sentence = format!("there is no SlurmCluster '{}'", row.cluster);
            self.engine.allocation_not_submitted(key, sentence.clone(), false).await?;
            return Ok(Some(sentence));
        };
        if !self.leadership.is_held() {
            let sentence = "this server may not be the one that leads".to_owned();
            self.engine.allocation_not_submitted(key, sentence.clone(), false).await?;
            return Ok(Some(sentence));
        }
        let to = recipient(needs, row);
        let delivered =
            self.credential_files.deliver((&to, &identity), cluster, &self.config, clock::now().wall_ms / 1_000).await;
        let answer = match delivered {
            Ok(file) => submit::submit(cluster, &self.config, &file, (needs, row), &identity).await,
            Err(trouble) => Err(trouble),
        };
        match answer {
            Ok(number) => {
                self.backoffs.remove(&needs.workflow);
                if !self.engine.allocation_submitted(key, number.clone()).await?
                    && let Some(cluster) = self.clusters.get(&row.cluster, described.get(&row.cluster))
                {
                    // Its workflow was deleted meanwhile.
                    cancel(cluster, &[number]).await;
                }
                Ok(None)
            }
            Err(trouble) => {
                let maybe_delivered = matches!(trouble, SlurmError::NoAnswer { maybe_delivered: true, .. });
                let sentence = trouble.to_string();
                self.engine.allocation_not_submitted(key, sentence.clone(), maybe_delivered).await?;
                let count = self.backoffs.remove(&needs.workflow).map_or(1, |backoffs| backoffs.count + 1);
                let until = (self.moments)() + pause_after(count, self.config.poll.min(INITIAL_BACKOFF));
                let spec = Arc::clone(&needs.spec);
                self.backoffs.insert(needs.workflow, SubmitBackoff { count, until, sentence: sentence.clone(), spec });
                Ok(Some(sentence))
            }
        }
    }
}

/// Asks Slurm to cancel jobs. What is still there later is asked for again.
async fn cancel(cluster: &mut Cluster, numbers: &[String]) {
    let answer = cluster.ask(&sbatch::cancel(numbers.iter().map(String::as_str))).await;
    if let Err(trouble) = sbatch::read_cancelled(answer) {
        tracing::warn!(slurm_jobs = numbers.join(","), error = %trouble, "Slurm jobs were not canceled");
    }
}

/// Its jobs may be retried with more memory or time, so what the cluster has matters before any of them is ready.
fn may_escalate(needs: &WorkflowDemand) -> bool {
    needs.spec.recovery.as_ref().and_then(|recovery| recovery.policy) == Some(RecoveryPolicy::Auto)
}

/// Nothing more will be to do for it.
fn is_over(needs: &WorkflowDemand) -> bool {
    needs.is_canceled || needs.finished_ms.is_some()
}

fn recipient(needs: &WorkflowDemand, row: &AllocationRow) -> CredentialTarget {
    let (cluster, workflow, working_dir) = (row.cluster.clone(), row.workflow, needs.working_dir.clone());
    CredentialTarget { cluster, workflow, working_dir }
}

/// Whose runners there are, or will be.
fn recipients<'a>(needs: impl IntoIterator<Item = &'a WorkflowDemand>) -> BTreeSet<CredentialTarget> {
    let all = needs.into_iter().flat_map(|one| one.allocations.iter().map(move |live| recipient(one, &live.row)));
    all.collect()
}

/// The live allocations of each cluster.
fn by_cluster(needs: &[WorkflowDemand]) -> BTreeMap<String, Vec<AllocationRow>> {
    let mut rows: BTreeMap<String, Vec<AllocationRow>> = BTreeMap::new();
    for one in needs.iter().flat_map(|one| &one.allocations) {
        rows.entry(one.row.cluster.clone()).or_default().push(one.row.clone());
    }
    rows
}

#[cfg(test)]
mod tests;
