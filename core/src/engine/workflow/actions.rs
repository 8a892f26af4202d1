//! The actions of a workflow: the row of each, and the jobs that they wait for. Only this module writes the rows.

use std::collections::{BTreeSet, HashMap, HashSet};

use torc_api::action::{Action, ActionState, ActionType, TriggerType};
use torc_api::state::JobState;
use torc_api::wire::FinishedAttempt;

use crate::engine::tx::Tx;
use crate::ids::{JobId, RunnerId};
use crate::rows::{ActionRow, TaskLease};
use crate::time::before;

/// Message of actions of the document whose allocations recovery has planned again.
const SUPERSEDED: &str = "superseded by `torc slurm regenerate`";

/// The actions of a workflow.
#[derive(Default)]
pub(in crate::engine) struct Actions {
    /// All actions, sorted by number.
    list: Vec<ActionRecord>,
    /// Indices of the actions that have not ended, without templates: only the parts of a template are executed.
    open: BTreeSet<u32>,
    /// Indices of the actions that wait for a job, by job.
    gates: HashMap<u32, Vec<u32>>,
    /// Workers that have parts of their own.
    workers: HashSet<RunnerId>,
}

/// An action in memory.
pub(in crate::engine) struct ActionRecord {
    row: ActionRow,
    pub definition: Action,
    /// Number of jobs that are not yet in the state that triggers the action.
    unmet: u32,
}

impl ActionRecord {
    pub fn row(&self) -> &ActionRow {
        &self.row
    }

    pub fn trigger(&self) -> TriggerType {
        self.definition.trigger_type
    }

    /// Returns whether all jobs are in the state that triggers the action.
    pub fn is_ready(&self) -> bool {
        self.unmet == 0
    }

    /// Returns whether a runner executes the action.
    pub fn is_for_runners(&self) -> bool {
        self.definition.action_type == ActionType::RunCommands
    }

    /// Returns whether the action stands for its parts, one for each worker.
    pub fn is_template(&self) -> bool {
        self.row.worker.is_none() && self.definition.is_for_every_worker()
    }

    /// Returns whether the action is the part of one worker.
    pub fn is_worker_part(&self) -> bool {
        self.row.worker.is_some() && self.definition.is_for_every_worker()
    }

    fn is_open(&self) -> bool {
        !self.is_template() && matches!(self.row.state, ActionState::Waiting | ActionState::Pending)
    }

    /// Returns whether recovery has planned the allocations of the action again.
    pub fn is_superseded(&self) -> bool {
        self.row.message.as_deref() == Some(SUPERSEDED)
    }

    /// Returns whether recovery has created the action, so that it is not in the document.
    pub fn is_recovery(&self) -> bool {
        self.row.definition.is_some()
    }

    /// Returns the state as the API shows it.
    pub fn state(&self) -> ActionState {
        match self.row.state {
            ActionState::Pending if self.row.lease.started_ms.is_some() => ActionState::Running,
            state => state,
        }
    }
}

/// The state of an action after an attempt.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct ActionOutcome {
    pub state: ActionState,
    /// Number of failed attempts.
    pub tries: i32,
    /// The runner of the attempt.
    pub runner: Option<RunnerId>,
}

/// Returns whether a trigger belongs to the end of a workflow or a worker.
pub(in crate::engine) fn is_at_end(trigger: TriggerType) -> bool {
    matches!(trigger, TriggerType::OnWorkflowComplete | TriggerType::OnWorkerComplete)
}

/// Returns whether a job is in the state that this trigger waits for. A disabled or canceled job counts as ended.
fn is_met(trigger: TriggerType, state: JobState) -> bool {
    match trigger {
        TriggerType::OnJobsReady => !matches!(state, JobState::Uninitialized | JobState::Blocked),
        _ => state.is_settled(),
    }
}

impl Actions {
    /// Builds the list from rows, sorted by number, and their definitions.
    pub fn new(rows: impl Iterator<Item = (ActionRow, Action)>) -> Self {
        let list: Vec<ActionRecord> =
            rows.map(|(row, definition)| ActionRecord { row, definition, unmet: 0 }).collect();
        let workers = list.iter().filter_map(|action| action.row.worker).collect();
        let open = (0..).zip(&list).filter(|(_, action)| action.is_open()).map(|(index, _)| index).collect();
        Self { list, open, gates: HashMap::new(), workers }
    }

    /// Sets the jobs that actions wait for, by the indices of the actions. An action that selects none waits for all.
    pub fn set_gates(&mut self, selected: &[Vec<u32>], states: &[JobState]) {
        let all: Vec<u32> = (0..states.len() as u32).collect();
        for (index, action) in (0u32..).zip(&mut self.list) {
            if !action.trigger().is_of_jobs() {
                continue;
            }
            let jobs = selected.get(index as usize).filter(|jobs| !jobs.is_empty()).unwrap_or(&all);
            for job in jobs {
                self.gates.entry(*job).or_default().push(index);
                action.unmet += u32::from(!is_met(action.trigger(), states[*job as usize]));
            }
        }
    }

    /// Returns the numbers of the actions that wait for at least one of these jobs.
    pub fn gated_by(&self, jobs: &BTreeSet<u32>) -> BTreeSet<JobId> {
        jobs.iter().flat_map(|job| self.waiting_for(*job)).map(|action| action.row.id).collect()
    }

    /// Adds the part of a worker. Numbers rise, so a new row is the last one.
    pub fn add_part(&mut self, row: ActionRow, definition: Action) {
        self.workers.extend(row.worker);
        self.open.insert(self.list.len() as u32);
        self.list.push(ActionRecord { row, definition, unmet: 0 });
    }

    /// Returns whether a worker has a part at a position of the document.
    pub fn has_part(&self, worker: RunnerId, position: usize) -> bool {
        let is_at = |row: &ActionRow| usize::try_from(row.position) == Ok(position);
        self.workers.contains(&worker)
            && self.list.iter().any(|action| action.row.worker == Some(worker) && is_at(&action.row))
    }

    pub fn into_records(self) -> Vec<ActionRecord> {
        self.list
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &ActionRecord> {
        self.list.iter()
    }

    pub fn rows(&self) -> Vec<ActionRow> {
        self.list.iter().map(|action| action.row.clone()).collect()
    }

    /// Returns the actions that have not ended, in the order of their numbers.
    pub fn open(&self) -> impl Iterator<Item = &ActionRecord> {
        self.open.iter().map(|index| &self.list[*index as usize])
    }

    /// Returns the actions that wait for a job.
    pub fn waiting_for(&self, job: u32) -> impl Iterator<Item = &ActionRecord> {
        self.gates.get(&job).into_iter().flatten().filter_map(|index| self.list.get(*index as usize))
    }

    fn index(&self, id: JobId) -> Option<usize> {
        self.list.binary_search_by_key(&id, |action| action.row.id).ok()
    }

    pub fn find(&self, id: JobId) -> Option<&ActionRecord> {
        self.index(id).map(|index| &self.list[index])
    }

    /// Updates the actions that wait for a job whose state has changed.
    pub fn job_moved(&mut self, job: u32, before: JobState, after: JobState) {
        for index in self.gates.get(&job).into_iter().flatten() {
            let action = &mut self.list[*index as usize];
            let trigger = action.trigger();
            match (is_met(trigger, before), is_met(trigger, after)) {
                (false, true) => action.unmet = action.unmet.saturating_sub(1),
                (true, false) => action.unmet += 1,
                _ => {}
            }
        }
    }

    /// Returns whether triggered commands that any runner may execute have not ended.
    pub fn has_open_commands(&self) -> bool {
        let is_open = |action: &ActionRecord| {
            action.row.state == ActionState::Pending && action.row.worker.is_none() && action.is_for_runners()
        };
        self.open().any(is_open)
    }

    /// Returns whether the start commands of a worker have not ended. It gets no other work of the workflow before.
    pub fn is_preparing(&self, worker: RunnerId) -> bool {
        let prepares = |action: &ActionRecord| {
            action.trigger() == TriggerType::OnWorkerStart
                && action.row.worker == Some(worker)
                && action.is_for_runners()
        };
        self.open().any(prepares)
    }

    /// Returns whether no earlier action with the same trigger is open. Actions with the same trigger are executed one after another, in
    /// the order of the document; those that wait for jobs are independent.
    pub fn is_next_of_trigger(&self, action: &ActionRecord) -> bool {
        let is_alike = |other: &&ActionRecord| {
            other.trigger() == action.trigger()
                && other.row.worker == action.row.worker
                && other.row.state == ActionState::Pending
                && other.is_for_runners()
        };
        let first = self.open().filter(is_alike).min_by_key(|other| (other.row.position, other.row.id));
        action.trigger().is_of_jobs() || first.is_none_or(|first| first.row.id == action.row.id)
    }

    /// Returns the numbers of the triggered actions whose allocations are being submitted.
    pub fn begun_submissions(&self) -> Vec<JobId> {
        self.open_ids(|action| !action.is_for_runners() && action.row.lease.started_ms.is_some())
    }

    /// Skips triggered actions because the workflow is canceled. Those at the end are still executed.
    pub fn cancel(&mut self, tx: &mut Tx) {
        let is_obsolete =
            |action: &ActionRecord| action.row.state == ActionState::Pending && !is_at_end(action.trigger());
        for id in self.open_ids(is_obsolete) {
            self.change(id, tx, |row| {
                row.state = ActionState::Skipped;
                row.message = Some("the workflow was canceled".to_owned());
            });
        }
    }

    /// Records that the allocations of an action are being submitted.
    pub fn begin_submission(&mut self, id: JobId, tx: &mut Tx) {
        let now_ms = tx.now.wall_ms;
        self.change(id, tx, |row| row.lease.started_ms = Some(now_ms));
    }

    /// Marks an action as executed.
    pub fn execute(&mut self, id: JobId, message: Option<&str>, tx: &mut Tx) {
        let now_ms = tx.now.wall_ms;
        self.change(id, tx, |row| {
            row.state = ActionState::Executed;
            row.ended_ms = Some(now_ms);
            row.return_code = Some(0);
            if let Some(message) = message {
                row.message = Some(message.to_owned());
            }
        });
    }

    /// Marks all scheduling actions of the document as executed, because recovery plans their allocations again. Returns the number of
    /// those that were open.
    pub fn supersede(&mut self, tx: &mut Tx) -> usize {
        let now_ms = tx.now.wall_ms;
        let is_open = |row: &ActionRow| !matches!(row.state, ActionState::Executed | ActionState::Failed);
        let scheduling = self.scheduling_actions();
        let open = scheduling.iter().filter(|id| self.find(**id).is_some_and(|action| is_open(&action.row))).count();
        for id in scheduling {
            self.change(id, tx, |row| {
                row.state = ActionState::Executed;
                row.message = Some(SUPERSEDED.to_owned());
                row.ended_ms.get_or_insert(now_ms);
            });
        }
        open
    }

    /// Lets superseded actions wait for their triggers again.
    pub fn restore_superseded(&mut self, tx: &mut Tx) {
        for id in self.scheduling_actions() {
            if self.find(id).is_some_and(ActionRecord::is_superseded) {
                self.change(id, tx, reset_trigger);
            }
        }
    }

    /// Returns the actions of the document that submit allocations.
    fn scheduling_actions(&self) -> Vec<JobId> {
        self.ids(|action| !action.is_recovery() && action.definition.requests_slurm_nodes())
    }

    /// Changes the lease of an action.
    pub fn change_lease(&mut self, id: JobId, tx: &mut Tx, change: impl FnOnce(&mut TaskLease)) {
        self.change(id, tx, |row| change(&mut row.lease));
    }

    /// Ends the current attempt of an action whose start is unknown, so that the next one has another log.
    pub fn next_attempt(&mut self, id: JobId, tx: &mut Tx) {
        self.change_lease(id, tx, TaskLease::next_attempt);
    }

    /// Skips the parts of a worker that has left, and lets the actions of a single worker wait for another one.
    pub fn worker_left(&mut self, worker: RunnerId, tx: &mut Tx) {
        if !self.workers.contains(&worker) {
            return;
        }
        for id in self.open_ids(|action| action.row.worker == Some(worker)) {
            let is_worker_part = self.find(id).is_some_and(ActionRecord::is_worker_part);
            self.change(id, tx, |row| match is_worker_part {
                false => reset_trigger(row),
                true => {
                    row.state = ActionState::Skipped;
                    row.lease.release();
                    row.message = Some("its worker left before it was executed".to_owned());
                }
            });
        }
    }

    /// Transfers the parts of a worker to its successor.
    pub fn transfer_worker(&mut self, earlier: RunnerId, successor: RunnerId, tx: &mut Tx) {
        if !self.workers.remove(&earlier) {
            return;
        }
        for id in self.ids(|action| action.row.worker == Some(earlier)) {
            self.change(id, tx, |row| row.worker = Some(successor));
        }
    }

    /// Marks an action as pending, because its condition holds.
    pub fn trigger(&mut self, id: JobId, tx: &mut Tx) {
        self.change(id, tx, |row| row.state = ActionState::Pending);
    }

    /// Marks an action as pending for one worker.
    pub fn trigger_for(&mut self, id: JobId, worker: RunnerId, tx: &mut Tx) {
        self.change(id, tx, |row| {
            row.worker = Some(worker);
            row.state = ActionState::Pending;
        });
    }

    /// Lets an action wait for its trigger again.
    pub fn reset(&mut self, id: JobId, tx: &mut Tx) {
        self.change(id, tx, reset_trigger);
    }

    /// Records the end of an attempt.
    pub fn end_attempt(&mut self, id: JobId, finished: &FinishedAttempt, outcome: ActionOutcome, tx: &mut Tx) {
        let ended_ms = before(tx.now.wall_ms, finished.ended_ms_ago);
        self.change(id, tx, |row| {
            row.state = outcome.state;
            row.ended_ms = Some(ended_ms);
            row.return_code = Some(finished.return_code);
            row.message.clone_from(&finished.message);
            row.stdout.clone_from(&finished.stdout);
            row.stderr.clone_from(&finished.stderr);
            row.lease.tries = outcome.tries;
            if outcome.state == ActionState::Pending {
                row.lease.next_attempt();
            } else {
                row.lease.runner = outcome.runner;
                row.lease.started_ms = Some(before(ended_ms, finished.duration_ms));
            }
        });
    }

    /// Changes an action and records the change.
    fn change(&mut self, id: JobId, tx: &mut Tx, change: impl FnOnce(&mut ActionRow)) {
        let Some(index) = self.index(id) else { return };
        let action = &mut self.list[index];
        change(&mut action.row);
        tx.changes.action(&action.row);
        self.workers.extend(action.row.worker);
        if action.is_open() {
            self.open.insert(index as u32)
        } else {
            self.open.remove(&(index as u32))
        };
    }

    /// Returns the rows and definitions, the open actions, and the gates, to compare.
    #[cfg(test)]
    pub fn summary(&self) -> (Vec<impl PartialEq + std::fmt::Debug>, &BTreeSet<u32>, &HashMap<u32, Vec<u32>>) {
        let each = self.list.iter().map(|action| (&action.row, &action.definition, action.unmet));
        (each.collect(), &self.open, &self.gates)
    }

    /// Returns the workers that have parts of their own.
    #[cfg(test)]
    pub fn workers(&self) -> &HashSet<RunnerId> {
        &self.workers
    }

    /// Returns the numbers of the actions that match.
    pub fn ids(&self, matches: impl Fn(&ActionRecord) -> bool) -> Vec<JobId> {
        self.list.iter().filter(|action| matches(action)).map(|action| action.row.id).collect()
    }

    /// Returns the numbers of the open actions that match.
    pub fn open_ids(&self, matches: impl Fn(&ActionRecord) -> bool) -> Vec<JobId> {
        self.open().filter(|action| matches(action)).map(|action| action.row.id).collect()
    }
}

/// Lets an action wait for its trigger again. A lease that a runner still holds is no longer the current one.
fn reset_trigger(row: &mut ActionRow) {
    row.state = ActionState::Waiting;
    row.worker = None;
    row.lease.next_attempt();
    row.lease.tries = 0;
}
