//! The transaction of a group of commands: its time, the numbers that it gives out, and what it changed.

use torc_api::event_reason::EventReason;

use super::change_set::ChangeSet;
use crate::ids::{AllocationId, JobId, Now, ProfileId, RunnerId, WorkflowId};
use crate::rows::{AuditRow, Changes, EventRow, LastIds};

/// What a group of commands shares until it is written in one database transaction.
///
/// A transaction that is dropped leaves no trace: its numbers are given out again, for nothing durable carries them.
#[derive(Debug)]
pub struct Tx {
    /// The time of the commands.
    pub now: Now,
    pub(super) changes: ChangeSet,
    ids: LastIds,
}

impl Tx {
    /// Begins a group. `ids` are the highest numbers that were given out before.
    pub(super) fn new(now: Now, ids: LastIds) -> Self {
        Self { now, changes: ChangeSet::default(), ids }
    }

    pub(super) fn next_workflow(&mut self) -> WorkflowId {
        WorkflowId(next(&mut self.ids.workflow))
    }

    /// Returns a number for a job or an action.
    pub(super) fn next_job(&mut self) -> JobId {
        JobId(next(&mut self.ids.job))
    }

    pub(super) fn next_profile(&mut self) -> ProfileId {
        ProfileId(next(&mut self.ids.profile))
    }

    pub(super) fn next_runner(&mut self) -> RunnerId {
        RunnerId(next(&mut self.ids.runner))
    }

    /// Returns a number for a lease or for a change of user data: one sequence, so that a lease's number tells which data it was given.
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

    /// Records who did something, or was refused.
    pub fn audit(&mut self, row: AuditRow) {
        self.changes.audit(row);
    }

    /// Ends the group: returns what has to be written, with its events numbered, and the highest numbers given out.
    pub(super) fn finish(mut self) -> (Changes, LastIds) {
        let changes = self.changes.finish(&mut self.ids.event);
        (changes, self.ids)
    }
}

fn next(last: &mut i64) -> i64 {
    *last += 1;
    *last
}
