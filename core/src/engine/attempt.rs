//! The end of an attempt, in one command: record the result, decide about the job, settle its dependents.

use torc_api::event_reason::EventReason;
use torc_api::failure::FailureHandler;
use torc_api::state::{Cause, JobState};
use torc_api::wire::FinishedAttempt;

use super::Engine;
use super::recovery::FailedAttempt;
use super::reports::{ago, cause_of};
use super::tx::Tx;
use super::workflow::Workflow;
use crate::expanded::Requirements;
use crate::failure::policy::{decide, may_escalate};
use crate::failure::{Decision, Evidence, Failure, LimitReached, NodeShape, Policy};
use crate::ids::{Now, RunnerId, WorkflowId};
use crate::job::{Ending, JobEvent};
use crate::rows::ResultRow;

/// What is said of an attempt that a recovery script follows.
const AWAITS_SCRIPT: &str = "the job is tried again if its recovery script succeeds";

/// The consequences of the end of an attempt.
#[derive(Debug)]
struct AttemptOutcome {
    ending: Ending,
    /// The requirements of the next attempt, where they change.
    requirements: Option<Requirements>,
    /// The script that has to succeed before the next attempt.
    script: Option<String>,
    /// The limit that makes another attempt useless.
    limit: Option<LimitReached>,
}

impl From<Ending> for AttemptOutcome {
    fn from(ending: Ending) -> Self {
        Self { ending, requirements: None, script: None, limit: None }
    }
}

impl Engine {
    /// An attempt of a job that nobody else has taken over has ended.
    pub(super) fn end_attempt(
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
        let AttemptOutcome { ending, requirements, script, limit } =
            workflow.decide_outcome(job, cause, finished, &nodes);
        workflow.record_result(job, finished, (ending, limit), runner, tx);
        if ending == Ending::Completed {
            workflow.record_files(job, finished, tx);
        }
        if let Some(requirements) = requirements {
            workflow.graph.set_requirements(job, &requirements, tx);
        }
        if let Some(limit) = limit {
            workflow.note_limit(job, limit, tx);
        }
        workflow.forget_expired_leases(job, tx);
        let retried = ending == Ending::Retry;
        if retried {
            workflow.graph.next_attempt(job);
        }
        if let (Some(script), Some(cause)) = (script, cause) {
            let failed = FailedAttempt { finished, cause, runner };
            workflow.begin_recovery(job, script, &failed, tx);
        }
        let event = match workflow.graph.job(job).ending() {
            // Another lease of it is still being ended: the next attempt waits for that.
            1.. if retried => JobEvent::Reset { unmet: workflow.graph.count_unmet(job) },
            _ => JobEvent::Ended(ending),
        };
        let is_final = !matches!(ending, Ending::Retry | Ending::Recover | Ending::PendingFailed);
        // Every caller has checked that the job can end, so a refusal cannot happen; if it did, nothing would change.
        if workflow.transition(job, event, tx).is_ok() && is_final {
            workflow.settle_dependents(job, tx);
        }
        self.wake_version += 1;
    }

    /// Returns the nodes that the next attempt could get, if it is to get more memory or time.
    fn nodes_for_next_attempt(&self, id: WorkflowId, job: u32, finished: &FinishedAttempt) -> Vec<NodeShape> {
        let workflow = self.workflows.get(&id).filter(|_| cause_of(finished).is_some());
        let Some(workflow) = workflow else { return Vec::new() };
        let evidence = Evidence::of_report(&workflow.graph.profile(job).requirements, finished);
        match may_escalate(&evidence, workflow.failure_policy(job)) {
            true => self.nodes_for(workflow, job),
            false => Vec::new(),
        }
    }
}

impl Workflow {
    /// Decides about the job, and counts the failure.
    fn decide_outcome(
        &mut self,
        job: u32,
        cause: Option<Cause>,
        finished: &FinishedAttempt,
        nodes: &[NodeShape],
    ) -> AttemptOutcome {
        let Some(cause) = cause else { return Ending::Completed.into() };
        if self.is_canceled() || cause == Cause::Canceled {
            return Ending::Canceled.into();
        }
        // The runner was asked to stop; that says nothing about the job.
        if cause == Cause::Stopped {
            return Ending::Retry.into();
        }
        let id = self.graph.job(job).id();
        let count = self.failures.count(id, cause);
        let evidence = Evidence::of_report(&self.graph.profile(job).requirements, finished);
        let failed = if cause == Cause::Timeout { Ending::Terminated } else { Ending::Failed };
        match decide(&Failure { cause, evidence, count, nodes }, self.failure_policy(job)) {
            Decision::Retry => Ending::Retry.into(),
            Decision::RetryWith(requirements) => {
                AttemptOutcome { requirements: Some(requirements), ..Ending::Retry.into() }
            }
            Decision::RunScript(script) => AttemptOutcome { script: Some(script.to_owned()), ..Ending::Recover.into() },
            Decision::PendingFailed(limit) => AttemptOutcome { limit, ..Ending::PendingFailed.into() },
            Decision::Fail(limit) => AttemptOutcome { limit, ..failed.into() },
        }
    }

    fn failure_policy(&self, job: u32) -> Policy<'_> {
        Policy {
            handler: self.handler(job),
            recovery: self.spec.recovery.as_ref(),
            use_pending_failed: self.spec.use_pending_failed == Some(true),
        }
    }

    /// Tells that a job is not retried. Many jobs may fail alike, so one event of a commit is enough.
    fn note_limit(&self, job: u32, limit: LimitReached, tx: &mut Tx) {
        if !tx.changes.has_event(self.id(), EventReason::RecoveryLimitReached) {
            let message = format!("job '{}' is not retried: {limit}", self.graph.name(job));
            tx.event(Some(self.id()), EventReason::RecoveryLimitReached, message);
        }
    }

    fn handler(&self, job: u32) -> Option<&FailureHandler> {
        let name = self.graph.profile(job).failure_handler.as_deref()?;
        self.spec.failure_handlers.iter().find(|handler| handler.name == name)
    }

    fn record_result(
        &mut self,
        job: u32,
        finished: &FinishedAttempt,
        (ending, limit): (Ending, Option<LimitReached>),
        runner: Option<RunnerId>,
        tx: &mut Tx,
    ) {
        let cause = cause_of(finished);
        let state = match ending {
            Ending::Completed => JobState::Completed,
            Ending::Canceled => JobState::Canceled,
            _ if matches!(cause, Some(Cause::Timeout | Cause::Stopped)) => JobState::Terminated,
            _ => JobState::Failed,
        };
        let cause = if ending == Ending::Canceled { Some(Cause::Canceled) } else { cause };
        let record = self.graph.job(job);
        let (run, attempt) = (record.run(), record.attempt());
        let mut row = self.result_row(job, (run, attempt), finished, (state, cause), runner, tx.now);
        if ending == Ending::Recover {
            row.message.get_or_insert_with(|| AWAITS_SCRIPT.to_owned());
        }
        if let Some(limit) = limit {
            let why = format!("not retried: {limit}");
            row.message = Some(row.message.map_or(why.clone(), |message| format!("{message}; {why}")));
        }
        if finished.key.attempt != attempt {
            let late = format!("started as attempt {}, given up, and turned up again", finished.key.attempt);
            row.message = Some(row.message.map_or(late.clone(), |message| format!("{message} ({late})")));
        }
        self.remember_failure(&row);
        if self.row.started_ms.is_none() {
            self.row.started_ms = Some(row.started_ms);
            tx.changes.workflow(&self.row);
        }
        tx.changes.result(row);
    }

    /// The record of an attempt that ended.
    pub(super) fn result_row(
        &self,
        job: u32,
        (run, attempt): (i32, i32),
        finished: &FinishedAttempt,
        (state, cause): (JobState, Option<Cause>),
        runner: Option<RunnerId>,
        now: Now,
    ) -> ResultRow {
        let ended_ms = ago(now.wall_ms, finished.ended_ms_ago);
        ResultRow {
            workflow: self.row.id,
            job: self.graph.job(job).id(),
            run,
            attempt,
            state,
            return_code: finished.return_code,
            cause,
            message: finished.message.clone(),
            started_ms: ago(ended_ms, finished.duration_ms),
            ended_ms,
            runner,
            stdout: finished.stdout.clone(),
            stderr: finished.stderr.clone(),
            usage: finished.usage.unwrap_or_default(),
        }
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
