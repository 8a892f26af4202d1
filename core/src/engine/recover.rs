//! Commands for failed jobs: recover them, decide about those that need a manual decision, correct requirements.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};

use torc_api::allocation::OrphanedJob;
use torc_api::event_reason::EventReason;
use torc_api::recovery::{
    CorrectResourcesReport, Correction, FailureClass, RecoverReport, RecoveredJob, RecoveryDecision, RegenerateReport,
};
use torc_api::state::{Cause, JobState};
use torc_api::wire::FinishedAttempt;

use super::regenerate::Regenerate;
use super::reports::lost_attempt;
use super::tx::Tx;
use super::workflow::Workflow;
use super::{CommandError, Engine};
use crate::expanded::Requirements;
use crate::explain::raised;
use crate::failure::{
    Evidence, ManualDecision, NodeShape, ObservedJob, RecoveryOptions, correct, diagnose, manual::decide,
};
use crate::ids::{JobId, Now, WorkflowId};
use crate::job::{Ending, JobEvent};
use crate::planning::partition::Partition;
use crate::rows::ResultRow;

/// The latest result of each job that has one.
pub type LatestResults = HashMap<JobId, ResultRow>;

/// A recovery on request.
#[derive(Clone, Copy, Debug)]
pub struct Recover<'a> {
    /// The latest result of each failed job.
    pub latest: &'a LatestResults,
    /// Options of the request.
    pub options: RecoveryOptions,
    /// Partitions of the workflow's cluster; what the owner of the store knows counts when empty.
    pub partitions: &'a [Partition],
    /// Allocations that are planned for the jobs that are still to run.
    pub regenerate: Option<Regenerate<'a>>,
    /// Jobs that a preview takes for lost.
    pub lost: &'a [OrphanedJob],
}

/// A failed job and what is done about it.
struct JobRecovery {
    job: u32,
    report: RecoveredJob,
    requirements: Option<Requirements>,
}

impl Engine {
    /// Returns what a recovery would do: it is carried out on a copy of the workflow.
    pub fn recover_preview(
        &self,
        id: WorkflowId,
        wanted: Recover<'_>,
        now: Now,
    ) -> Result<RecoverReport, CommandError> {
        let mut copy = self.copy_of(id)?;
        let tx = &mut copy.begin(now);
        let latest = copy.assume_lost(id, wanted, tx)?;
        let decided = self.decide_about_failed(copy.workflow(id)?, Recover { latest: &latest, ..wanted })?;
        let report = copy.carry_out_recovery(id, decided, wanted.regenerate, tx)?;
        let preview = |planned| RegenerateReport { dry_run: true, allocations: Vec::new(), ..planned };
        Ok(RecoverReport { dry_run: true, regenerated: report.regenerated.map(preview), ..report })
    }

    /// Retries failed jobs, each with more of what it lacked, and plans allocations for them if that is wanted. No other job's
    /// requirements change.
    pub fn recover(&mut self, id: WorkflowId, wanted: Recover<'_>, tx: &mut Tx) -> Result<RecoverReport, CommandError> {
        let decided = self.decide_about_failed(self.workflow(id)?, wanted)?;
        self.carry_out_recovery(id, decided, wanted.regenerate, tx)
    }

    /// Records jobs as lost, and returns the latest results with theirs.
    fn assume_lost<'a>(
        &mut self,
        id: WorkflowId,
        wanted: Recover<'a>,
        tx: &mut Tx,
    ) -> Result<Cow<'a, LatestResults>, CommandError> {
        for lost in wanted.lost {
            let workflow = self.workflow(id)?;
            let Some(job) = workflow.graph.find(&lost.job) else { continue };
            if matches!(workflow.graph.job(job).state(), JobState::Leased | JobState::Running) {
                let target = workflow.job_target(job);
                let Some(lease) = workflow.current_lease(target) else { continue };
                let report = lost_attempt(lease.key, lease.started_ms, "", tx.now);
                self.end_lease(target, &FinishedAttempt { cause: Some(lost.cause), ..report }, lease.runner, tx);
            }
        }
        let mut latest = Cow::Borrowed(wanted.latest);
        let results = std::mem::take(&mut tx.changes.rows().results);
        if !results.is_empty() {
            latest.to_mut().extend(results.into_iter().map(|row| (row.job, row)));
        }
        Ok(latest)
    }

    fn decide_about_failed(&self, workflow: &Workflow, wanted: Recover<'_>) -> Result<Vec<JobRecovery>, CommandError> {
        workflow.check_that_nothing_runs()?;
        if wanted.regenerate.is_some() {
            workflow.may_be_regenerated()?;
        }
        let is_failed = |job: &u32| {
            let state = workflow.graph.job(*job).state();
            matches!(state, JobState::Failed | JobState::Terminated | JobState::PendingFailed)
        };
        let failed = workflow.graph.all().filter(is_failed);
        Ok(failed.map(|job| self.decide_about(workflow, job, wanted)).collect())
    }

    fn decide_about(&self, workflow: &Workflow, job: u32, wanted: Recover<'_>) -> JobRecovery {
        let record = workflow.graph.job(job);
        let needs = &workflow.graph.profile(job).requirements;
        let evidence = Evidence::of_result(needs, wanted.latest.get(&record.id()));
        let cause = diagnose(&evidence);
        let nodes = match cause {
            Cause::OutOfMemory | Cause::Timeout => self.nodes_after_recovery(workflow, job, wanted),
            _ => Vec::new(),
        };
        let (decision, requirements, reason) = match decide(&evidence, wanted.options, &nodes) {
            ManualDecision::Retry => (RecoveryDecision::Retry, None, None),
            ManualDecision::RetryWith(requirements) => (RecoveryDecision::Retry, Some(requirements), None),
            ManualDecision::Leave(limit) => (RecoveryDecision::Leave, None, limit.map(|limit| limit.to_string())),
        };
        let report = RecoveredJob {
            job: workflow.graph.name(job).to_owned(),
            attempt: record.attempt(),
            return_code: evidence.return_code,
            cause,
            decision,
            raised: requirements.as_ref().map_or_else(Vec::new, |more| raised(needs, more)),
            reason,
        };
        JobRecovery { job, report, requirements }
    }

    /// Returns the nodes that a job could get after this recovery.
    fn nodes_after_recovery(&self, workflow: &Workflow, job: u32, wanted: Recover<'_>) -> Vec<NodeShape> {
        let is_for_allocations = workflow.graph.profile(job).labels.is_empty();
        match wanted.regenerate.filter(|_| is_for_allocations) {
            Some(plan) => {
                let mut nodes = NodeShape::of_partitions(plan.partitions, plan.request.partition.as_deref());
                for node in &mut nodes {
                    node.seconds = node.seconds.min(plan.seconds.unwrap_or(i64::MAX));
                }
                nodes
            }
            None if is_for_allocations && workflow.sizes_itself() && !wanted.partitions.is_empty() => {
                NodeShape::of_partitions(wanted.partitions, None)
            }
            None => self.nodes_for(workflow, job),
        }
    }

    fn carry_out_recovery(
        &mut self,
        id: WorkflowId,
        decided: Vec<JobRecovery>,
        regenerate: Option<Regenerate<'_>>,
        tx: &mut Tx,
    ) -> Result<RecoverReport, CommandError> {
        let workflow = self.workflow_mut(id)?;
        for one in &decided {
            if let Some(requirements) = &one.requirements {
                workflow.graph.set_requirements(one.job, requirements, tx);
            }
        }
        let retried = retried(&decided);
        let count = retried.len();
        let affected = if retried.is_empty() { 0 } else { self.reset(id, retried, tx).len() };
        if affected > 0 {
            self.session.workflows.insert(id);
            let failed = if count == 1 { "1 failed job is".to_owned() } else { format!("{count} failed jobs are") };
            let all = if affected == 1 { "1 job".to_owned() } else { format!("{affected} jobs") };
            let message = format!("{failed} retried, {all} in all");
            tx.event(Some(id), EventReason::RecoveryStarted, message);
        }
        let regenerated = match regenerate {
            Some(plan) => Some(self.regenerate(id, plan, tx)?).filter(|planned| planned.pending_jobs > 0),
            None => None,
        };
        let jobs = decided.into_iter().map(|one| one.report).collect();
        Ok(RecoverReport { dry_run: false, jobs, again: affected as i64, regenerated })
    }

    /// Returns a state with a copy of one workflow, to find out what a command would do.
    pub(super) fn copy_of(&self, id: WorkflowId) -> Result<Self, CommandError> {
        let workflow = self.workflow(id)?.without(&BTreeSet::new());
        Ok(Self {
            workflows: [(id, workflow)].into(),
            live: self.live.iter().copied().filter(|live| *live == id).collect(),
            session: self.session.clone(),
            last: self.last,
            ..Self::default()
        })
    }

    /// A person decides about failed jobs that wait for that. Returns how many jobs that concerns.
    pub fn classify(
        &mut self,
        id: WorkflowId,
        references: &[String],
        class: FailureClass,
        tx: &mut Tx,
    ) -> Result<i64, CommandError> {
        let workflow = self.workflow_mut(id)?;
        let jobs = workflow.waiting_for_decision(references)?;
        let count = jobs.len() as i64;
        match class {
            FailureClass::Retry => {
                self.reset(id, jobs, tx);
                self.session.workflows.insert(id);
            }
            FailureClass::Fail => {
                for job in jobs {
                    // The state was checked, so this is always legal.
                    if workflow.transition(job, JobEvent::Ended(Ending::Failed), tx).is_ok() {
                        workflow.settle_dependents(job, tx);
                    }
                }
                self.wake_version += 1;
            }
        }
        let word = if class == FailureClass::Retry { "tried again" } else { "failed" };
        tx.event(Some(id), EventReason::FailuresDecided, format!("{count} jobs are {word}: a person said so"));
        Ok(count)
    }

    /// Requirements that do not fit what was observed of the jobs that have them. Changes nothing.
    pub fn correction_preview(
        &self,
        id: WorkflowId,
        references: &[String],
        (latest, may_reduce): (&LatestResults, bool),
    ) -> Result<CorrectResourcesReport, CommandError> {
        let found = self.mismatches(id, references, latest, may_reduce)?;
        Ok(CorrectResourcesReport { dry_run: true, corrections: found.iter().map(ResourceMismatch::report).collect() })
    }

    /// Corrects them, for the next attempt of each of these jobs.
    pub fn correct_resources(
        &mut self,
        id: WorkflowId,
        references: &[String],
        (latest, may_reduce): (&LatestResults, bool),
        tx: &mut Tx,
    ) -> Result<CorrectResourcesReport, CommandError> {
        let found = self.mismatches(id, references, latest, may_reduce)?;
        let workflow = self.workflow_mut(id)?;
        for mismatch in &found {
            for job in &mismatch.jobs {
                workflow.graph.set_requirements(*job, &mismatch.better, tx);
            }
        }
        if !found.is_empty() {
            let message = format!("{} sets of requirements were corrected", found.len());
            tx.event(Some(id), EventReason::RequirementsCorrected, message);
        }
        Ok(CorrectResourcesReport { dry_run: false, corrections: found.iter().map(ResourceMismatch::report).collect() })
    }

    fn mismatches(
        &self,
        id: WorkflowId,
        references: &[String],
        latest: &LatestResults,
        may_reduce: bool,
    ) -> Result<Vec<ResourceMismatch>, CommandError> {
        let workflow = self.workflow(id)?;
        let chosen = if references.is_empty() { None } else { Some(workflow.find_all(references)?) };
        let mut by_needs: HashMap<&Requirements, Vec<u32>> = HashMap::new();
        for job in workflow.graph.all().filter(|job| chosen.as_ref().is_none_or(|jobs| jobs.contains(job))) {
            by_needs.entry(&workflow.graph.profile(job).requirements).or_default().push(job);
        }
        let mut found = Vec::new();
        for (needs, jobs) in by_needs {
            // The requirements of jobs that declare none are assumed, not estimated.
            if needs.name == torc_api::resources::DEFAULT_REQUIREMENTS {
                continue;
            }
            let results = jobs.iter().filter_map(|job| latest.get(&workflow.graph.job(*job).id()));
            let observed: Vec<ObservedJob> = results.map(observation).collect();
            let may_reduce = may_reduce && observed.len() == jobs.len();
            let nodes = jobs.first().map_or_else(Vec::new, |job| self.nodes_for(workflow, *job));
            if let Some(better) = correct(needs, &observed, may_reduce, &nodes) {
                found.push(ResourceMismatch { needs: needs.clone(), better, jobs, observed: observed.len() });
            }
        }
        found.sort_by(|left, right| left.needs.cmp(&right.needs));
        Ok(found)
    }
}

/// Requirements that do not fit what was observed.
struct ResourceMismatch {
    needs: Requirements,
    better: Requirements,
    jobs: Vec<u32>,
    observed: usize,
}

impl ResourceMismatch {
    fn report(&self) -> Correction {
        Correction {
            requirements: self.needs.name.clone(),
            jobs: self.jobs.len() as i64,
            observed: self.observed as i64,
            changes: raised(&self.needs, &self.better),
        }
    }
}

fn retried(decided: &[JobRecovery]) -> BTreeSet<u32> {
    decided.iter().filter(|one| one.report.decision == RecoveryDecision::Retry).map(|one| one.job).collect()
}

fn observation(row: &ResultRow) -> ObservedJob {
    ObservedJob {
        succeeded: row.state == JobState::Completed,
        peak_memory_bytes: row.usage.peak_memory_bytes,
        peak_cpu_percent: row.usage.peak_cpu_percent,
        run_seconds: Some((row.ended_ms - row.started_ms).max(0) / 1_000).filter(|seconds| *seconds > 0),
    }
}

impl Workflow {
    fn check_that_nothing_runs(&self) -> Result<(), CommandError> {
        let live = self.graph.counts().leased + self.graph.counts().running;
        if live > 0 {
            let jobs = if live == 1 { "1 job".to_owned() } else { format!("{live} jobs") };
            let message =
                format!("recovery of workflow '{}' waits until all have ended: {jobs} still running", self.row.name);
            return Err(CommandError::Conflict(message));
        }
        if self.is_canceled() {
            let message = format!("workflow '{}' was cancelled; `torc resume` takes that back", self.row.name);
            return Err(CommandError::Conflict(message));
        }
        Ok(())
    }

    fn waiting_for_decision(&self, references: &[String]) -> Result<BTreeSet<u32>, CommandError> {
        let waits = |job: u32| self.graph.job(job).state() == JobState::PendingFailed;
        if references.is_empty() {
            return Ok(self.graph.all().filter(|job| waits(*job)).collect());
        }
        let jobs = self.find_all(references)?;
        match jobs.iter().find(|job| !waits(**job)) {
            None => Ok(jobs),
            Some(job) => {
                let (name, state) = (self.graph.name(*job), self.graph.job(*job).state());
                Err(CommandError::Conflict(format!(
                    "job '{name}' is {state}; only one that is pending_failed waits for a decision"
                )))
            }
        }
    }
}
