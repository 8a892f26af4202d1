//! Deadlines of workflows (`activeDeadlineSeconds`).

use torc_api::event_reason::EventReason;
use torc_api::quantity::format_duration;

use super::leases::Leases;
use super::tx::Tx;
use super::workflow::LiveWorkflow;
use crate::ids::WorkflowId;

impl Leases<'_> {
    /// Cancels the workflows whose deadline has passed.
    pub(super) fn cancel_overdue(&mut self, tx: &mut Tx) {
        let overdue = self.workflows.live().filter(|workflow| is_overdue(workflow, tx.now.wall_ms));
        let overdue: Vec<WorkflowId> = overdue.map(LiveWorkflow::id).collect();
        for id in overdue {
            let Some(workflow) = self.workflows.get_mut(&id) else { continue };
            workflow.record.exceed_deadline(tx);
            tx.event(Some(id), EventReason::DeadlineExceeded, deadline_message(workflow));
            self.cancel_jobs(id, tx);
        }
    }
}

/// Returns whether the deadline has passed. It counts from the start of the first job.
fn is_overdue(workflow: &LiveWorkflow, now_ms: i64) -> bool {
    let deadline = workflow.spec().active_deadline_seconds.zip(workflow.row().started_ms);
    let is_past = |(seconds, start): (i64, i64)| now_ms >= start.saturating_add(seconds.saturating_mul(1_000));
    !workflow.is_canceled() && !workflow.is_settled() && deadline.is_some_and(is_past)
}

pub(super) fn deadline_message(workflow: &LiveWorkflow) -> String {
    let seconds = workflow.spec().active_deadline_seconds.unwrap_or_default();
    format!("it was still running {} after its start", format_duration(seconds))
}
