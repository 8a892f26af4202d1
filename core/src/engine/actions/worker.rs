//! What workers set off: their first look at a workflow, and their end.

use torc_api::action::{ActionState, TriggerType};

use super::arm::reset_trigger;
use super::new_row;
use crate::engine::action_list::ActionRecord;
use crate::engine::tx::Tx;
use crate::engine::workflow::Workflow;
use crate::ids::RunnerId;
use crate::rows::{ActionRow, RunnerRow};

impl Workflow {
    fn has_worker_actions(&self) -> bool {
        self.spec.actions.iter().any(|action| action.trigger_type.is_of_workers())
    }

    /// A worker asks for work of this workflow. The first time, its actions are set up.
    pub fn enter_worker(&mut self, worker: RunnerId, tx: &mut Tx) {
        if !self.has_worker_actions() || !self.is_active() {
            return;
        }
        let alone = |action: &ActionRecord| {
            action.trigger() == TriggerType::OnWorkerStart
                && action.row.worker.is_none()
                && action.row.state == ActionState::Waiting
        };
        for id in self.actions.open_ids(alone) {
            self.actions.change(id, tx, |row| fire(row, worker));
        }
        let positions: Vec<usize> = (0..self.spec.actions.len())
            .filter(|position| self.spec.actions[*position].is_for_every_worker())
            .filter(|position| !self.has_part(worker, *position))
            .collect();
        for position in positions {
            let mut row = new_row(self, tx.next_job(), position);
            row.worker = Some(worker);
            if self.spec.actions[position].trigger_type == TriggerType::OnWorkerStart {
                row.state = ActionState::Pending;
            }
            tx.changes.action(&row);
            self.add_part(row);
        }
    }

    fn has_part(&self, worker: RunnerId, position: usize) -> bool {
        self.actions.has_worker(worker)
            && self
                .actions
                .iter()
                .any(|action| action.row.worker == Some(worker) && usize::try_from(action.row.position) == Ok(position))
    }

    fn add_part(&mut self, row: ActionRow) {
        let Some(definition) = self.spec.actions.get(row.position as usize).cloned() else { return };
        self.actions.add_part(row, definition);
    }

    /// A worker has nothing more to do and is about to leave.
    pub fn complete_worker(&mut self, worker: &RunnerRow, tx: &mut Tx) {
        let was_there = self.was_active_since(worker.started_ms);
        let due = |action: &ActionRecord| {
            let concerned = match action.row.worker {
                Some(of) => of == worker.id,
                None => was_there,
            };
            action.trigger() == TriggerType::OnWorkerComplete && action.row.state == ActionState::Waiting && concerned
        };
        for id in self.actions.open_ids(due) {
            self.actions.change(id, tx, |row| fire(row, worker.id));
        }
    }

    /// Something of it has run, and not all of it had ended by then.
    fn was_active_since(&self, ms: i64) -> bool {
        self.row.started_ms.is_some() && self.row.completed_ms.is_none_or(|completed| completed >= ms)
    }

    /// A worker has left. What it has not done it will not do; what only one worker does is left to another.
    pub fn worker_left(&mut self, worker: RunnerId, tx: &mut Tx) {
        if !self.actions.has_worker(worker) {
            return;
        }
        for id in self.actions.open_ids(|action| action.row.worker == Some(worker)) {
            let is_part = self.actions.find(id).is_some_and(|action| action.definition.is_for_every_worker());
            self.actions.change(id, tx, |row| match is_part {
                false => reset_trigger(row),
                true => {
                    row.state = ActionState::Skipped;
                    row.lease.runner = None;
                    row.lease.started_ms = None;
                    row.message = Some("its worker left without it".to_owned());
                }
            });
        }
    }

    /// A worker goes on in the place of another.
    pub fn worker_succeeded(&mut self, earlier: RunnerId, worker: RunnerId, tx: &mut Tx) {
        if !self.actions.forget_worker(earlier) {
            return;
        }
        for id in self.actions.ids(|action| action.row.worker == Some(earlier)) {
            self.actions.change(id, tx, |row| row.worker = Some(worker));
        }
    }
}

fn fire(row: &mut ActionRow, worker: RunnerId) {
    row.worker = Some(worker);
    row.state = ActionState::Pending;
}
