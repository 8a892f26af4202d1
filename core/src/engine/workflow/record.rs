//! The row of a workflow, and the times and flags in it that commands change.

use crate::engine::tx::Tx;
use crate::rows::WorkflowRow;

/// The row of a workflow. Only this module writes its fields.
#[derive(Debug, PartialEq)]
pub(in crate::engine) struct WorkflowRecord {
    row: WorkflowRow,
}

impl WorkflowRecord {
    pub fn new(row: WorkflowRow) -> Self {
        Self { row }
    }

    pub fn row(&self) -> &WorkflowRow {
        &self.row
    }

    /// Adds the row to the changes of a transaction.
    pub fn save(&self, tx: &mut Tx) {
        tx.changes.workflow(&self.row);
    }

    /// Suspends the workflow. Returns whether it was not suspended before.
    pub fn suspend(&mut self, tx: &mut Tx) -> bool {
        let is_new = !std::mem::replace(&mut self.row.suspended, true);
        if is_new {
            self.save(tx);
        }
        is_new
    }

    pub fn cancel(&mut self, tx: &mut Tx) {
        self.row.canceled = true;
        self.save(tx);
    }

    /// Cancels the workflow because its deadline has passed.
    pub fn exceed_deadline(&mut self, tx: &mut Tx) {
        self.row.expired = true;
        self.cancel(tx);
    }

    /// Undoes a suspension and a cancellation.
    pub fn resume(&mut self, tx: &mut Tx) {
        self.row.suspended = false;
        self.uncancel(tx);
    }

    /// Undoes a cancellation by a command or a deadline.
    pub fn uncancel(&mut self, tx: &mut Tx) {
        self.row.canceled = false;
        self.row.expired = false;
        self.save(tx);
    }

    /// Begins a run, which is neither started nor canceled.
    pub fn begin_run(&mut self, run: i32, tx: &mut Tx) {
        self.row.run = run;
        self.row.started_ms = None;
        self.row.completed_ms = None;
        self.uncancel(tx);
    }

    /// Records the first start of a job in this run.
    pub fn start(&mut self, started_ms: i64, tx: &mut Tx) {
        if self.row.started_ms.is_none() {
            self.row.started_ms = Some(started_ms);
            self.save(tx);
        }
    }

    /// Records the end of everything in this run.
    pub fn complete(&mut self, tx: &mut Tx) {
        self.row.completed_ms = Some(tx.now.wall_ms);
        self.save(tx);
    }

    /// Reopens a workflow. If it had completed, its start time is recorded again.
    pub fn reopen(&mut self, tx: &mut Tx) {
        if self.row.completed_ms.take().is_some() {
            self.row.started_ms = None;
        }
        self.save(tx);
    }

    /// Replaces the conditions, as JSON.
    pub fn set_conditions(&mut self, conditions: String, tx: &mut Tx) {
        self.row.conditions = conditions;
        self.save(tx);
    }

    /// Replaces the schedulers that recovery has planned, as JSON.
    pub fn set_recovery_schedulers(&mut self, schedulers: String, tx: &mut Tx) {
        self.row.recovery_schedulers = schedulers;
        self.save(tx);
    }
}
