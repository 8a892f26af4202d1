//! The actions of a workflow: their triggers, and their state after an edit or a reset.
//!
//! An action waits until it is triggered, is then pending, and ends as executed, failed or skipped. An action for
//! every worker has one part for each worker. `leases::tasks` executes the commands.

mod end;
mod triggers;
mod view;
mod worker;

use torc_api::action::{Action, ActionState, TriggerType};
use torc_api::state::JobState;

use super::tx::Tx;
use super::workflow::{ActionRecord, Actions, LiveWorkflow, is_at_end};
use crate::ids::{JobId, RunnerId};
use crate::rows::{ActionRow, TaskLease};

/// Position of actions that are not in the document.
const RECOVERY_POSITION: i32 = -1;

/// Returns the row of a new action, which waits for its trigger.
fn new_row(workflow: &LiveWorkflow, id: JobId, position: usize) -> ActionRow {
    ActionRow {
        id,
        workflow: workflow.id(),
        position: position as i32,
        lease: TaskLease { run: workflow.row().run, attempt: 1, ..TaskLease::default() },
        ..ActionRow::default()
    }
}

/// Returns the row of a new action that recovery has created.
fn recovery_row(workflow: &LiveWorkflow, id: JobId, action: &Action) -> ActionRow {
    let definition = serde_json::to_string(action).ok();
    ActionRow { position: RECOVERY_POSITION, definition, ..new_row(workflow, id, 0) }
}

impl LiveWorkflow {
    /// Replaces the rows of the actions, sorted by number. Those that the document no longer has are left out.
    pub fn set_actions(&mut self, rows: Vec<ActionRow>) {
        let record = |row: ActionRow| {
            let definition = match row.definition.as_deref() {
                Some(text) => serde_json::from_str(text).ok(),
                None => self.spec().actions.get(usize::try_from(row.position).ok()?).cloned(),
            };
            Some((row, definition?))
        };
        let actions = Actions::new(rows.into_iter().filter_map(record));
        self.leases.retain_actions(|id| actions.find(id).is_some());
        self.actions = actions;
        self.set_gates();
    }

    /// Determines again which jobs the actions wait for, after jobs were added.
    pub fn update_gates(&mut self) {
        if !self.actions.is_empty() {
            self.set_actions(self.actions.rows());
        }
    }

    fn set_gates(&mut self) {
        if !self.actions.iter().any(|action| action.trigger().is_of_jobs()) {
            return;
        }
        let names: Vec<String> = self.graph.ordinals().map(|job| self.graph.name(job).to_owned()).collect();
        let definitions: Vec<Action> = self.actions.iter().map(|action| action.definition.clone()).collect();
        let selected = crate::expand::jobs_of_actions(&definitions, &names);
        let states: Vec<JobState> = self.graph.iter().map(|(_, record)| record.state()).collect();
        self.actions.set_gates(&selected, &states);
    }

    /// Triggers the actions whose condition holds.
    pub fn trigger_actions(&mut self, tx: &mut Tx) {
        let due = self.actions.open_ids(|action| action.row().state == ActionState::Waiting && self.is_due(action));
        for id in due {
            self.actions.trigger(id, tx);
        }
    }

    fn is_due(&self, action: &ActionRecord) -> bool {
        match action.trigger() {
            TriggerType::OnWorkflowStart => self.is_active(),
            TriggerType::OnWorkflowComplete => self.is_settled(),
            TriggerType::OnJobsReady | TriggerType::OnJobsComplete => action.is_ready() && !self.is_canceled(),
            TriggerType::OnWorkerStart | TriggerType::OnWorkerComplete => false,
        }
    }

    /// Returns whether jobs may be leased to a runner now. The start commands of the workflow come first, then those of the worker.
    pub fn may_lease_to(&self, runner: RunnerId) -> bool {
        self.is_active() && !self.is_starting() && !self.actions.is_preparing(runner)
    }

    /// Returns whether the start commands of the workflow have not ended. Nothing else of the workflow runs before.
    pub fn is_starting(&self) -> bool {
        let is_start_command = |action: &ActionRecord| {
            action.trigger() == TriggerType::OnWorkflowStart
                && action.is_for_runners()
                && (action.row().state == ActionState::Pending || self.is_active())
        };
        self.actions.open().any(is_start_command)
    }

    /// Returns whether everything has ended, including the commands that the end has triggered.
    pub fn is_over(&self) -> bool {
        self.is_settled() && !self.actions.has_open_commands()
    }

    /// Returns whether an action may still provide work or capacity: commands to run, or allocations to submit.
    pub fn may_add_capacity(&self) -> bool {
        let brings_nodes = |action: &ActionRecord| {
            !action.is_for_runners()
                && !is_at_end(action.trigger())
                && (action.row().state == ActionState::Pending || !self.is_settled() && !self.is_canceled())
        };
        self.actions.has_open_commands() || self.actions.open().any(brings_nodes)
    }

    /// Adds actions that recovery has planned.
    pub fn add_recovery_actions(&mut self, actions: impl IntoIterator<Item = Action>, tx: &mut Tx) {
        let mut rows = self.actions.rows();
        for action in actions {
            let row = recovery_row(self, tx.next_job(), &action);
            tx.changes.action(&row);
            rows.push(row);
        }
        self.set_actions(rows);
    }

    /// Removes the actions that recovery has planned.
    pub fn remove_recovery_actions(&mut self, tx: &mut Tx) {
        let (removed, kept): (Vec<_>, Vec<_>) =
            self.actions.rows().into_iter().partition(|row| row.definition.is_some());
        if removed.is_empty() {
            return;
        }
        removed.iter().for_each(|row| tx.changes.action_removed(row.id));
        self.set_actions(kept);
    }
}
