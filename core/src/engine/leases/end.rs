//! The end of a lease: by a report, or because its runner no longer has it.

use torc_api::event_reason::EventReason;
use torc_api::state::{Cause, JobState};
use torc_api::wire::{FinishedAttempt, LeaseRole};

use crate::engine::Engine;
use crate::engine::held_leases::LeaseTarget;
use crate::engine::reports::lost_attempt;
use crate::engine::tx::Tx;
use crate::engine::workflow::Workflow;
use crate::ids::{JobId, RunnerId, WorkflowId};

/// What is known of a lease that its runner does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum NotHeldReason {
    /// It has not started: the attempt's number can be used for the next lease.
    NotStarted,
    /// Nothing. It may have started: the next lease is of the next attempt, though no retry is used up by that.
    Unknown,
    /// The place that the runner lived in is gone, for this cause.
    Gone(Cause),
}

impl NotHeldReason {
    /// Returns why an attempt of which no more is known is over.
    const fn cause(self) -> Cause {
        match self {
            Self::Gone(cause) => cause,
            Self::NotStarted | Self::Unknown => Cause::Lost,
        }
    }
}

impl Engine {
    /// A runner reports the end of an attempt. It counts as long as nothing newer has started. One of a revoked lease is only recorded.
    pub(in crate::engine) fn accept_result(&mut self, id: RunnerId, finished: &FinishedAttempt, tx: &mut Tx) -> bool {
        let key = &finished.key;
        self.take_slurm_stats(finished.slurm_stats.as_deref().map_or(&[], std::slice::from_ref), tx);
        self.note_report(id, tx);
        if let Some(lease) = self.take_revoked(id, key) {
            self.end_revoked(lease, Ok(finished), tx);
            return true;
        }
        match self.target_of(key) {
            Some(target) if target.role.is_job() => self.accept_job(id, target, finished, tx),
            Some(target) => self.accept_task(id, target, finished, tx),
            None => self.refuse(finished, tx),
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
            // All that is known against it is that it was lost.
            JobState::Failed | JobState::Terminated | JobState::PendingFailed if has_expired => {
                self.undo_loss(target.workflow, job, finished, tx)
            }
            // The answer to an earlier report was lost: it is already written down.
            _ if lease.is(key) && (state.is_complete() || awaits_more(state)) => return true,
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
        let Some(lease) = self.current_lease(target).filter(|lease| lease.is(&finished.key)) else {
            // Known already, or of an attempt that is not wanted any more.
            let workflow = self.workflows.get(&target.workflow);
            return workflow.is_some_and(|workflow| workflow.was_last_of_action(target, &finished.key));
        };
        self.drop_lease(target, lease.runner);
        self.drop_lease(target, Some(id));
        self.end_lease(target, finished, Some(id), tx);
        true
    }

    /// An attempt has ended: here the roles part.
    pub(in crate::engine) fn end_lease(
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
                let host = runner.and_then(|id| self.runners.get(&id)).map(|runner| runner.row.host.as_str());
                workflow.end_action(number, finished, runner, host, tx);
            }
            LeaseRole::Recovery => workflow.end_recovery(number, finished, tx),
        }
        self.wake_version += 1;
    }

    /// A runner does not hold a lease any more.
    pub(in crate::engine) fn drop_lease(&mut self, target: LeaseTarget, holder: Option<RunnerId>) {
        if let Some(holder) = holder.and_then(|holder| self.runners.get_mut(&holder)) {
            holder.leases.remove(&target);
        }
    }

    /// A report that changes nothing is kept for the record all the same.
    fn refuse(&self, finished: &FinishedAttempt, tx: &mut Tx) -> bool {
        let FinishedAttempt { key, return_code, .. } = finished;
        let workflow = self.workflows.get(&WorkflowId(key.workflow));
        let name = workflow.and_then(|workflow| Some(workflow.graph.name(workflow.graph.ordinal(JobId(key.job))?)));
        let job = name.map_or_else(|| format!("job {}", key.job), |name| format!("job '{name}'"));
        let message =
            format!("attempt {} of {job} in run {} ended with {return_code} and counts no more", key.attempt, key.run);
        tx.event(workflow.map(Workflow::id), EventReason::ResultRefused, message);
        false
    }

    /// A runner does not have a lease any more: a promise is free again, a started attempt is lost.
    pub(in crate::engine) fn abandon_lease(
        &mut self,
        id: RunnerId,
        target: LeaseTarget,
        why: &str,
        reason: NotHeldReason,
        tx: &mut Tx,
    ) {
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
                self.wake_version += 1;
                return;
            }
            workflow.begin_next_attempt(target, tx);
        }
        self.wake_version += 1;
        let Some(workflow) = self.workflows.get_mut(&target.workflow) else { return };
        // What was canceled stays as it is, whatever turns up.
        let state = workflow.graph.ordinal(target.number).map(|job| workflow.graph.job(job).state());
        if let Some(lease) = expired.filter(|_| state != Some(JobState::Canceled)) {
            workflow.remember_expired_lease(lease, tx);
        }
    }
}

/// Whether the job's attempt has ended and is written down, and what follows is still to be decided.
fn awaits_more(state: JobState) -> bool {
    matches!(state, JobState::PendingFailed | JobState::Recovering)
}
