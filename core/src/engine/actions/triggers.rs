//! Triggers of actions after a new or edited document, a reset of jobs, and a new run.

use std::collections::BTreeSet;

use torc_api::action::{ActionState, TriggerType};

use super::new_row;
use crate::engine::tx::Tx;
use crate::engine::workflow::{ActionRecord, LiveWorkflow};
use crate::ids::JobId;
use crate::rows::{ActionRow, TaskLease};

impl LiveWorkflow {
    /// Creates the rows for the actions of a new document.
    pub fn create_actions(&mut self, tx: &mut Tx) {
        self.carry_over_actions(None, tx);
    }

    /// Adopts the actions of an edited document. Equal ones keep their number and state, the others are created or removed.
    pub fn carry_over_actions(&mut self, old: Option<&LiveWorkflow>, tx: &mut Tx) {
        let mut rows: Vec<ActionRow> = Vec::new();
        let mut taken = BTreeSet::new();
        let old_records = || old.into_iter().flat_map(|old| old.actions.iter());
        for (position, action) in self.spec().actions.iter().enumerate() {
            let same = old.and_then(|old| {
                let mut known = (0..).zip(&old.spec().actions);
                known.find(|(at, known)| *known == action && !taken.contains(at)).map(|(at, _)| at)
            });
            match same {
                Some(at) => {
                    taken.insert(at);
                    let kept = old_records().filter(|record| record.row().position == at && !record.is_recovery());
                    rows.extend(kept.map(|record| ActionRow { position: position as i32, ..record.row().clone() }));
                }
                None => rows.push(new_row(self, tx.next_job(), position)),
            }
        }
        rows.extend(old_records().filter(|record| record.is_recovery()).map(|record| record.row().clone()));
        rows.sort_by_key(|row| row.id);
        rows.iter().for_each(|row| tx.changes.action(row));
        let kept: BTreeSet<JobId> = rows.iter().map(|row| row.id).collect();
        for id in old_records().map(|record| record.row().id).filter(|id| !kept.contains(id)) {
            tx.changes.action_removed(id);
        }
        self.set_actions(rows);
    }

    /// Resets actions after a reset of jobs, so that they wait for their triggers again: those at the end of the
    /// workflow or of a worker, those that wait for one of the jobs, and those that a cancellation has skipped. The
    /// start of the workflow is not repeated.
    pub fn reset_triggers(&mut self, jobs: &BTreeSet<u32>, tx: &mut Tx) {
        if self.actions.is_empty() || jobs.is_empty() {
            return;
        }
        let gated = self.actions.gated_by(jobs);
        let is_reset = |action: &ActionRecord| {
            let row = action.row();
            let is_concerned = match action.trigger() {
                TriggerType::OnWorkflowStart => row.state == ActionState::Skipped,
                TriggerType::OnJobsReady | TriggerType::OnJobsComplete => gated.contains(&row.id),
                TriggerType::OnWorkflowComplete => true,
                TriggerType::OnWorkerStart | TriggerType::OnWorkerComplete => !row.state.is_open(),
            };
            row.state != ActionState::Waiting && !action.is_worker_part() && is_concerned
        };
        for id in self.actions.ids(is_reset) {
            self.actions.reset(id, tx);
        }
    }

    /// Resets all actions for a new run. The parts of workers and the actions of recovery are removed.
    pub fn begin_run_of_actions(&mut self, tx: &mut Tx) {
        let run = self.row().run;
        let mut rows = Vec::new();
        for record in std::mem::take(&mut self.actions).into_records() {
            let known = record.row();
            if record.is_worker_part() || record.is_recovery() {
                tx.changes.action_removed(known.id);
                continue;
            }
            let row = ActionRow {
                id: known.id,
                workflow: known.workflow,
                position: known.position,
                lease: TaskLease { run, attempt: 1, ..TaskLease::default() },
                ..ActionRow::default()
            };
            tx.changes.action(&row);
            rows.push(row);
        }
        self.set_actions(rows);
    }
}
