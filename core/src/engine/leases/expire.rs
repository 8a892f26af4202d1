//! Silent runners: they lose their unstarted leases, and after a longer time the started ones.

use super::{Leases, NotHeldReason};
use crate::engine::runners::LeaseTarget;
use crate::engine::runners::LiveRunner;
use crate::engine::tx::Tx;
use crate::engine::workflow::LiveWorkflow;
use crate::ids::RunnerId;
use torc_api::event_reason::EventReason;

/// Time after which a started lease of a silent runner is lost, unless the document sets another one. Long enough to outlast the restart of
/// a login node or a network switch.
const ORPHAN_AFTER_MS: u64 = 3_600_000;

impl Leases<'_> {
    /// Applies all time limits that have passed: deadlines, offers, return requests and the silence of runners. Cheap
    /// if none has.
    pub fn expire(&mut self, tx: &mut Tx) {
        self.cancel_overdue(tx);
        self.runners.expire_offers(tx.now);
        self.runners.expire_return_requests(tx.now);
        let silence = |runner: &LiveRunner| runner.silence_ms(tx.now);
        let is_silent = |runner: &LiveRunner| {
            let scope = self.workflows.live_in_scope(&runner.row().scope);
            silence(runner) > self.workflows.lease_of(runner, &scope)
        };
        let silent = self.runners.iter().filter(|(_, runner)| is_silent(runner));
        let silent: Vec<(RunnerId, u64)> = silent.map(|(id, runner)| (*id, silence(runner))).collect();
        for (id, silence_ms) in silent {
            self.expire_runner(id, silence_ms, tx);
        }
    }

    fn expire_runner(&mut self, id: RunnerId, silence_ms: u64, tx: &mut Tx) {
        let Some(runner) = self.runners.get_mut(&id) else { return };
        if runner.set_silent() {
            let (host, seconds) = (&runner.row().host, silence_ms / 1_000);
            tx.event(None, EventReason::RunnerSilent, format!("runner {id} on {host} has been silent for {seconds} s"));
        }
        let held = runner.leases.sorted();
        self.runners.remove_offer(id);
        for (target, _) in held {
            let Some(workflow) = self.workflows.get_mut(&target.workflow) else { continue };
            if !workflow.outlives_silence(target, silence_ms) {
                let why = "its runner has been silent for too long";
                self.abandon(id, target, why, NotHeldReason::Unknown, tx);
            }
        }
        self.end_all_revoked(id, "its runner became silent before it ended the attempt", |_| true, tx);
        self.forget_if_empty(id, tx);
    }

    /// Removes a silent or lost runner that holds nothing.
    pub fn forget_if_empty(&mut self, id: RunnerId, tx: &mut Tx) {
        if self.runners.get(&id).is_some_and(|runner| runner.leases.is_empty())
            && let Some(mut runner) = self.runners.remove(id)
        {
            runner.end(tx);
            self.forget_worker(id, tx);
        }
    }
}

impl LiveWorkflow {
    /// Returns whether a lease outlives the silence of its runner: it has started, and the time limit has not passed. Marks the attempt of
    /// such a job as unconfirmed.
    fn outlives_silence(&mut self, target: LeaseTarget, silence_ms: u64) -> bool {
        let has_started = self.current_lease(target).is_some_and(|lease| lease.started_ms.is_some());
        let is_over = self.orphan_after_ms().is_some_and(|limit_ms| silence_ms > limit_ms);
        if !has_started || is_over {
            return false;
        }
        let Some(job) = self.graph.ordinal(target.number).filter(|_| target.role.is_job()) else { return true };
        if self.should_terminate(job) {
            return false;
        }
        self.graph.set_unconfirmed(job, true);
        true
    }

    /// Returns the time after which a started lease of a silent runner is lost; none means never.
    fn orphan_after_ms(&self) -> Option<u64> {
        match self.spec().orphan_after.as_deref() {
            None => Some(ORPHAN_AFTER_MS),
            Some("never") => None,
            // The document was validated when it was applied.
            Some(text) => Some(
                torc_api::quantity::parse_duration(text)
                    .map_or(ORPHAN_AFTER_MS, |s| s.unsigned_abs().saturating_mul(1_000)),
            ),
        }
    }
}
