//! Arming: new documents, edited documents, jobs that run again, new runs.

use std::collections::BTreeSet;

use torc_api::action::{ActionState, TriggerType};

use super::{ActionRecord, new_row};
use crate::engine::record::Recorder;
use crate::engine::workflow::Workflow;
use crate::ids::JobId;
use crate::rows::{ActionRow, Errand};

impl Workflow {
    /// Rows for the actions of a new document.
    pub fn create_actions(&mut self, last_number: &mut i64, recorder: &mut Recorder) {
        self.adopt_actions(None, last_number, recorder);
    }

    /// Actions that an edited document still has keep their number and where they stand; the others go.
    pub fn adopt_actions(&mut self, old: Option<&Workflow>, last_number: &mut i64, recorder: &mut Recorder) {
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
                _ => {
                    *last_number += 1;
                    rows.push(new_row(self, JobId(*last_number), position));
                }
            }
        }
        rows.extend(
            old.into_iter()
                .flat_map(|old| old.actions.iter())
                .filter(|one| one.is_recovery())
                .map(|one| one.row.clone()),
        );
        rows.sort_by_key(|row| row.id);
        rows.iter().for_each(|row| recorder.action(row));
        let kept: BTreeSet<JobId> = rows.iter().map(|row| row.id).collect();
        for record in old.into_iter().flat_map(|old| old.actions.iter()) {
            if !kept.contains(&record.row.id) {
                recorder.action_removed(record.row.id);
            }
        }
        self.set_actions(rows);
    }

    /// These jobs run again. What their workflow's end set off is set off again by its next end; what waited for one of these
    /// jobs waits again; the workflow's start is over. What a cancellation has skipped is wanted again.
    pub fn rearm_actions(&mut self, jobs: &BTreeSet<u32>, recorder: &mut Recorder) {
        if self.actions.is_empty() || jobs.is_empty() {
            return;
        }
        let gated: BTreeSet<u32> =
            jobs.iter().filter_map(|job| self.actions.gates.get(job)).flatten().copied().collect();
        let gated: BTreeSet<JobId> = gated.into_iter().map(|index| self.actions.list[index as usize].row.id).collect();
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
            self.actions.change(id, recorder, rearm);
        }
    }

    /// A new run begins: everything is armed, and every worker starts anew.
    pub fn begin_run_of_actions(&mut self, recorder: &mut Recorder) {
        let run = self.row.run;
        let mut rows = Vec::new();
        for record in std::mem::take(&mut self.actions).list {
            let is_part = record.row.worker.is_some() && record.definition.is_for_every_worker();
            if is_part || record.is_recovery() {
                recorder.action_removed(record.row.id);
                continue;
            }
            let row = ActionRow {
                id: record.row.id,
                workflow: record.row.workflow,
                position: record.row.position,
                errand: Errand { run, attempt: 1, ..Errand::default() },
                ..ActionRow::default()
            };
            recorder.action(&row);
            rows.push(row);
        }
        self.set_actions(rows);
    }
}

/// It waits again. The attempts so far are history, and one that a runner still has is no longer current.
pub(in crate::engine) fn rearm(row: &mut ActionRow) {
    row.state = ActionState::Waiting;
    row.worker = None;
    next_attempt(&mut row.errand);
    row.errand.tries = 0;
}

/// The present attempt is over; one that nobody was promised is still to come.
pub(in crate::engine) fn next_attempt(errand: &mut Errand) {
    if errand.epoch > 0 {
        errand.attempt += 1;
        errand.epoch = 0;
    }
    errand.runner = None;
    errand.started_ms = None;
}
