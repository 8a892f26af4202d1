//! Arming: new documents, edited documents, jobs that run again, new runs.

use std::collections::BTreeSet;

use torc_api::action::{ActionState, TriggerType};

use super::new_row;
use crate::engine::action_list::ActionRecord;
use crate::engine::tx::Tx;
use crate::engine::workflow::Workflow;
use crate::ids::JobId;
use crate::rows::{ActionRow, TaskLease};

impl Workflow {
    /// Rows for the actions of a new document.
    pub fn create_actions(&mut self, tx: &mut Tx) {
        self.adopt_actions(None, tx);
    }

    /// Actions that an edited document still has keep their number and where they stand; the others go.
    pub fn adopt_actions(&mut self, old: Option<&Workflow>, tx: &mut Tx) {
        let mut rows: Vec<ActionRow> = Vec::new();
        let mut taken = BTreeSet::new();
        for (position, action) in self.spec.actions.iter().enumerate() {
            let same = old.and_then(|old| {
                let mut known = (0..).zip(&old.spec.actions);
                known.find(|(at, known)| *known == action && !taken.contains(at)).map(|(at, _)| at)
            });
            match (old, same) {
                (Some(old), Some(at)) => {
                    taken.insert(at);
                    let kept = old.actions.iter().filter(|record| record.row.position == at && !record.is_recovery());
                    rows.extend(kept.map(|record| ActionRow { position: position as i32, ..record.row.clone() }));
                }
                _ => rows.push(new_row(self, tx.next_job(), position)),
            }
        }
        rows.extend(
            old.into_iter()
                .flat_map(|old| old.actions.iter())
                .filter(|one| one.is_recovery())
                .map(|one| one.row.clone()),
        );
        rows.sort_by_key(|row| row.id);
        rows.iter().for_each(|row| tx.changes.action(row));
        let kept: BTreeSet<JobId> = rows.iter().map(|row| row.id).collect();
        for record in old.into_iter().flat_map(|old| old.actions.iter()) {
            if !kept.contains(&record.row.id) {
                tx.changes.action_removed(record.row.id);
            }
        }
        self.set_actions(rows);
    }

    /// These jobs run again. What their workflow's end set off is set off again by its next end; what waited for one of these
    /// jobs waits again; the workflow's start is over. What a cancellation has skipped is wanted again.
    pub fn reset_triggers(&mut self, jobs: &BTreeSet<u32>, tx: &mut Tx) {
        if self.actions.is_empty() || jobs.is_empty() {
            return;
        }
        let gated = self.actions.gated_by(jobs);
        let again = |action: &ActionRecord| {
            let is_armed = action.row.state == ActionState::Waiting;
            let is_part = action.row.worker.is_some() && action.definition.is_for_every_worker();
            let is_due = match action.trigger() {
                TriggerType::OnWorkflowStart => action.row.state == ActionState::Skipped,
                TriggerType::OnJobsReady | TriggerType::OnJobsComplete => gated.contains(&action.row.id),
                TriggerType::OnWorkflowComplete => true,
                TriggerType::OnWorkerStart | TriggerType::OnWorkerComplete => !action.row.state.is_open(),
            };
            !is_armed && !is_part && is_due
        };
        for id in self.actions.ids(again) {
            self.actions.change(id, tx, reset_trigger);
        }
    }

    /// A new run begins: everything is armed, and every worker starts anew.
    pub fn begin_run_of_actions(&mut self, tx: &mut Tx) {
        let run = self.row.run;
        let mut rows = Vec::new();
        for record in std::mem::take(&mut self.actions).into_records() {
            let is_part = record.row.worker.is_some() && record.definition.is_for_every_worker();
            if is_part || record.is_recovery() {
                tx.changes.action_removed(record.row.id);
                continue;
            }
            let row = ActionRow {
                id: record.row.id,
                workflow: record.row.workflow,
                position: record.row.position,
                lease: TaskLease { run, attempt: 1, ..TaskLease::default() },
                ..ActionRow::default()
            };
            tx.changes.action(&row);
            rows.push(row);
        }
        self.set_actions(rows);
    }
}

/// It waits again. The attempts so far are history, and one that a runner still has is no longer current.
pub(in crate::engine) fn reset_trigger(row: &mut ActionRow) {
    row.state = ActionState::Waiting;
    row.worker = None;
    next_attempt(&mut row.lease);
    row.lease.tries = 0;
}

/// The present attempt is over; one that nobody was promised is still to come.
pub(in crate::engine) fn next_attempt(task: &mut TaskLease) {
    if task.lease_id > 0 {
        task.attempt += 1;
        task.lease_id = 0;
    }
    task.runner = None;
    task.started_ms = None;
}
