//! What silence does: a silent runner loses its promises, and after long enough what it had started.

use torc_api::event_reason::EventReason;

use super::NotHeldReason;
use crate::engine::Engine;
use crate::engine::held_leases::LeaseTarget;
use crate::engine::runners::Runner;
use crate::engine::tx::Tx;
use crate::engine::workflow::Workflow;
use crate::ids::RunnerId;

/// Time for which a started lease of a silent runner is waited for, unless the document says otherwise.
const ORPHAN_AFTER_MS: u64 = 3_600_000;

impl Engine {
    /// Looks at every deadline and at every runner's silence. Cheap when nothing is due.
    pub fn expire(&mut self, tx: &mut Tx) {
        self.end_overdue(tx);
        self.expire_offers(tx.now);
        self.expire_lease_requests(tx.now);
        let silence = |runner: &Runner| runner.silence_ms(tx.now);
        let is_silent =
            |runner: &Runner| silence(runner) > self.lease_of(runner, &self.live_in_scope(&runner.row.scope));
        let silent = self.runners.iter().filter(|(_, runner)| is_silent(runner));
        let silent: Vec<(RunnerId, u64)> = silent.map(|(id, runner)| (*id, silence(runner))).collect();
        for (id, silence_ms) in silent {
            self.expire_runner(id, silence_ms, tx);
        }
    }

    fn expire_runner(&mut self, id: RunnerId, silence_ms: u64, tx: &mut Tx) {
        let Some(runner) = self.runners.get_mut(&id) else { return };
        if runner.set_silent() {
            let (host, seconds) = (&runner.row.host, silence_ms / 1_000);
            tx.event(None, EventReason::RunnerSilent, format!("runner {id} on {host} has been silent for {seconds} s"));
        }
        let held = runner.leases.sorted();
        self.withdraw_offer(id);
        for (target, _) in held {
            let Some(workflow) = self.workflows.get_mut(&target.workflow) else { continue };
            if !workflow.waits_for_silent(target, silence_ms) {
                let why = "its runner has been silent for too long";
                self.abandon_lease(id, target, why, NotHeldReason::Unknown, tx);
            }
        }
        self.end_all_revoked(id, "its runner fell silent before it had ended it", |_| true, tx);
        self.forget_if_empty(id, tx);
    }

    /// A runner that is silent or lost and holds nothing has left without a word.
    pub(in crate::engine) fn forget_if_empty(&mut self, id: RunnerId, tx: &mut Tx) {
        if self.runners.get(&id).is_some_and(|runner| runner.leases.is_empty())
            && let Some(mut runner) = self.remove_runner(id)
        {
            runner.row.ended_ms = Some(tx.now.wall_ms);
            tx.changes.runner(&runner.row);
            self.forget_worker(id, tx);
        }
    }
}

impl Workflow {
    /// Whether a lease outlives the silence of its runner: it has started, and the time for which that is waited for has not passed.
    fn waits_for_silent(&mut self, target: LeaseTarget, silence_ms: u64) -> bool {
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

    /// Returns how long a started lease of a silent runner is waited for; none means forever.
    fn orphan_after_ms(&self) -> Option<u64> {
        match self.spec.orphan_after.as_deref() {
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
