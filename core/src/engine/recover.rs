//! Commands for failed jobs: recover them, decide about them manually, correct their requirements.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};

use torc_api::allocation::OrphanedJob;
use torc_api::event_reason::EventReason;
use torc_api::quantity::count;
use torc_api::recovery::{
    CorrectResourcesReport, Correction, FailureClass, RecoverReport, RecoveredJob, RecoveryDecision, RegenerateReport,
};
use torc_api::state::{Cause, JobState};
use torc_api::wire::FinishedAttempt;

use super::nodes::nodes_for;
use super::regenerate::{Regenerate, check_regeneration};
use super::reports::lost_attempt;
use super::tx::Tx;
use super::workflow::LiveWorkflow;
use super::{CommandError, Engine};
use crate::expanded::Requirements;
use crate::explain::raised;
use crate::failure::{
    Evidence, ManualDecision, NodeShape, ObservedJob, RecoveryOptions, correct, diagnose, manual::decide,
};
use crate::ids::{JobId, Now, WorkflowId};
use crate::job::{Ending, JobEvent};
use crate::planning::partition::PartitionLimits;
use crate::rows::ResultRow;

/// The latest result of each job that has one.
pub type LatestResults = HashMap<JobId, ResultRow>;

/// A recovery that a user has requested.
#[derive(Clone, Copy, Debug)]
pub struct Recover<'a> {
    /// The latest result of each failed job.
    pub latest: &'a LatestResults,
    /// Options of the request.
    pub options: RecoveryOptions,
    /// Partitions of the cluster. If empty, those that the owner of the store knows.
    pub partitions: &'a [PartitionLimits],
    /// The plan of allocations for the jobs that are still to run.
    pub regenerate: Option<Regenerate<'a>>,
    /// Jobs that a preview assumes lost.
    pub lost: &'a [OrphanedJob],
}

/// A correction of requirements that a user has requested.
#[derive(Clone, Copy, Debug)]
pub struct CorrectResources<'a> {
    /// Names or numbers of jobs; all jobs if empty.
    pub references: &'a [String],
    /// The latest result of each job that has one.
    pub latest: &'a LatestResults,
    /// True if requirements may be reduced, too.
    pub may_reduce: bool,
}

/// A failed job and the decision about it.
struct JobRecovery {
    job: u32,
    report: RecoveredJob,
    requirements: Option<Requirements>,
}

impl Engine {
    /// Returns the effects of a recovery, by executing it on a copy of the workflow.
    pub fn recover_preview(
        &self,
        id: WorkflowId,
        recover: Recover<'_>,
        now: Now,
    ) -> Result<RecoverReport, CommandError> {
        let mut copy = self.copy_of(id)?;
        let tx = &mut copy.begin(now);
        let latest = copy.assume_lost(id, recover, tx)?;
        let decided = self.decide_about_failed(copy.workflows.require(id)?, Recover { latest: &latest, ..recover })?;
        let report = copy.execute_recovery(id, decided, recover.regenerate, tx)?;
        let preview = |planned| RegenerateReport { dry_run: true, allocations: Vec::new(), ..planned };
        Ok(RecoverReport { dry_run: true, regenerated: report.regenerated.map(preview), ..report })
    }

    /// Retries failed jobs, with more memory or time where that was exceeded, and plans allocations for them if requested. The requirements
    /// of other jobs do not change.
    pub fn recover(
        &mut self,
        id: WorkflowId,
        recover: Recover<'_>,
        tx: &mut Tx,
    ) -> Result<RecoverReport, CommandError> {
        let decided = self.decide_about_failed(self.workflows.require(id)?, recover)?;
        self.execute_recovery(id, decided, recover.regenerate, tx)
    }

    /// Records jobs as lost, and returns the latest results including theirs.
    fn assume_lost<'a>(
        &mut self,
        id: WorkflowId,
        recover: Recover<'a>,
        tx: &mut Tx,
    ) -> Result<Cow<'a, LatestResults>, CommandError> {
        for lost in recover.lost {
            let workflow = self.workflows.require(id)?;
            let Some(job) = workflow.graph.find(&lost.job) else { continue };
            if matches!(workflow.graph.job(job).state(), JobState::Leased | JobState::Running) {
                let target = workflow.job_target(job);
                let Some(lease) = workflow.current_lease(target) else { continue };
                let report = lost_attempt(lease.key, lease.started_ms, "", tx.now);
                self.leases().end_lease(
                    target,
                    &FinishedAttempt { cause: Some(lost.cause), ..report },
                    lease.runner,
                    tx,
                );
            }
        }
        let mut latest = Cow::Borrowed(recover.latest);
        let results = std::mem::take(&mut tx.changes.rows().results);
        if !results.is_empty() {
            latest.to_mut().extend(results.into_iter().map(|row| (row.job, row)));
        }
        Ok(latest)
    }

    fn decide_about_failed(
        &self,
        workflow: &LiveWorkflow,
        recover: Recover<'_>,
    ) -> Result<Vec<JobRecovery>, CommandError> {
        check_that_nothing_runs(workflow)?;
        if recover.regenerate.is_some() {
            check_regeneration(workflow)?;
        }
        let is_failed = |job: &u32| {
            let state = workflow.graph.job(*job).state();
            matches!(state, JobState::Failed | JobState::Terminated | JobState::PendingFailed)
        };
        let failed = workflow.graph.ordinals().filter(is_failed);
        Ok(failed.map(|job| self.decide_about(workflow, job, recover)).collect())
    }

    fn decide_about(&self, workflow: &LiveWorkflow, job: u32, recover: Recover<'_>) -> JobRecovery {
        let record = workflow.graph.job(job);
        let needs = &workflow.graph.profile(job).requirements;
        let evidence = Evidence::of_result(needs, recover.latest.get(&record.id()));
        let cause = diagnose(&evidence);
        let nodes = match cause {
            Cause::OutOfMemory | Cause::Timeout => self.nodes_after_recovery(workflow, job, recover),
            _ => Vec::new(),
        };
        let (decision, requirements, reason) = match decide(&evidence, recover.options, &nodes) {
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
    fn nodes_after_recovery(&self, workflow: &LiveWorkflow, job: u32, recover: Recover<'_>) -> Vec<NodeShape> {
        let is_for_allocations = workflow.graph.profile(job).labels.is_empty();
        match recover.regenerate.filter(|_| is_for_allocations) {
            Some(plan) => {
                let mut nodes = NodeShape::of_partitions(plan.partitions, plan.request.partition.as_deref());
                for node in &mut nodes {
                    node.seconds = node.seconds.min(plan.seconds.unwrap_or(i64::MAX));
                }
                nodes
            }
            None if is_for_allocations && workflow.schedulers.are_sized_by_jobs() && !recover.partitions.is_empty() => {
                NodeShape::of_partitions(recover.partitions, None)
            }
            None => nodes_for(&self.workflows, &self.runners, workflow, job),
        }
    }

    fn execute_recovery(
        &mut self,
        id: WorkflowId,
        decided: Vec<JobRecovery>,
        regenerate: Option<Regenerate<'_>>,
        tx: &mut Tx,
    ) -> Result<RecoverReport, CommandError> {
        let workflow = self.workflows.require_mut(id)?;
        for one in &decided {
            if let Some(requirements) = &one.requirements {
                workflow.graph.set_requirements(one.job, requirements, tx);
            }
        }
        let retried = retried(&decided);
        let retries = retried.len();
        let affected = if retried.is_empty() { 0 } else { self.leases().reset(id, retried, tx).len() };
        if affected > 0 {
            self.workflows.session.add(id);
            let message = format!("{} retried, {} in total", count(retries, "failed job"), count(affected, "job"));
            tx.event(Some(id), EventReason::RecoveryStarted, message);
        }
        let regenerated = match regenerate {
            Some(plan) => Some(self.regenerate(id, plan, tx)?).filter(|planned| planned.pending_jobs > 0),
            None => None,
        };
        let jobs = decided.into_iter().map(|one| one.report).collect();
        Ok(RecoverReport { dry_run: false, jobs, again: affected as i64, regenerated })
    }

    /// Returns a state with a copy of one workflow, to preview a command.
    pub(super) fn copy_of(&self, id: WorkflowId) -> Result<Self, CommandError> {
        Ok(Self { workflows: self.workflows.copy_of(id)?, last: self.last, ..Self::default() })
    }

    /// Executes the decision of a user about pending failed jobs. Returns the number of jobs.
    pub fn classify(
        &mut self,
        id: WorkflowId,
        references: &[String],
        class: FailureClass,
        tx: &mut Tx,
    ) -> Result<i64, CommandError> {
        let workflow = self.workflows.require_mut(id)?;
        let jobs = pending_failed(workflow, references)?;
        let affected = jobs.len() as i64;
        match class {
            FailureClass::Retry => {
                self.leases().reset(id, jobs, tx);
                self.workflows.session.add(id);
            }
            FailureClass::Fail => {
                for job in jobs {
                    // A pending failed job can always fail.
                    if workflow.transition(job, JobEvent::Ended(Ending::Failed), tx).is_ok() {
                        workflow.settle_dependents(job, tx);
                    }
                }
                self.runners.wake();
            }
        }
        let decision = if class == FailureClass::Retry { "retried" } else { "failed" };
        tx.event(
            Some(id),
            EventReason::FailuresDecided,
            format!("{} {decision} by a manual decision", count(affected, "job")),
        );
        Ok(affected)
    }

    /// Returns better requirements for jobs whose observed usage does not match. Changes nothing.
    pub fn correction_preview(
        &self,
        id: WorkflowId,
        correction: CorrectResources<'_>,
    ) -> Result<CorrectResourcesReport, CommandError> {
        let found = self.mismatches(id, correction)?;
        Ok(CorrectResourcesReport { dry_run: true, corrections: found.iter().map(ResourceMismatch::report).collect() })
    }

    /// Corrects requirements that do not match the observed usage, for the next attempts of the jobs.
    pub fn correct_resources(
        &mut self,
        id: WorkflowId,
        correction: CorrectResources<'_>,
        tx: &mut Tx,
    ) -> Result<CorrectResourcesReport, CommandError> {
        let found = self.mismatches(id, correction)?;
        let workflow = self.workflows.require_mut(id)?;
        for mismatch in &found {
            for job in &mismatch.jobs {
                workflow.graph.set_requirements(*job, &mismatch.better, tx);
            }
        }
        if !found.is_empty() {
            let message = format!("{} of requirements corrected", count(found.len(), "set"));
            tx.event(Some(id), EventReason::RequirementsCorrected, message);
        }
        Ok(CorrectResourcesReport { dry_run: false, corrections: found.iter().map(ResourceMismatch::report).collect() })
    }

    fn mismatches(
        &self,
        id: WorkflowId,
        correction: CorrectResources<'_>,
    ) -> Result<Vec<ResourceMismatch>, CommandError> {
        let workflow = self.workflows.require(id)?;
        let CorrectResources { references, latest, may_reduce } = correction;
        let chosen = if references.is_empty() { None } else { Some(workflow.require_jobs(references)?) };
        let mut by_needs: HashMap<&Requirements, Vec<u32>> = HashMap::new();
        for job in workflow.graph.ordinals().filter(|job| chosen.as_ref().is_none_or(|jobs| jobs.contains(job))) {
            by_needs.entry(&workflow.graph.profile(job).requirements).or_default().push(job);
        }
        let mut found = Vec::new();
        for (needs, jobs) in by_needs {
            // Jobs without requirements have assumed ones, which are not an estimate.
            if needs.name == torc_api::resources::DEFAULT_REQUIREMENTS {
                continue;
            }
            let results = jobs.iter().filter_map(|job| latest.get(&workflow.graph.job(*job).id()));
            let observed: Vec<ObservedJob> = results.map(observation).collect();
            let may_reduce = may_reduce && observed.len() == jobs.len();
            let nodes =
                jobs.first().map_or_else(Vec::new, |job| nodes_for(&self.workflows, &self.runners, workflow, *job));
            if let Some(better) = correct(needs, &observed, may_reduce, &nodes) {
                found.push(ResourceMismatch { needs: needs.clone(), better, jobs, observed: observed.len() });
            }
        }
        found.sort_by(|left, right| left.needs.cmp(&right.needs));
        Ok(found)
    }
}

/// Requirements that do not match the observed usage of their jobs.
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

fn check_that_nothing_runs(workflow: &LiveWorkflow) -> Result<(), CommandError> {
    let (name, counts) = (&workflow.row().name, workflow.graph.counts());
    let live = counts.leased + counts.running;
    if live > 0 {
        let message = format!("workflow '{name}' cannot be recovered yet: {} still running", count(live, "job"));
        return Err(CommandError::Conflict(message));
    }
    if workflow.is_canceled() {
        let message = format!("workflow '{name}' is canceled; run `torc resume {name}` first");
        return Err(CommandError::Conflict(message));
    }
    Ok(())
}

/// Returns the jobs that wait for a manual decision: the named ones, or all.
fn pending_failed(workflow: &LiveWorkflow, references: &[String]) -> Result<BTreeSet<u32>, CommandError> {
    let graph = &workflow.graph;
    let is_pending = |job: &u32| graph.job(*job).state() == JobState::PendingFailed;
    if references.is_empty() {
        return Ok(graph.ordinals().filter(is_pending).collect());
    }
    let jobs = workflow.require_jobs(references)?;
    match jobs.iter().find(|job| !is_pending(job)) {
        None => Ok(jobs),
        Some(job) => {
            let (name, state) = (graph.name(*job), graph.job(*job).state());
            Err(CommandError::Conflict(format!(
                "job '{name}' is {state}; only jobs in state pending_failed need a decision"
            )))
        }
    }
}
