//! `activeDeadlineSeconds`: a workflow that has been running for so long is stopped.

use torc_api::event_reason::EventReason;
use torc_api::quantity::format_duration;

use super::Engine;
use super::tx::Tx;
use super::workflow::Workflow;
use crate::ids::WorkflowId;

impl Engine {
    /// Stops every workflow that has run for as long as it may.
    pub(super) fn end_overdue(&mut self, tx: &mut Tx) {
        let overdue =
            |id: &&WorkflowId| self.workflows.get(id).is_some_and(|workflow| workflow.is_overdue(tx.now.wall_ms));
        let overdue: Vec<WorkflowId> = self.live.iter().filter(overdue).copied().collect();
        for id in overdue {
            let Some(workflow) = self.workflows.get_mut(&id) else { continue };
            workflow.row.canceled = true;
            workflow.row.expired = true;
            let message = workflow.deadline_message();
            tx.changes.workflow(&workflow.row);
            tx.event(Some(id), EventReason::DeadlineExceeded, message);
            self.cancel_jobs(id, tx);
        }
    }
}

impl Workflow {
    /// Its time is up, and nobody has stopped it yet. What waits for its first start uses up none of it.
    fn is_overdue(&self, now_ms: i64) -> bool {
        let deadline = self.spec.active_deadline_seconds.zip(self.row.started_ms);
        let is_past = |(seconds, start): (i64, i64)| now_ms >= start.saturating_add(seconds.saturating_mul(1_000));
        !self.is_canceled() && !self.graph.is_settled() && deadline.is_some_and(is_past)
    }

    pub(super) fn deadline_message(&self) -> String {
        let seconds = self.spec.active_deadline_seconds.unwrap_or_default();
        format!("it was still running {} after its start", format_duration(seconds))
    }
}
