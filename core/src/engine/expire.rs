//! What the passing of time does: workflows run out of theirs, silent runners lose their promises, and after long enough their
//! started jobs.

use torc_api::state::JobState;

use super::Engine;
use super::holdings::NotHeldReason;
use super::runner::Runner;
use super::tx::Tx;
use super::workflow::Workflow;
use crate::ids::{JobId, RunnerId, WorkflowId};

/// How long a started job of a silent runner is waited for, unless the document says otherwise.
const ORPHAN_AFTER_MS: u64 = 3_600_000;

impl Engine {
    /// Looks at every deadline and at every runner's silence. Cheap when nothing is due.
    pub fn expire(&mut self, tx: &mut Tx) {
        self.end_overdue(tx);
        self.expire_offers(tx.now);
        self.expire_lease_requests(tx.now);
        let silent: Vec<RunnerId> = self
            .runners
            .iter()
            .filter(|(_, runner)| {
                let silence = tx.now.mono_ms.saturating_sub(runner.heard_ms);
                silence > self.lease_of(runner, &self.live_in_scope(&runner.row.scope))
            })
            .map(|(id, _)| *id)
            .collect();
        for id in silent {
            self.expire_runner(id, tx);
        }
    }

    fn expire_runner(&mut self, id: RunnerId, tx: &mut Tx) {
        let Some(runner) = self.runners.get_mut(&id) else { return };
        let first_time = !std::mem::replace(&mut runner.silent, true);
        let silence_ms = tx.now.mono_ms.saturating_sub(runner.heard_ms);
        let host = runner.row.host.clone();
        let mut held: Vec<(JobId, WorkflowId)> = runner.held.iter().map(|(job, h)| (*job, h.workflow)).collect();
        held.sort_unstable();
        self.withdraw_offer(id);
        if first_time {
            let message = format!("runner {id} on {host} has been silent for {} s", silence_ms / 1_000);
            tx.event(None, "RunnerSilent", message);
        }
        for (job_id, workflow_id) in held {
            let Some(workflow) = self.workflows.get_mut(&workflow_id) else { continue };
            let Some(job) = workflow.ordinal(job_id) else { continue };
            let patience_over = workflow.orphan_after_ms().is_some_and(|patience| silence_ms > patience);
            let should_terminate = workflow.should_terminate(job);
            let record = &mut workflow.jobs[job as usize];
            if record.state == JobState::Running && !patience_over && !should_terminate {
                record.unconfirmed = true;
                continue;
            }
            let why = "its runner has been silent for too long";
            self.abandon_lease(id, (workflow_id, job_id), why, NotHeldReason::None, tx);
        }
        self.end_all_revoked(id, "its runner fell silent before it had ended it", tx);
        self.expire_tasks(id, silence_ms, tx);
        self.forget_if_empty(id, tx);
    }

    /// A runner that is silent or lost and holds nothing has left without a word.
    pub(super) fn forget_if_empty(&mut self, id: RunnerId, tx: &mut Tx) {
        let holds_nothing =
            |runner: &Runner| runner.held.is_empty() && runner.tasks.is_empty() && runner.ending.is_empty();
        if self.runners.get(&id).is_some_and(holds_nothing)
            && let Some(mut runner) = self.remove_runner(id)
        {
            runner.row.ended_ms = Some(tx.now.wall_ms);
            tx.changes.runner(&runner.row);
            self.forget_worker(id, tx);
        }
    }
}

impl Workflow {
    /// None means for ever.
    pub(super) fn orphan_after_ms(&self) -> Option<u64> {
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
