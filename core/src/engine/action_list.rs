//! The actions of a workflow: each with its row, and the jobs that they wait for.

use std::collections::{BTreeSet, HashMap, HashSet};

use torc_api::action::{Action, ActionState, ActionType, TriggerType};
use torc_api::state::JobState;

use super::tx::Tx;
use crate::ids::{JobId, RunnerId};
use crate::rows::ActionRow;

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

    /// All of the chosen jobs are where it waits for them.
    pub fn is_ready(&self) -> bool {
        self.unmet == 0
    }

    /// A runner carries it out.
    pub fn is_for_runners(&self) -> bool {
        self.definition.action_type == ActionType::RunCommands
    }

    /// It stands for its parts, one for each worker.
    pub fn is_template(&self) -> bool {
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
    /// Takes over rows, sorted by number, with what they stand for.
    pub fn new(rows: impl Iterator<Item = (ActionRow, Action)>) -> Self {
        let list: Vec<ActionRecord> =
            rows.map(|(row, definition)| ActionRecord { row, definition, unmet: 0 }).collect();
        let workers = list.iter().filter_map(|action| action.row.worker).collect();
        let open = (0..).zip(&list).filter(|(_, action)| action.is_open()).map(|(index, _)| index).collect();
        Self { list, open, gates: HashMap::new(), workers }
    }

    /// Records which jobs actions wait for, by the actions' indices. One that chooses none waits for all.
    pub fn set_gates(&mut self, chosen: &[Vec<u32>], states: &[JobState]) {
        let all: Vec<u32> = (0..states.len() as u32).collect();
        for (index, action) in (0u32..).zip(&mut self.list) {
            if !action.trigger().is_of_jobs() {
                continue;
            }
            let jobs = chosen.get(index as usize).filter(|jobs| !jobs.is_empty()).unwrap_or(&all);
            for job in jobs {
                self.gates.entry(*job).or_default().push(index);
                action.unmet += u32::from(!is_met(action.trigger(), states[*job as usize]));
            }
        }
    }

    /// Returns the numbers of those that wait for one of these jobs, among others.
    pub fn gated_by(&self, jobs: &BTreeSet<u32>) -> BTreeSet<JobId> {
        jobs.iter().flat_map(|job| self.waiting_for(*job)).map(|action| action.row.id).collect()
    }

    /// Adds the part of a worker. Numbers rise, so that a new row is the last one.
    pub fn add_part(&mut self, row: ActionRow, definition: Action) {
        self.workers.extend(row.worker);
        self.open.insert(self.list.len() as u32);
        self.list.push(ActionRecord { row, definition, unmet: 0 });
    }

    /// Whether a worker has rows of its own.
    pub fn has_worker(&self, worker: RunnerId) -> bool {
        self.workers.contains(&worker)
    }

    /// Another runner takes the place of a worker. Returns whether it had rows of its own.
    pub fn forget_worker(&mut self, worker: RunnerId) -> bool {
        self.workers.remove(&worker)
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
    pub fn ids(&self, wanted: impl Fn(&ActionRecord) -> bool) -> Vec<JobId> {
        self.list.iter().filter(|action| wanted(action)).map(|action| action.row.id).collect()
    }

    pub fn open_ids(&self, wanted: impl Fn(&ActionRecord) -> bool) -> Vec<JobId> {
        self.open().filter(|action| wanted(action)).map(|action| action.row.id).collect()
    }
}
