//! Compares the leases that a runner reports with those that it should have: they are confirmed, released or abandoned.

use std::collections::HashSet;

use torc_api::event_reason::EventReason;
use torc_api::quantity::format_duration;
use torc_api::state::JobState;
use torc_api::wire::{AttemptKey, SyncRequest};

use super::{Leases, NotHeldReason};
use crate::engine::runners::LeaseTarget;
use crate::engine::tx::Tx;
use crate::engine::workflow::LiveWorkflow;
use crate::ids::{Now, RunnerId};
use crate::job::JobEvent;
use crate::rows::DetachedLease;
use crate::time::before;

impl Leases<'_> {
    /// Updates the leases of a runner from its message.
    pub fn ingest(&mut self, id: RunnerId, request: &SyncRequest, tx: &mut Tx) {
        self.update_waiting(id, request, tx.now);
        for key in &request.returned {
            let released = self.release_lease(id, key, tx);
            if let Some(target) = released.filter(|_| request.out_of_time.contains(key)) {
                self.report_out_of_time(id, target, tx);
            }
        }
        for running in &request.running {
            self.confirm_lease(id, &running.key, Some(before(tx.now.wall_ms, running.elapsed_ms)), tx);
        }
        for key in &request.queued {
            self.confirm_lease(id, key, None, tx);
        }
        self.abandon_missing(id, request, tx);
        if request.leaving {
            self.deregister(id, request, tx);
        }
    }

    /// Records which leases wait in a runner. Wakes other runners that could start one of them.
    fn update_waiting(&mut self, id: RunnerId, request: &SyncRequest, now: Now) {
        let classes = self.fleet(now).classes_of(&request.queued);
        // Another runner may have been polled before these leases waited here.
        if self.runners.set_waiting(id, request, classes) && self.fleet(now).has_other_candidate_for_any(id) {
            self.runners.wake();
        }
    }

    /// Releases a lease that its runner has returned unstarted. Returns the released target.
    fn release_lease(&mut self, id: RunnerId, key: &AttemptKey, tx: &mut Tx) -> Option<LeaseTarget> {
        if let Some(lease) = self.remove_revoked(id, key) {
            self.end_revoked(DetachedLease { started_ms: None, ..lease }, Err("its runner returned it"), tx);
            return None;
        }
        let target = self.workflows.held_by(id, key)?;
        if !self.workflows.get_mut(&target.workflow)?.release(target, tx) {
            return None;
        }
        self.runners.get_mut(&id)?.leases.remove(&target);
        self.runners.wake();
        Some(target)
    }

    /// Records an event for a lease that a runner has returned because its remaining time is too short.
    fn report_out_of_time(&self, id: RunnerId, target: LeaseTarget, tx: &mut Tx) {
        let (Some(runner), Some(workflow)) = (self.runners.get(&id), self.workflows.get(&target.workflow)) else {
            return;
        };
        let Some(job) = workflow.graph.ordinal(target.number).filter(|_| target.role.is_job()) else { return };
        let message = format!(
            "the runner on {} returned job '{}' without starting it: its remaining time is too short for a runtime of {}",
            runner.row().host,
            workflow.graph.name(job),
            format_duration(workflow.graph.profile(job).requirements.runtime_seconds),
        );
        tx.event(Some(target.workflow), EventReason::LeaseReturned, message);
    }

    /// Confirms a lease that a runner has, started at `started_ms` or waiting. An expired lease becomes the current one again if no newer
    /// lease has started.
    fn confirm_lease(&mut self, id: RunnerId, key: &AttemptKey, started_ms: Option<i64>, tx: &mut Tx) {
        let Some(target) = self.workflows.target_of(key) else { return };
        let Some(lease) = self.workflows.current_lease(target) else { return };
        let is_current = lease.is(key);
        let is_free = lease.runner.is_none_or(|holder| holder == id);
        let counts = match started_ms {
            Some(_) if is_current => is_free || lease.started_ms.is_none(),
            Some(_) => lease.key.run == key.run && self.revive(target, key.lease_id, tx),
            None => is_current && is_free,
        };
        let Some(workflow) = self.workflows.get_mut(&target.workflow).filter(|_| counts) else { return };
        if !workflow.confirm(target, id, started_ms, tx) {
            return;
        }
        self.drop_lease(target, lease.runner.filter(|holder| *holder != id));
        if let Some(runner) = self.runners.get_mut(&id) {
            runner.leases.confirm(target, *key);
        }
    }

    /// Abandons the leases that a runner does not name although it has received the answers that granted them.
    fn abandon_missing(&mut self, id: RunnerId, request: &SyncRequest, tx: &mut Tx) {
        let Some(runner) = self.runners.get_mut(&id).filter(|runner| !runner.leases.is_empty()) else { return };
        let running = request.running.iter().map(|running| &running.key);
        let named: HashSet<(i64, i64)> =
            request.queued.iter().chain(running).map(|key| (key.job, key.lease_id)).collect();
        let missing = runner.leases.remove_missing(request.acknowledged, &named);
        for lease in missing.revoked {
            self.end_revoked(lease, Err("its runner has terminated it"), tx);
        }
        // A runner knows what was started if it has received an answer, or if it has found the shim of its predecessor.
        let knows = request.acknowledged > 0 || request.shim_found;
        let reason = if knows { NotHeldReason::NotStarted } else { NotHeldReason::Unknown };
        for target in missing.held {
            self.abandon(id, target, "its runner no longer has it", reason, tx);
        }
    }

    /// Removes a runner that leaves.
    fn deregister(&mut self, id: RunnerId, request: &SyncRequest, tx: &mut Tx) {
        self.end_all_revoked(id, "its runner has left", |_| true, tx);
        let Some(mut runner) = self.runners.remove(id) else { return };
        runner.end(tx);
        tx.event(None, EventReason::RunnerLeft, format!("runner {id} on {} has left", runner.row().host));
        let queued: HashSet<(i64, i64)> = request.queued.iter().map(|key| (key.job, key.lease_id)).collect();
        for (target, held) in runner.leases.sorted() {
            let is_queued = queued.contains(&(target.number.0, held.key.lease_id));
            let reason = if is_queued { NotHeldReason::NotStarted } else { NotHeldReason::Unknown };
            self.abandon(id, target, "its runner left before it ended", reason, tx);
        }
        self.forget_worker(id, tx);
    }
}

impl LiveWorkflow {
    /// Confirms the current lease of a target. Returns whether the runner is a new holder or the lease has changed.
    fn confirm(&mut self, target: LeaseTarget, runner: RunnerId, started_ms: Option<i64>, tx: &mut Tx) -> bool {
        if !target.role.is_job() {
            self.confirm_task(target, runner, started_ms, tx);
            return true;
        }
        let Some(job) = self.graph.ordinal(target.number) else { return false };
        match (self.graph.job(job).state(), started_ms) {
            (JobState::Running, Some(_)) => {
                self.graph.set_unconfirmed(job, false);
                false
            }
            (JobState::Ready | JobState::Leased, Some(started_ms)) => {
                self.start(job, runner, started_ms, tx);
                true
            }
            (JobState::Ready, None) => {
                self.graph.set_runner(job, runner, None);
                let lease_id = self.graph.job(job).lease_id();
                self.renew_expired_lease(job, lease_id, tx);
                self.transition(job, JobEvent::Granted, tx).is_ok()
            }
            _ => false,
        }
    }

    fn start(&mut self, job: u32, runner: RunnerId, started_ms: i64, tx: &mut Tx) {
        self.forget_expired_leases(job, tx);
        self.graph.set_runner(job, runner, Some(started_ms));
        // A ready or leased job can always start.
        let _ = self.transition(job, JobEvent::Started, tx);
        self.record.start(started_ms.min(tx.now.wall_ms), tx);
    }
}
