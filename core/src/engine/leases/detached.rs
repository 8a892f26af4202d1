//! Leases that their targets no longer go by, but that a runner may still act upon.
//!
//! One that was *revoked*, by an edit, a retry or a cancellation: its runner is told to end it in every answer, and nothing newer of its
//! target starts before it has. A job waits for the end of its script likewise, and an action for the end of its earlier commands.
//!
//! One that has *expired* is waited for by nothing, because its runner is silent or knows nothing of it. If it turns up all the same it
//! counts, as long as nothing newer has started. Only leases of jobs expire so.

use std::collections::BTreeSet;

use torc_api::state::{Cause, JobState};
use torc_api::wire::{AttemptKey, FinishedAttempt, LeaseRole};

use crate::engine::Engine;
use crate::engine::held_leases::LeaseTarget;
use crate::engine::reports::{cause_of, lost_attempt};
use crate::engine::tx::Tx;
use crate::engine::workflow::Workflow;
use crate::ids::{RunnerId, WorkflowId};
use crate::job::JobEvent;
use crate::rows::{DetachedLease, DetachedState};

impl Engine {
    /// Revokes the lease of a job and that of its recovery script. Until they have ended, the job waits for them as for jobs that it
    /// depends on.
    pub(in crate::engine) fn revoke_leases_of_job(&mut self, id: WorkflowId, job: u32, tx: &mut Tx) {
        for role in [LeaseRole::Recovery, LeaseRole::Job] {
            let Some(workflow) = self.workflows.get(&id) else { return };
            let target = LeaseTarget { role, ..workflow.job_target(job) };
            if let Some(holder) = workflow.current_lease(target).and_then(|lease| lease.runner) {
                self.revoke_lease(holder, target, tx);
            }
        }
    }

    /// Revokes the leases of actions that wait to be fired again meanwhile.
    pub(in crate::engine) fn revoke_stale_actions(&mut self, id: WorkflowId, tx: &mut Tx) {
        let Some(workflow) = self.workflows.get(&id) else { return };
        let mut stale: Vec<(RunnerId, LeaseTarget)> = Vec::new();
        for (runner, of) in self.runners.iter() {
            let actions =
                of.leases.iter().filter(|(target, _)| target.workflow == id && target.role == LeaseRole::Action);
            let is_stale = |target: LeaseTarget, key: &AttemptKey| {
                workflow.current_lease(target).is_none_or(|lease| lease.key != *key)
            };
            stale.extend(
                actions.filter(|(target, held)| is_stale(**target, &held.key)).map(|(target, _)| (*runner, *target)),
            );
        }
        stale.sort_unstable();
        for (runner, target) in stale {
            self.revoke_lease(runner, target, tx);
        }
    }

    fn revoke_lease(&mut self, holder: RunnerId, target: LeaseTarget, tx: &mut Tx) {
        let Some(workflow) = self.workflows.get_mut(&target.workflow) else { return };
        let Some(runner) = self.runners.get_mut(&holder) else { return };
        let held = runner.leases.remove(&target);
        // The lease of an action is no longer current when its action was reset: then the key that the runner has is all that is known.
        let current = workflow.current_lease(target).filter(|lease| lease.runner == Some(holder));
        let Some(key) = current.map(|lease| lease.key).or(held.map(|held| held.key)) else { return };
        let lease = DetachedLease {
            lease_id: key.lease_id,
            workflow: target.workflow,
            job: target.number,
            run: key.run,
            attempt: key.attempt,
            runner: holder,
            started_ms: current.and_then(|lease| lease.started_ms),
            fate: DetachedState::Revoked,
            role: target.role,
        };
        if workflow.has_target(&target) {
            runner.leases.revoke(lease, held);
            workflow.await_end_of(&lease);
            tx.changes.detached(lease);
        }
    }

    /// A revoked lease has ended. With a report, or when it had started, an attempt of a job is written down: as canceled, whatever came
    /// of it, because it was no longer wanted.
    pub(in crate::engine) fn end_revoked(
        &mut self,
        lease: DetachedLease,
        report: Result<&FinishedAttempt, &str>,
        tx: &mut Tx,
    ) {
        tx.changes.detached_ended(lease.lease_id);
        self.wake_version += 1;
        let Some(workflow) = self.workflows.get_mut(&lease.workflow) else { return };
        if lease.role.is_job() {
            workflow.record_revoked(&lease, report, tx);
        }
        workflow.end_awaited(&lease, tx);
    }

    /// Removes the lease of this key from those that a runner is to end.
    pub(in crate::engine) fn take_revoked(&mut self, id: RunnerId, key: &AttemptKey) -> Option<DetachedLease> {
        self.runners.get_mut(&id)?.leases.take_revoked(key)
    }

    /// What a runner was to end is over: it is gone, or so silent that nothing waits for it.
    pub(in crate::engine) fn end_all_revoked(
        &mut self,
        id: RunnerId,
        why: &str,
        which: impl Fn(&DetachedLease) -> bool,
        tx: &mut Tx,
    ) {
        let Some(runner) = self.runners.get_mut(&id) else { return };
        for lease in runner.leases.take_all_revoked(which) {
            self.end_revoked(lease, Err(why), tx);
        }
    }

    /// An expired lease turns up again. It counts if nothing newer has started; a newer promise is revoked then.
    /// Its number may be taken, by the record of its loss or by that promise: the job then goes on under the next free one.
    pub(super) fn revive(&mut self, target: LeaseTarget, lease_id: i64, tx: &mut Tx) -> bool {
        let Some(workflow) = self.workflows.get(&target.workflow) else { return false };
        let Some(job) = workflow.graph.ordinal(target.number).filter(|_| target.role.is_job()) else { return false };
        let state = workflow.graph.job(job).state();
        let is_unstarted = matches!(state, JobState::Ready | JobState::Leased);
        if !is_unstarted || !workflow.has_expired_lease(job, lease_id) {
            return false;
        }
        let is_promised = state == JobState::Leased;
        if is_promised {
            self.revoke_leases_of_job(target.workflow, job, tx);
        }
        let Some(workflow) = self.workflows.get_mut(&target.workflow) else { return false };
        workflow.graph.restore_lease(job, lease_id, is_promised);
        if is_promised {
            let _ = workflow.transition(job, JobEvent::LeaseEnded, tx);
        }
        workflow.forget_expired_leases(job, tx);
        true
    }

    /// A job that has failed because its attempt was lost turns out to have succeeded: it is as if it ran again, with everything that
    /// depends on it, and this is its result. Another failure changes nothing.
    pub(super) fn undo_loss(&mut self, id: WorkflowId, job: u32, finished: &FinishedAttempt, tx: &mut Tx) -> bool {
        let is_canceled = self.workflows.get(&id).is_none_or(Workflow::is_canceled);
        if is_canceled || cause_of(finished).is_some() {
            return false;
        }
        self.reset(id, BTreeSet::from([job]), tx);
        let Some(workflow) = self.workflows.get_mut(&id) else { return false };
        workflow.graph.restore_lease(job, finished.key.lease_id, false);
        workflow.graph.job(job).state() == JobState::Ready
    }

    /// Takes up a detached lease that the store knows.
    pub(in crate::engine) fn restore_detached(&mut self, lease: DetachedLease) {
        let Some(workflow) = self.workflows.get_mut(&lease.workflow) else { return };
        if !workflow.has_target(&LeaseTarget::of(&lease)) {
            return;
        }
        match (lease.fate, self.runners.get_mut(&lease.runner)) {
            (DetachedState::Expired, _) => workflow.leases.remember_expired(lease),
            (DetachedState::Revoked, Some(runner)) => {
                runner.leases.revoke(lease, None);
                workflow.await_end_of(&lease);
            }
            // A runner that leaves takes what it was to end along, in the same commit.
            (DetachedState::Revoked, None) => {}
        }
    }
}

impl Workflow {
    /// Whether what a lease is of is still there.
    pub(in crate::engine) fn has_target(&self, target: &LeaseTarget) -> bool {
        match target.role {
            LeaseRole::Action => self.actions.find(target.number).is_some(),
            LeaseRole::Job | LeaseRole::Recovery => self.graph.ordinal(target.number).is_some(),
        }
    }

    /// Takes over the detached leases of the workflow as it was before an edit, of jobs that are still there.
    pub(in crate::engine) fn inherit_leases(&mut self, old: &Workflow) {
        let mut leases = std::mem::take(&mut self.leases);
        leases.inherit(&old.leases, |job| self.graph.ordinal(job).is_some());
        self.leases = leases;
        for job in self.graph.all() {
            if let Some(before) = old.graph.ordinal(self.graph.job(job).id()).map(|before| old.graph.job(before)) {
                self.graph.set_unconfirmed(job, before.is_unconfirmed());
                for _ in 0..before.ending() {
                    self.await_end(job);
                }
            }
        }
    }

    /// One more lease has to end, before what it is a lease of goes on.
    fn await_end_of(&mut self, lease: &DetachedLease) {
        if lease.role == LeaseRole::Action {
            self.leases.action_revoked(lease.job);
        } else if let Some(job) = self.graph.ordinal(lease.job) {
            self.await_end(job);
        }
    }

    fn await_end(&mut self, job: u32) {
        self.graph.await_lease_end(job);
        self.leases.job_revoked();
    }

    /// One lease less has to end.
    fn end_awaited(&mut self, lease: &DetachedLease, tx: &mut Tx) {
        if lease.role == LeaseRole::Action {
            return self.leases.action_ended(lease.job);
        }
        let Some(job) = self.graph.ordinal(lease.job) else { return };
        self.leases.job_ended();
        if self.graph.lease_ended(job) {
            // A blocked job can always become ready.
            let _ = self.transition(job, JobEvent::DependenciesMet, tx);
        }
    }

    fn record_revoked(&self, lease: &DetachedLease, report: Result<&FinishedAttempt, &str>, tx: &mut Tx) {
        let Some(job) = self.graph.ordinal(lease.job) else { return };
        let finished = match report {
            Ok(finished) => Some(finished.clone()),
            Err(why) => lease.started_ms.map(|started| lost_attempt(AttemptKey::default(), Some(started), why, tx.now)),
        };
        if let Some(finished) = finished {
            let message = finished.message.clone().or_else(|| Some("it was no longer wanted".to_owned()));
            let finished = FinishedAttempt { message, ..finished };
            let outcome = (JobState::Canceled, Some(Cause::Canceled));
            let (attempt, runner) = ((lease.run, lease.attempt), Some(lease.runner));
            tx.changes.result(self.result_row(job, attempt, &finished, outcome, runner, tx.now));
        }
    }

    /// Returns the current lease of a job as an expired one.
    pub(super) fn lease_to_expire(&self, target: LeaseTarget) -> Option<DetachedLease> {
        let lease = self.current_lease(target).filter(|_| target.role.is_job())?;
        Some(DetachedLease {
            lease_id: lease.key.lease_id,
            workflow: target.workflow,
            job: target.number,
            run: lease.key.run,
            attempt: lease.key.attempt,
            runner: lease.runner?,
            started_ms: lease.started_ms,
            fate: DetachedState::Expired,
            role: target.role,
        })
    }

    /// Remembers a lease of whose runner nothing is known.
    pub(super) fn remember_expired_lease(&mut self, lease: DetachedLease, tx: &mut Tx) {
        self.leases.remember_expired(lease);
        tx.changes.detached(lease);
    }

    pub(super) fn has_expired_lease(&self, job: u32, lease_id: i64) -> bool {
        self.leases.expired_of(self.graph.job(job).id()).iter().any(|lease| lease.lease_id == lease_id)
    }

    /// Whether the number of the job's present attempt may be in use by a runner of which nothing is known.
    pub(super) fn attempt_is_unconfirmed(&self, job: u32) -> bool {
        let record = self.graph.job(job);
        self.leases.expired_of(record.id()).iter().any(|lease| lease.attempt == record.attempt())
    }

    /// Expired leases do not count any more: something newer has started or ended, or the job is to run anew.
    pub(in crate::engine) fn forget_expired_leases(&mut self, job: u32, tx: &mut Tx) {
        for lease in self.leases.take_expired(self.graph.job(job).id()) {
            tx.changes.detached_ended(lease.lease_id);
        }
    }

    /// A runner confirms a lease that had expired.
    pub(super) fn renew_expired_lease(&mut self, job: u32, lease_id: i64, tx: &mut Tx) {
        if self.leases.renew(self.graph.job(job).id(), lease_id) {
            tx.changes.detached_ended(lease_id);
        }
    }
}
