//! The end of an attempt of a job: record the result, decide about the job, update its dependents.

use torc_api::event_reason::EventReason;
use torc_api::state::{Cause, JobState};
use torc_api::wire::FinishedAttempt;

use super::leases::Leases;
use super::nodes::nodes_for;
use super::recovery::FailedAttempt;
use super::reports::{AttemptRecord, cause_of};
use super::tx::Tx;
use super::workflow::LiveWorkflow;
use crate::expanded::Requirements;
use crate::failure::policy::{decide, may_escalate};
use crate::failure::{AttemptFailure, Evidence, FailureDecision, LimitReached, NodeShape, Policy};
use crate::ids::{RunnerId, WorkflowId};
use crate::job::{Ending, JobEvent};

/// Message of the result of an attempt that a recovery script follows.
const AWAITS_SCRIPT: &str = "the job is retried if its recovery script succeeds";

/// The consequences of the end of an attempt.
#[derive(Debug)]
struct AttemptOutcome {
    ending: Ending,
    /// Requirements of the next attempt, if they change.
    requirements: Option<Requirements>,
    /// Script that has to succeed before the next attempt.
    script: Option<String>,
    /// Limit that makes another attempt useless.
    limit: Option<LimitReached>,
}

impl From<Ending> for AttemptOutcome {
    fn from(ending: Ending) -> Self {
        Self { ending, requirements: None, script: None, limit: None }
    }
}

impl Leases<'_> {
    /// Ends the current attempt of a job.
    pub fn end_attempt(
        &mut self,
        workflow: WorkflowId,
        job: u32,
        finished: &FinishedAttempt,
        runner: Option<RunnerId>,
        tx: &mut Tx,
    ) {
        let nodes = self.nodes_for_next_attempt(workflow, job, finished);
        let Some(workflow) = self.workflows.get_mut(&workflow) else { return };
        let cause = cause_of(finished);
        let outcome = workflow.decide_outcome(job, finished, &nodes);
        workflow.record_result(job, finished, &outcome, runner, tx);
        let AttemptOutcome { ending, requirements, script, limit } = outcome;
        if ending == Ending::Completed {
            workflow.record_files(job, finished, tx);
        }
        if let Some(requirements) = requirements {
            workflow.graph.set_requirements(job, &requirements, tx);
        }
        if let Some(limit) = limit {
            workflow.report_limit(job, limit, tx);
        }
        workflow.forget_expired_leases(job, tx);
        let is_retried = ending == Ending::Retry;
        if is_retried {
            workflow.graph.next_attempt(job);
        }
        if let (Some(script), Some(cause)) = (script, cause) {
            let failed = FailedAttempt { finished, cause, runner };
            workflow.begin_recovery(job, script, &failed, tx);
        }
        let event = match workflow.graph.job(job).ending() {
            // A revoked lease of the job has not ended: the next attempt waits for that.
            1.. if is_retried => JobEvent::Reset { unmet: workflow.graph.count_unmet(job) },
            _ => JobEvent::Ended(ending),
        };
        let is_final = !matches!(ending, Ending::Retry | Ending::Recover | Ending::PendingFailed);
        // All callers have checked that the job can end. A refusal would change nothing.
        if workflow.transition(job, event, tx).is_ok() && is_final {
            workflow.settle_dependents(job, tx);
        }
        self.runners.wake();
    }

    /// Returns the nodes that the next attempt could get, if it needs more memory or time.
    fn nodes_for_next_attempt(&self, id: WorkflowId, job: u32, finished: &FinishedAttempt) -> Vec<NodeShape> {
        let workflow = self.workflows.get(&id).filter(|_| cause_of(finished).is_some());
        let Some(workflow) = workflow else { return Vec::new() };
        let evidence = Evidence::of_report(&workflow.graph.profile(job).requirements, finished);
        match may_escalate(&evidence, workflow.failure_policy(job)) {
            true => nodes_for(self.workflows, self.runners, workflow, job),
            false => Vec::new(),
        }
    }
}

impl LiveWorkflow {
    /// Decides about the job, and counts the failure.
    fn decide_outcome(&mut self, job: u32, finished: &FinishedAttempt, nodes: &[NodeShape]) -> AttemptOutcome {
        let Some(cause) = cause_of(finished) else { return Ending::Completed.into() };
        if self.is_canceled() || cause == Cause::Canceled {
            return Ending::Canceled.into();
        }
        // The runner was stopped, which is no failure of the job.
        if cause == Cause::Stopped {
            return Ending::Retry.into();
        }
        let count = self.failures.count(self.graph.job(job).id(), cause);
        let evidence = Evidence::of_report(&self.graph.profile(job).requirements, finished);
        let failed = if cause == Cause::Timeout { Ending::Terminated } else { Ending::Failed };
        match decide(&AttemptFailure { cause, evidence, count, nodes }, self.failure_policy(job)) {
            FailureDecision::Retry => Ending::Retry.into(),
            FailureDecision::RetryWith(requirements) => {
                AttemptOutcome { requirements: Some(requirements), ..Ending::Retry.into() }
            }
            FailureDecision::RunScript(script) => {
                AttemptOutcome { script: Some(script.to_owned()), ..Ending::Recover.into() }
            }
            FailureDecision::PendingFailed(limit) => AttemptOutcome { limit, ..Ending::PendingFailed.into() },
            FailureDecision::Fail(limit) => AttemptOutcome { limit, ..failed.into() },
        }
    }

    fn failure_policy(&self, job: u32) -> Policy<'_> {
        let handler = self.graph.profile(job).failure_handler.as_deref();
        Policy {
            handler: handler.and_then(|name| self.spec().failure_handlers.iter().find(|one| one.name == name)),
            recovery: self.spec().recovery.as_ref(),
            use_pending_failed: self.spec().use_pending_failed == Some(true),
        }
    }

    /// Reports that a job is not retried. Many jobs may fail alike, so one event in a transaction is enough.
    fn report_limit(&self, job: u32, limit: LimitReached, tx: &mut Tx) {
        if !tx.changes.has_event(self.id(), EventReason::RecoveryLimitReached) {
            let message = format!("job '{}' is not retried: {limit}", self.graph.name(job));
            tx.event(Some(self.id()), EventReason::RecoveryLimitReached, message);
        }
    }

    fn record_result(
        &mut self,
        job: u32,
        finished: &FinishedAttempt,
        outcome: &AttemptOutcome,
        runner: Option<RunnerId>,
        tx: &mut Tx,
    ) {
        let cause = cause_of(finished);
        let ending = outcome.ending;
        let state = match ending {
            Ending::Completed => JobState::Completed,
            Ending::Canceled => JobState::Canceled,
            _ if matches!(cause, Some(Cause::Timeout | Cause::Stopped)) => JobState::Terminated,
            _ => JobState::Failed,
        };
        let cause = if ending == Ending::Canceled { Some(Cause::Canceled) } else { cause };
        let record = self.graph.job(job);
        let (run, attempt) = (record.run(), record.attempt());
        let mut row = self.result_row(job, finished, AttemptRecord { run, attempt, state, cause, runner }, tx.now);
        if ending == Ending::Recover {
            row.message.get_or_insert_with(|| AWAITS_SCRIPT.to_owned());
        }
        if let Some(limit) = outcome.limit {
            let why = format!("not retried: {limit}");
            row.message = Some(row.message.map_or(why.clone(), |message| format!("{message}; {why}")));
        }
        if finished.key.attempt != attempt {
            let late = format!("started as attempt {}, marked as lost, and reported later", finished.key.attempt);
            row.message = Some(row.message.map_or(late.clone(), |message| format!("{message} ({late})")));
        }
        self.remember_failure(&row);
        self.record.start(row.started_ms, tx);
        tx.changes.result(row);
    }

    /// Updates the dependents of a job that has ended for good: they become ready, wait for others, or are canceled with their own
    /// dependents.
    pub(super) fn settle_dependents(&mut self, job: u32, tx: &mut Tx) {
        let mut ended = vec![job];
        while let Some(job) = ended.pop() {
            let failed = self.graph.job(job).state() != JobState::Completed;
            for index in 0..self.graph.children(job).len() {
                let child = self.graph.children(job)[index];
                let Some(unmet) = self.graph.parent_ended(child) else { continue };
                if failed && self.graph.profile(child).cancel_on_blocking_job_failure {
                    if self.transition(child, JobEvent::DependencyFailed, tx).is_ok() {
                        ended.push(child);
                    }
                } else if unmet == 0 {
                    // A blocked job can always become ready.
                    let _ = self.transition(child, JobEvent::DependenciesMet, tx);
                }
            }
        }
    }
}
