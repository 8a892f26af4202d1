//! The actions of a workflow: what sets them off, what arms them again, and what is left of them when somebody edits.
//!
//! An action waits, is pending once it was set off, and ends as executed, failed or skipped. What a worker sets off has a row
//! for each worker. Carrying them out is the business of tasks.

mod arm;
mod view;
mod worker;

pub(super) use arm::{next_attempt, reset_trigger};
pub use view::PendingAllocation;

use std::collections::{BTreeSet, HashMap, HashSet};

use torc_api::action::{Action, ActionState, ActionType, TriggerType};
use torc_api::state::JobState;

use super::tx::Tx;
use super::workflow::Workflow;
use crate::ids::{JobId, RunnerId};
use crate::rows::{ActionRow, TaskLease};

/// What actions of the document say of themselves whose allocations were planned anew.
pub(super) const SUPERSEDED: &str = "superseded by `torc slurm regenerate`";

/// The actions of a workflow.
#[derive(Default)]
pub(super) struct Actions {
    /// Sorted by number.
    list: Vec<ActionRecord>,
    /// Those that have not ended, by index; actions for every worker are left out, for only their workers' parts are run.
    open: BTreeSet<u32>,
    /// For jobs that actions wait for: which, by index.
    gates: HashMap<u32, Vec<u32>>,
    /// Workers that have rows of their own.
    workers: HashSet<RunnerId>,
}

pub(super) struct ActionRecord {
    pub row: ActionRow,
    pub definition: Action,
    /// How many of the chosen jobs are not yet where the action waits for them.
    unmet: u32,
}

impl ActionRecord {
    pub fn trigger(&self) -> TriggerType {
        self.definition.trigger_type
    }

    /// A runner carries it out.
    pub fn is_for_runners(&self) -> bool {
        self.definition.action_type == ActionType::RunCommands
    }

    /// It stands for its parts, one for each worker.
    fn is_template(&self) -> bool {
        self.row.worker.is_none() && self.definition.is_for_every_worker()
    }

    fn is_open(&self) -> bool {
        !self.is_template() && matches!(self.row.state, ActionState::Waiting | ActionState::Pending)
    }

    /// What it asks for was planned anew: it asks for nothing any more.
    pub fn is_superseded(&self) -> bool {
        self.row.message.as_deref() == Some(SUPERSEDED)
    }

    /// Recovery has made it: it is in no document.
    pub fn is_recovery(&self) -> bool {
        self.row.definition.is_some()
    }

    /// Where it stands, for people.
    pub fn state(&self) -> ActionState {
        match self.row.state {
            ActionState::Pending if self.row.lease.started_ms.is_some() => ActionState::Running,
            state => state,
        }
    }
}

/// Whether a job is where an action with this trigger waits for it. A job that was left out or cancelled has no more to say.
fn is_met(trigger: TriggerType, state: JobState) -> bool {
    match trigger {
        TriggerType::OnJobsReady => !matches!(state, JobState::Uninitialized | JobState::Blocked),
        _ => state.is_settled(),
    }
}

impl Actions {
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &ActionRecord> {
        self.list.iter()
    }

    /// Those that have not ended, in order of their numbers.
    pub fn open(&self) -> impl Iterator<Item = &ActionRecord> {
        self.open.iter().map(|index| &self.list[*index as usize])
    }

    /// Those that wait for a job, among others.
    pub fn waiting_for(&self, job: u32) -> impl Iterator<Item = &ActionRecord> {
        self.gates.get(&job).into_iter().flatten().filter_map(|index| self.list.get(*index as usize))
    }

    fn index(&self, id: JobId) -> Option<usize> {
        self.list.binary_search_by_key(&id, |action| action.row.id).ok()
    }

    pub fn find(&self, id: JobId) -> Option<&ActionRecord> {
        self.index(id).map(|index| &self.list[index])
    }

    /// A job has moved.
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

    /// Changes an action and notes that it has to be written.
    pub fn change(&mut self, id: JobId, tx: &mut Tx, change: impl FnOnce(&mut ActionRow)) {
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

    /// Everything that is known of them, to compare: each action, the open ones, and the jobs that they wait for.
    #[cfg(test)]
    pub fn summary(&self) -> (Vec<impl PartialEq + std::fmt::Debug>, &BTreeSet<u32>, &HashMap<u32, Vec<u32>>) {
        let each = self.list.iter().map(|action| (&action.row, &action.definition, action.unmet));
        (each.collect(), &self.open, &self.gates)
    }

    /// Workers that have rows of their own.
    #[cfg(test)]
    pub fn workers(&self) -> &HashSet<RunnerId> {
        &self.workers
    }

    /// The numbers of those for which something is true.
    fn ids(&self, wanted: impl Fn(&ActionRecord) -> bool) -> Vec<JobId> {
        self.list.iter().filter(|action| wanted(action)).map(|action| action.row.id).collect()
    }

    fn open_ids(&self, wanted: impl Fn(&ActionRecord) -> bool) -> Vec<JobId> {
        self.open().filter(|action| wanted(action)).map(|action| action.row.id).collect()
    }
}

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
            Some(ActionRecord { definition, row, unmet: 0 })
        };
        let list: Vec<ActionRecord> = rows.into_iter().filter_map(record).collect();
        let mut actions = Actions { list, ..Actions::default() };
        actions.workers = actions.list.iter().filter_map(|action| action.row.worker).collect();
        actions.open =
            (0..).zip(&actions.list).filter(|(_, action)| action.is_open()).map(|(index, _)| index).collect();
        // Nobody waits for the end of what is no longer there.
        self.ending_actions.retain(|id, _| actions.list.iter().any(|action| action.row.id == *id));
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
        let names: Vec<String> = (0..self.jobs.len() as u32).map(|job| self.name(job).to_owned()).collect();
        let definitions: Vec<Action> = self.actions.iter().map(|action| action.definition.clone()).collect();
        let chosen = crate::expand::jobs_of_actions(&definitions, &names);
        let all: Vec<u32> = (0..self.jobs.len() as u32).collect();
        for (index, action) in (0u32..).zip(&mut self.actions.list) {
            if !action.trigger().is_of_jobs() {
                continue;
            }
            let jobs = chosen.get(index as usize).filter(|jobs| !jobs.is_empty()).unwrap_or(&all);
            for job in jobs {
                self.actions.gates.entry(*job).or_default().push(index);
                action.unmet += u32::from(!is_met(action.trigger(), self.jobs[*job as usize].state));
            }
        }
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
            TriggerType::OnWorkflowComplete => self.is_settled(),
            TriggerType::OnJobsReady | TriggerType::OnJobsComplete => action.unmet == 0 && !self.is_canceled(),
            TriggerType::OnWorkerStart | TriggerType::OnWorkerComplete => false,
        }
    }

    /// It has something to do, and may do it.
    pub fn is_active(&self) -> bool {
        !self.is_settled() && !self.is_suspended() && !self.is_canceled()
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
        self.is_settled() && !self.has_open_commands()
    }

    /// An action may still bring capacity or work: nodes that were or can yet be asked for, commands that have not ended.
    pub fn expects_capacity(&self) -> bool {
        let at_end = |trigger| matches!(trigger, TriggerType::OnWorkflowComplete | TriggerType::OnWorkerComplete);
        let nodes = |action: &ActionRecord| {
            !action.is_for_runners()
                && !at_end(action.trigger())
                && (action.row.state == ActionState::Pending || !self.is_settled() && !self.is_canceled())
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
