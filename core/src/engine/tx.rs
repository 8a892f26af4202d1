//! The transaction of a group of commands: its time, the numbers that it assigns, and its changes.

use torc_api::event_reason::EventReason;

use super::change_set::ChangeSet;
use crate::ids::{AllocationId, JobId, Now, ProfileId, RunnerId, WorkflowId};
use crate::rows::{AuditRow, Changes, EventRow, LastIds};

/// The time, numbers and changes of a group of commands that is written in one database transaction.
///
/// The numbers of a dropped transaction are assigned again, because nothing durable has them.
#[derive(Debug)]
pub struct Tx {
    /// Time of the commands.
    pub now: Now,
    pub(super) changes: ChangeSet,
    ids: LastIds,
}

impl Tx {
    /// Begins a transaction. `ids`: the highest numbers that were assigned before.
    pub(super) fn new(now: Now, ids: LastIds) -> Self {
        Self { now, changes: ChangeSet::default(), ids }
    }

    pub(super) fn next_workflow(&mut self) -> WorkflowId {
        WorkflowId(next(&mut self.ids.workflow))
    }

    /// Returns a number for a job or an action, which share a sequence.
    pub(super) fn next_job(&mut self) -> JobId {
        JobId(next(&mut self.ids.job))
    }

    pub(super) fn next_profile(&mut self) -> ProfileId {
        ProfileId(next(&mut self.ids.profile))
    }

    pub(super) fn next_runner(&mut self) -> RunnerId {
        RunnerId(next(&mut self.ids.runner))
    }

    /// Returns a number for a lease or a change of user data. They share a sequence, so that a lease number identifies the values that the lease was given.
    pub(super) fn next_lease(&mut self) -> i64 {
        next(&mut self.ids.lease_id)
    }

    pub(super) fn next_allocation(&mut self) -> AllocationId {
        AllocationId(next(&mut self.ids.allocation))
    }

    pub(super) fn event(&mut self, workflow: Option<WorkflowId>, reason: EventReason, message: String) {
        self.changes.event(EventRow {
            time_ms: self.now.wall_ms,
            workflow,
            reason: reason.to_string(),
            message,
            ..EventRow::default()
        });
    }

    /// Adds an entry to the audit log.
    pub fn audit(&mut self, row: AuditRow) {
        self.changes.audit(row);
    }

    /// Ends the transaction. Returns its changes and the highest assigned numbers.
    pub(super) fn finish(mut self) -> (Changes, LastIds) {
        let changes = self.changes.finish(&mut self.ids.event);
        (changes, self.ids)
    }
}

fn next(last: &mut i64) -> i64 {
    *last += 1;
    *last
}
