//! The end of a lease: by a report, or because its runner no longer has it.

use torc_api::event_reason::EventReason;
use torc_api::state::{Cause, JobState};
use torc_api::wire::{FinishedAttempt, LeaseRole};

use super::Leases;
use crate::engine::accounting::ingest_slurm_stats;
use crate::engine::reports::lost_attempt;
use crate::engine::runners::LeaseTarget;
use crate::engine::runners::LiveRunner;
use crate::engine::tx::Tx;
use crate::engine::workflow::LiveWorkflow;
use crate::ids::{JobId, RunnerId, WorkflowId};

/// The state of a lease that its runner does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum NotHeldReason {
    /// The lease has not started: the next lease can have the same attempt number.
    NotStarted,
    /// The lease may have started: the next lease has the next attempt number. This uses up no retry.
    Unknown,
    /// The allocation or host of the runner is gone, for this cause.
    Gone(Cause),
}

impl NotHeldReason {
    /// Returns the cause of the end of a started attempt.
    const fn cause(self) -> Cause {
        match self {
            Self::Gone(cause) => cause,
            Self::NotStarted | Self::Unknown => Cause::Lost,
        }
    }
}

impl Leases<'_> {
    /// Accepts the result of an attempt, as long as nothing newer has started. The result of a revoked lease is only recorded. Returns
    /// whether the runner can forget the result, because it is recorded or known.
    pub fn accept_result(&mut self, id: RunnerId, finished: &FinishedAttempt, tx: &mut Tx) -> bool {
        let key = &finished.key;
        let stats = finished.slurm_stats.as_deref().map_or(&[][..], std::slice::from_ref);
        ingest_slurm_stats(self.workflows, stats, tx);
        self.record_report(id, tx);
        if let Some(lease) = self.remove_revoked(id, key) {
            self.end_revoked(lease, Ok(finished), tx);
            return true;
        }
        match self.workflows.target_of(key) {
            Some(target) if target.role.is_job() => self.accept_job(id, target, finished, tx),
            Some(target) => self.accept_task(id, target, finished, tx),
            None => self.refuse(finished, tx),
        }
    }

    /// Records that the allocation of a runner has reported the end of a job, so it is not unproductive.
    fn record_report(&mut self, id: RunnerId, tx: &mut Tx) {
        let Some((workflow, allocation)) = self.runners.get(&id).and_then(LiveRunner::allocation) else { return };
        if let Some(workflow) = self.workflows.get_mut(&workflow) {
            workflow.allocations.record_report(allocation, tx);
        }
    }

    fn accept_job(&mut self, id: RunnerId, target: LeaseTarget, finished: &FinishedAttempt, tx: &mut Tx) -> bool {
        let key = &finished.key;
        let Some(workflow) = self.workflows.get(&target.workflow) else { return false };
        let Some((job, lease)) = workflow.graph.ordinal(target.number).zip(workflow.current_lease(target)) else {
            return false;
        };
        let state = workflow.graph.job(job).state();
        let has_expired = lease.key.run == key.run && workflow.has_expired_lease(job, key.lease_id);
        let counts = match state {
            // The job failed only because the attempt was lost.
            JobState::Failed | JobState::Terminated | JobState::PendingFailed if has_expired => {
                self.reset_after_late_success(target.workflow, job, finished, tx)
            }
            // A repetition, because the answer to the first report was lost.
            _ if lease.is(key) && (state.is_complete() || awaits_decision(state)) => return true,
            JobState::Ready | JobState::Leased | JobState::Running if lease.is(key) => true,
            _ => has_expired && self.revive(target, key.lease_id, tx),
        };
        if !counts {
            return self.refuse(finished, tx);
        }
        self.drop_lease(target, lease.runner);
        self.end_attempt(target.workflow, job, finished, Some(id), tx);
        true
    }

    fn accept_task(&mut self, id: RunnerId, target: LeaseTarget, finished: &FinishedAttempt, tx: &mut Tx) -> bool {
        let Some(lease) = self.workflows.current_lease(target).filter(|lease| lease.is(&finished.key)) else {
            // A repetition, or the result of a superseded attempt.
            let workflow = self.workflows.get(&target.workflow);
            return workflow.is_some_and(|workflow| workflow.was_last_of_action(target, &finished.key));
        };
        self.drop_lease(target, lease.runner);
        self.drop_lease(target, Some(id));
        self.end_lease(target, finished, Some(id), tx);
        true
    }

    /// Ends an attempt, as its role requires.
    pub fn end_lease(
        &mut self,
        target: LeaseTarget,
        finished: &FinishedAttempt,
        runner: Option<RunnerId>,
        tx: &mut Tx,
    ) {
        let LeaseTarget { workflow: id, number, role } = target;
        let Some(workflow) = self.workflows.get_mut(&id) else { return };
        match role {
            LeaseRole::Job => {
                if let Some(job) = workflow.graph.ordinal(number) {
                    self.end_attempt(id, job, finished, runner, tx);
                }
            }
            LeaseRole::Action => {
                let host = runner.and_then(|id| self.runners.get(&id)).map(|runner| runner.row().host.as_str());
                workflow.end_action(number, finished, runner, host, tx);
            }
            LeaseRole::Recovery => workflow.end_recovery(number, finished, tx),
        }
        self.runners.wake();
    }

    /// Removes a lease from its holder.
    pub fn drop_lease(&mut self, target: LeaseTarget, holder: Option<RunnerId>) {
        if let Some(holder) = holder.and_then(|holder| self.runners.get_mut(&holder)) {
            holder.leases.remove(&target);
        }
    }

    /// Records an event for a result that changes nothing.
    fn refuse(&self, finished: &FinishedAttempt, tx: &mut Tx) -> bool {
        let FinishedAttempt { key, return_code, .. } = finished;
        let workflow = self.workflows.get(&WorkflowId(key.workflow));
        let name = workflow.and_then(|workflow| Some(workflow.graph.name(workflow.graph.ordinal(JobId(key.job))?)));
        let job = name.map_or_else(|| format!("job {}", key.job), |name| format!("job '{name}'"));
        let message =
            format!("attempt {} of {job} in run {} ended with {return_code} and is superseded", key.attempt, key.run);
        tx.event(workflow.map(LiveWorkflow::id), EventReason::ResultRefused, message);
        false
    }

    /// Ends a lease that its runner no longer has: an unstarted one is released, a started attempt is lost.
    pub fn abandon(&mut self, id: RunnerId, target: LeaseTarget, why: &str, reason: NotHeldReason, tx: &mut Tx) {
        self.drop_lease(target, Some(id));
        let Some(workflow) = self.workflows.get_mut(&target.workflow) else { return };
        let Some(lease) = workflow.current_lease(target).filter(|lease| lease.runner == Some(id)) else { return };
        let expired = workflow.lease_to_expire(target);
        if let Some(started_ms) = lease.started_ms {
            let lost = lost_attempt(lease.key, Some(started_ms), why, tx.now);
            self.end_lease(target, &FinishedAttempt { cause: Some(reason.cause()), ..lost }, Some(id), tx);
        } else {
            workflow.release(target, tx);
            if reason == NotHeldReason::NotStarted {
                self.runners.wake();
                return;
            }
            workflow.begin_next_attempt(target, tx);
        }
        self.runners.wake();
        let Some(workflow) = self.workflows.get_mut(&target.workflow) else { return };
        // A canceled job stays canceled, whatever its runner reports.
        let state = workflow.graph.ordinal(target.number).map(|job| workflow.graph.job(job).state());
        if let Some(lease) = expired.filter(|_| state != Some(JobState::Canceled)) {
            workflow.remember_expired_lease(lease, tx);
        }
    }
}

/// Returns whether the attempt of a job is recorded, but what follows is still to be decided.
fn awaits_decision(state: JobState) -> bool {
    matches!(state, JobState::PendingFailed | JobState::Recovering)
}
