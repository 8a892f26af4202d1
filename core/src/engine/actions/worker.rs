//! Actions that workers trigger: by their first request for work of a workflow, and by their end.

use torc_api::action::{ActionState, TriggerType};

use super::new_row;
use crate::engine::tx::Tx;
use crate::engine::workflow::{ActionRecord, LiveWorkflow};
use crate::ids::RunnerId;
use crate::rows::RunnerRow;

impl LiveWorkflow {
    /// Triggers the start actions of a worker at its first request for work.
    pub fn trigger_worker_start(&mut self, worker: RunnerId, tx: &mut Tx) {
        let has_worker_actions = self.spec().actions.iter().any(|action| action.trigger_type.is_of_workers());
        if !has_worker_actions || !self.is_active() {
            return;
        }
        let is_due = |action: &ActionRecord| {
            action.trigger() == TriggerType::OnWorkerStart
                && action.row().worker.is_none()
                && action.row().state == ActionState::Waiting
        };
        for id in self.actions.open_ids(is_due) {
            self.actions.trigger_for(id, worker, tx);
        }
        let missing: Vec<usize> = (0..self.spec().actions.len())
            .filter(|position| self.spec().actions[*position].is_for_every_worker())
            .filter(|position| !self.actions.has_part(worker, *position))
            .collect();
        for position in missing {
            let definition = self.spec().actions[position].clone();
            let mut row = new_row(self, tx.next_job(), position);
            row.worker = Some(worker);
            if definition.trigger_type == TriggerType::OnWorkerStart {
                row.state = ActionState::Pending;
            }
            tx.changes.action(&row);
            self.actions.add_part(row, definition);
        }
    }

    /// Triggers the end actions of a worker that is about to leave.
    pub fn complete_worker(&mut self, worker: &RunnerRow, tx: &mut Tx) {
        let was_active = self.was_active_since(worker.started_ms);
        let is_due = |action: &ActionRecord| {
            let is_concerned = match action.row().worker {
                Some(of) => of == worker.id,
                None => was_active,
            };
            let is_waiting = action.row().state == ActionState::Waiting;
            action.trigger() == TriggerType::OnWorkerComplete && is_waiting && is_concerned
        };
        for id in self.actions.open_ids(is_due) {
            self.actions.trigger_for(id, worker.id, tx);
        }
    }

    /// Returns whether the workflow has started and had not ended before this time.
    fn was_active_since(&self, ms: i64) -> bool {
        self.row().started_ms.is_some() && self.row().completed_ms.is_none_or(|completed| completed >= ms)
    }
}
