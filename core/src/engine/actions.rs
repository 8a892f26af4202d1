//! The actions of a workflow: what sets them off, what arms them again, and what is left of them when somebody edits.
//!
//! An action waits, is pending once it was set off, and ends as executed, failed or skipped. What a worker sets off has a row
//! for each worker. Carrying them out is the business of tasks.

mod arm;
mod end;
mod view;
mod worker;

pub(super) use arm::{next_attempt, reset_trigger};
pub use view::PendingAllocation;

use torc_api::action::{Action, ActionState, TriggerType};
use torc_api::state::JobState;

use super::action_list::{ActionRecord, Actions};
use super::tx::Tx;
use super::workflow::Workflow;
use crate::ids::{JobId, RunnerId};
use crate::rows::{ActionRow, TaskLease};

/// Where actions are that the document does not have.
const RECOVERY_POSITION: i32 = -1;

/// A new action, not set off by anything yet.
fn new_row(workflow: &Workflow, id: JobId, position: usize) -> ActionRow {
    ActionRow {
        id,
        workflow: workflow.id(),
        position: position as i32,
        lease: TaskLease { run: workflow.row.run, attempt: 1, ..TaskLease::default() },
        ..ActionRow::default()
    }
}

/// A new action that recovery has made.
pub(super) fn recovery_row(workflow: &Workflow, id: JobId, action: &Action) -> ActionRow {
    let definition = serde_json::to_string(action).ok();
    ActionRow { position: RECOVERY_POSITION, definition, ..new_row(workflow, id, 0) }
}

impl Workflow {
    /// Takes over the rows of the workflow's actions, sorted by number. What the document no longer has is left out.
    pub fn set_actions(&mut self, rows: Vec<ActionRow>) {
        let record = |row: ActionRow| {
            let definition = self.definition_of(row.position, row.definition.as_deref())?;
            Some((row, definition))
        };
        let actions = Actions::new(rows.into_iter().filter_map(record));
        // Nothing waits for the end of what is no longer there.
        self.leases.retain_actions(|id| actions.find(id).is_some());
        self.actions = actions;
        self.set_gates();
    }

    /// There are other jobs than before: actions may wait for some of them.
    pub fn renew_gates(&mut self) {
        if !self.actions.is_empty() {
            let rows = self.actions.iter().map(|action| action.row.clone()).collect();
            self.set_actions(rows);
        }
    }

    /// Works out which jobs actions wait for. One that chooses none waits for all.
    fn set_gates(&mut self) {
        if !self.actions.iter().any(|action| action.trigger().is_of_jobs()) {
            return;
        }
        let names: Vec<String> = self.graph.all().map(|job| self.graph.name(job).to_owned()).collect();
        let definitions: Vec<Action> = self.actions.iter().map(|action| action.definition.clone()).collect();
        let chosen = crate::expand::jobs_of_actions(&definitions, &names);
        let states: Vec<JobState> = self.graph.iter().map(|(_, record)| record.state()).collect();
        self.actions.set_gates(&chosen, &states);
    }

    /// Sets off what waits for how things stand now.
    pub fn trigger_actions(&mut self, tx: &mut Tx) {
        let due = self.actions.open_ids(|action| action.row.state == ActionState::Waiting && self.is_due(action));
        for id in due {
            self.actions.change(id, tx, |row| row.state = ActionState::Pending);
        }
    }

    fn is_due(&self, action: &ActionRecord) -> bool {
        match action.trigger() {
            TriggerType::OnWorkflowStart => self.is_active(),
            TriggerType::OnWorkflowComplete => self.graph.is_settled(),
            TriggerType::OnJobsReady | TriggerType::OnJobsComplete => action.is_ready() && !self.is_canceled(),
            TriggerType::OnWorkerStart | TriggerType::OnWorkerComplete => false,
        }
    }

    /// It has something to do, and may do it.
    pub fn is_active(&self) -> bool {
        !self.graph.is_settled() && !self.is_suspended() && !self.is_canceled()
    }

    /// Whether jobs may be leased to a runner now: first the workflow starts, then the worker for it.
    pub fn may_lease_to(&self, runner: RunnerId) -> bool {
        self.is_active() && !self.is_starting() && !self.is_preparing(runner)
    }

    /// Its first commands have not ended, or are about to be set off: nothing else of it may run.
    pub fn is_starting(&self) -> bool {
        let starts = |action: &ActionRecord| {
            action.trigger() == TriggerType::OnWorkflowStart
                && action.is_for_runners()
                && (action.row.state == ActionState::Pending || self.is_active())
        };
        self.actions.open().any(starts)
    }

    /// The worker's first commands for it have not ended: it gets nothing else of it.
    pub fn is_preparing(&self, worker: RunnerId) -> bool {
        let prepares = |action: &ActionRecord| {
            action.trigger() == TriggerType::OnWorkerStart
                && action.row.worker == Some(worker)
                && action.is_for_runners()
        };
        self.actions.open().any(prepares)
    }

    /// Commands that were set off and that any of its runners may run have not ended.
    pub fn has_open_commands(&self) -> bool {
        let open = |action: &ActionRecord| {
            action.row.state == ActionState::Pending && action.row.worker.is_none() && action.is_for_runners()
        };
        self.actions.open().any(open)
    }

    /// Everything has ended, and so has what that set off.
    pub fn is_over(&self) -> bool {
        self.graph.is_settled() && !self.has_open_commands()
    }

    /// An action may still bring capacity or work: nodes that were or can yet be asked for, commands that have not ended.
    pub fn expects_capacity(&self) -> bool {
        let at_end = |trigger| matches!(trigger, TriggerType::OnWorkflowComplete | TriggerType::OnWorkerComplete);
        let nodes = |action: &ActionRecord| {
            !action.is_for_runners()
                && !at_end(action.trigger())
                && (action.row.state == ActionState::Pending || !self.graph.is_settled() && !self.is_canceled())
        };
        self.has_open_commands() || self.actions.open().any(nodes)
    }

    /// Of those that are set off together, one after the other is run, in the document's order.
    pub fn is_first_of_its_kind(&self, action: &ActionRecord) -> bool {
        let alike = |other: &&ActionRecord| {
            other.trigger() == action.trigger()
                && other.row.worker == action.row.worker
                && other.row.state == ActionState::Pending
                && other.is_for_runners()
        };
        let first = self.actions.open().filter(alike).min_by_key(|other| (other.row.position, other.row.id));
        action.trigger().is_of_jobs() || first.is_none_or(|first| first.row.id == action.row.id)
    }

    /// A person has cancelled the workflow: only what belongs to an end is still carried out.
    pub fn cancel_actions(&mut self, tx: &mut Tx) {
        let at_end = |trigger| matches!(trigger, TriggerType::OnWorkflowComplete | TriggerType::OnWorkerComplete);
        let obsolete = |action: &ActionRecord| action.row.state == ActionState::Pending && !at_end(action.trigger());
        for id in self.actions.open_ids(obsolete) {
            self.actions.change(id, tx, |row| {
                row.state = ActionState::Skipped;
                row.message = Some("the workflow was cancelled".to_owned());
            });
        }
    }
}
