//! Superseded leases that a runner may still execute.
//!
//! A *revoked* lease was superseded by an edit, a retry or a cancellation. Every answer to its runner cancels it, and its target starts
//! nothing newer before it has ended. A job also waits for the end of its recovery script, and an action for its earlier commands.
//!
//! An *expired* lease belongs to a runner that is silent or does not know it. Nothing waits for it. If its runner reports it again, it
//! counts as long as nothing newer has started. Only leases of jobs expire.

use std::collections::BTreeSet;

use torc_api::state::{Cause, JobState};
use torc_api::wire::{AttemptKey, FinishedAttempt, LeaseRole};

use super::Leases;
use crate::engine::reports::{AttemptRecord, cause_of, lost_attempt};
use crate::engine::runners::LeaseTarget;
use crate::engine::tx::Tx;
use crate::engine::workflow::LiveWorkflow;
use crate::ids::{RunnerId, WorkflowId};
use crate::job::JobEvent;
use crate::rows::{DetachedLease, DetachedState};

impl Leases<'_> {
    /// Revokes the lease of a job and that of its recovery script. The job waits for their ends as for its dependencies.
    pub fn revoke_leases_of_job(&mut self, id: WorkflowId, job: u32, tx: &mut Tx) {
        for role in [LeaseRole::Recovery, LeaseRole::Job] {
            let Some(workflow) = self.workflows.get(&id) else { return };
            let target = LeaseTarget { role, ..workflow.job_target(job) };
            if let Some(holder) = workflow.current_lease(target).and_then(|lease| lease.runner) {
                self.revoke_lease(holder, target, tx);
            }
        }
    }

    /// Revokes the leases of actions that were reset.
    pub fn revoke_stale_actions(&mut self, id: WorkflowId, tx: &mut Tx) {
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
        // The lease of an action that was reset is no longer the current one. Only the runner still has its key.
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
            state: DetachedState::Revoked,
            role: target.role,
        };
        if workflow.has_target(&target) {
            runner.leases.revoke(lease, held);
            workflow.await_end_of(&lease);
            tx.changes.detached(lease);
        }
    }

    /// Ends a revoked lease. If a job had started, its attempt is recorded as canceled, whatever its result is.
    pub fn end_revoked(&mut self, lease: DetachedLease, report: Result<&FinishedAttempt, &str>, tx: &mut Tx) {
        tx.changes.detached_ended(lease.lease_id);
        self.runners.wake();
        let Some(workflow) = self.workflows.get_mut(&lease.workflow) else { return };
        if lease.role.is_job() {
            workflow.record_revoked(&lease, report, tx);
        }
        workflow.end_awaited(&lease, tx);
    }

    /// Removes the revoked lease of a runner with this key.
    pub fn remove_revoked(&mut self, id: RunnerId, key: &AttemptKey) -> Option<DetachedLease> {
        self.runners.get_mut(&id)?.leases.remove_revoked(key)
    }

    /// Ends revoked leases of a runner that is gone or silent.
    pub fn end_all_revoked(&mut self, id: RunnerId, why: &str, which: impl Fn(&DetachedLease) -> bool, tx: &mut Tx) {
        let Some(runner) = self.runners.get_mut(&id) else { return };
        for lease in runner.leases.take_all_revoked(which) {
            self.end_revoked(lease, Err(why), tx);
        }
    }

    /// Makes an expired lease the current one again, unless something newer has started. A newer unstarted lease is revoked.
    ///
    /// The attempt number of the expired lease may be in use by the record of its loss or by the newer lease. The job then continues
    /// under the next number.
    pub(super) fn revive(&mut self, target: LeaseTarget, lease_id: i64, tx: &mut Tx) -> bool {
        let Some(workflow) = self.workflows.get(&target.workflow) else { return false };
        let Some(job) = workflow.graph.ordinal(target.number).filter(|_| target.role.is_job()) else { return false };
        let state = workflow.graph.job(job).state();
        let is_unstarted = matches!(state, JobState::Ready | JobState::Leased);
        if !is_unstarted || !workflow.has_expired_lease(job, lease_id) {
            return false;
        }
        let is_leased = state == JobState::Leased;
        if is_leased {
            self.revoke_leases_of_job(target.workflow, job, tx);
        }
        let Some(workflow) = self.workflows.get_mut(&target.workflow) else { return false };
        workflow.graph.restore_lease(job, lease_id, is_leased);
        if is_leased {
            let _ = workflow.transition(job, JobEvent::LeaseEnded, tx);
        }
        workflow.forget_expired_leases(job, tx);
        true
    }

    /// Resets a job whose lost attempt has succeeded, with its dependents, so that the late report becomes its result. A late failure
    /// changes nothing.
    pub(super) fn reset_after_late_success(
        &mut self,
        id: WorkflowId,
        job: u32,
        finished: &FinishedAttempt,
        tx: &mut Tx,
    ) -> bool {
        let is_canceled = self.workflows.get(&id).is_none_or(LiveWorkflow::is_canceled);
        if is_canceled || cause_of(finished).is_some() {
            return false;
        }
        self.reset(id, BTreeSet::from([job]), tx);
        let Some(workflow) = self.workflows.get_mut(&id) else { return false };
        workflow.graph.restore_lease(job, finished.key.lease_id, false);
        workflow.graph.job(job).state() == JobState::Ready
    }

    /// Restores a stored detached lease.
    pub fn restore_detached(&mut self, lease: DetachedLease) {
        let Some(workflow) = self.workflows.get_mut(&lease.workflow) else { return };
        if !workflow.has_target(&LeaseTarget::of(&lease)) {
            return;
        }
        match (lease.state, self.runners.get_mut(&lease.runner)) {
            (DetachedState::Expired, _) => workflow.leases.remember_expired(lease),
            (DetachedState::Revoked, Some(runner)) => {
                runner.leases.revoke(lease, None);
                workflow.await_end_of(&lease);
            }
            // The transaction in which a runner leaves ends its revoked leases.
            (DetachedState::Revoked, None) => {}
        }
    }
}

impl LiveWorkflow {
    /// Returns whether the target of a lease still exists.
    pub fn has_target(&self, target: &LeaseTarget) -> bool {
        match target.role {
            LeaseRole::Action => self.actions.find(target.number).is_some(),
            LeaseRole::Job | LeaseRole::Recovery => self.graph.ordinal(target.number).is_some(),
        }
    }

    /// Takes over the detached leases of the workflow before an edit, for jobs that still exist.
    pub fn inherit_leases(&mut self, old: &LiveWorkflow) {
        self.leases.inherit(&old.leases, |job| self.graph.ordinal(job).is_some());
        for job in self.graph.ordinals() {
            if let Some(before) = old.graph.ordinal(self.graph.job(job).id()).map(|before| old.graph.job(before)) {
                self.graph.set_unconfirmed(job, before.is_unconfirmed());
                for _ in 0..before.ending() {
                    self.await_end(job);
                }
            }
        }
    }

    /// Lets the target of a lease wait for its end.
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

    /// Counts the end of a revoked lease.
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

    /// Records the attempt of a revoked lease as canceled.
    fn record_revoked(&self, lease: &DetachedLease, report: Result<&FinishedAttempt, &str>, tx: &mut Tx) {
        let Some(job) = self.graph.ordinal(lease.job) else { return };
        let finished = match report {
            Ok(finished) => Some(finished.clone()),
            Err(why) => lease.started_ms.map(|started| lost_attempt(AttemptKey::default(), Some(started), why, tx.now)),
        };
        if let Some(finished) = finished {
            let message = finished.message.clone().or_else(|| Some("canceled by a later command".to_owned()));
            let finished = FinishedAttempt { message, ..finished };
            let record = AttemptRecord {
                run: lease.run,
                attempt: lease.attempt,
                state: JobState::Canceled,
                cause: Some(Cause::Canceled),
                runner: Some(lease.runner),
            };
            tx.changes.result(self.result_row(job, &finished, record, tx.now));
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
            state: DetachedState::Expired,
            role: target.role,
        })
    }

    /// Keeps an expired lease, in case its runner reports it again.
    pub(super) fn remember_expired_lease(&mut self, lease: DetachedLease, tx: &mut Tx) {
        self.leases.remember_expired(lease);
        tx.changes.detached(lease);
    }

    pub(super) fn has_expired_lease(&self, job: u32, lease_id: i64) -> bool {
        self.leases.expired_of(self.graph.job(job).id()).iter().any(|lease| lease.lease_id == lease_id)
    }

    /// Returns whether an expired lease may be executing the current attempt of a job.
    pub(super) fn attempt_is_unconfirmed(&self, job: u32) -> bool {
        let record = self.graph.job(job);
        self.leases.expired_of(record.id()).iter().any(|lease| lease.attempt == record.attempt())
    }

    /// Forgets expired leases of a job, because something newer has started or ended, or the job is reset.
    pub fn forget_expired_leases(&mut self, job: u32, tx: &mut Tx) {
        for lease in self.leases.remove_expired(self.graph.job(job).id()) {
            tx.changes.detached_ended(lease.lease_id);
        }
    }

    /// Forgets that a lease has expired, because its runner has confirmed it.
    pub(super) fn renew_expired_lease(&mut self, job: u32, lease_id: i64, tx: &mut Tx) {
        if self.leases.renew(self.graph.job(job).id(), lease_id) {
            tx.changes.detached_ended(lease_id);
        }
    }
}
