//! What workflows need of Slurm, and what they have: everything that the controller decides upon, in one look.

use std::collections::BTreeMap;

use torc_api::action::{Action, ActionState};
use torc_api::allocation::AllocationStatus;
use torc_api::state::JobState;
use torc_api::wire::{Resources, RunnerScope};

use super::Engine;
use crate::class::{Class, minus, plus};
use crate::engine::action_list::ActionRecord;
use crate::engine::runners::Runner;
use crate::engine::tx::Tx;
use crate::engine::workflow::Workflow;
use crate::ids::{JobId, Now, WorkflowId};
use crate::planning::course::{LiveAllocation, NodeRequest, ResourceClass, WorkflowDemand};
use crate::planning::sizing::Stage;
use crate::rows::{AllocationRow, Regenerated};

/// An allocation whose runner has not come after so long has none.
const START_UP_MS: i64 = 180_000;

impl Engine {
    /// What every workflow needs of Slurm that runs on it, or has allocations.
    pub fn slurm_needs(&self, serves: Option<&RunnerScope>, now: Now) -> Vec<WorkflowDemand> {
        let concerned = |workflow: &&Workflow| {
            workflow.allocations.iter().next().is_some()
                || self.live.contains(&workflow.id()) && workflow.is_for_slurm()
        };
        self.workflows.values().filter(concerned).map(|workflow| self.needs_of(workflow, serves, now)).collect()
    }

    /// How many allocations of a workflow, or of all, are not over.
    pub fn live_allocations(&self, workflow: Option<WorkflowId>) -> usize {
        let concerned = |one: &&Workflow| workflow.is_none_or(|id| one.id() == id);
        self.workflows.values().filter(concerned).map(|workflow| workflow.allocations.iter().count()).sum()
    }

    /// What these actions ask for is being written down; these others ask for nothing that is not there.
    pub fn begin_actions(&mut self, workflow: WorkflowId, (begun, executed): (&[JobId], &[JobId]), tx: &mut Tx) {
        let now_ms = tx.now.wall_ms;
        let Some(workflow) = self.workflows.get_mut(&workflow) else { return };
        for id in begun {
            workflow.actions.change(*id, tx, |row| row.lease.started_ms = Some(now_ms));
        }
        for id in executed {
            workflow.actions.change(*id, tx, |row| {
                row.state = ActionState::Executed;
                row.ended_ms = Some(now_ms);
                row.return_code = Some(0);
                row.message = Some("what it asks for is there already".to_owned());
            });
        }
    }

    fn needs_of(&self, workflow: &Workflow, serves: Option<&RunnerScope>, now: Now) -> WorkflowDemand {
        let is_served = match serves {
            None => false,
            Some(RunnerScope::All) => true,
            Some(RunnerScope::Session) => self.session.workflows.contains(&workflow.id()),
            Some(RunnerScope::Workflow(name)) => self.find_served(name) == Some(workflow.id()),
        };
        let counts = workflow.graph.counts();
        let is_finished = workflow.row.completed_ms.is_some() && !self.is_held_back(workflow.id());
        WorkflowDemand {
            workflow: workflow.id(),
            name: workflow.row.name.clone(),
            working_dir: workflow.row.working_dir.clone(),
            cluster: workflow.cluster().map(str::to_owned),
            spec: workflow.slurm_spec(),
            is_asked_for: workflow.has_schedule_nodes(),
            is_served,
            is_canceled: workflow.is_canceled(),
            finished_ms: workflow.row.completed_ms.filter(|_| is_finished),
            is_suspended: workflow.is_suspended(),
            is_exhausted: workflow.allocations.is_exhausted(),
            kinds: workflow.kinds(),
            open_jobs: counts.total - counts.settled() - counts.running - counts.pending_failed,
            allocations: self.live_allocations_of(workflow, now),
            actions: workflow.nodes_wanted(),
            asked: workflow.nodes_asked_for(),
        }
    }

    fn live_allocations_of(&self, workflow: &Workflow, now: Now) -> Vec<LiveAllocation> {
        let rows = workflow.allocations.iter();
        rows.map(|row| {
            let lives_there = |runner: &&Runner| runner.allocation == Some((row.workflow, row.id));
            let runners: Vec<&Runner> = self.runners.values().filter(lives_there).collect();
            LiveAllocation {
                row: row.clone(),
                stage: self.stage(row, &runners, now),
                runners: runners.len(),
                idle_polls: workflow.allocations.idle_polls(row.id),
            }
        })
        .collect()
    }

    fn stage(&self, row: &AllocationRow, runners: &[&Runner], now: Now) -> Stage {
        if row.status != AllocationStatus::Active {
            return Stage::Pending;
        }
        let planned_end = row.started_ms.map(|start| start.saturating_add(row.seconds.saturating_mul(1_000)));
        let end_ms = row.expected_end_ms.or(planned_end).unwrap_or(now.wall_ms);
        let seconds_left = (end_ms - now.wall_ms).max(0) / 1_000;
        if runners.is_empty() {
            // Its runner is on the way, or has left.
            let is_young = row.started_ms.is_some_and(|start| now.wall_ms - start < START_UP_MS);
            let is_starting = is_young && !row.has_reported;
            let all = |amount: i64| amount.saturating_mul(row.nodes);
            let (cpus, memory_bytes, gpus) = (all(row.cpus), all(row.memory_bytes), all(row.gpus));
            let whole = Resources { cpus, memory_bytes, gpus, nodes: row.nodes };
            let free = if is_starting { whole } else { Resources::default() };
            return Stage::Running { seconds_left: if is_starting { seconds_left } else { 0 }, free, busy_seconds: 0 };
        }
        let mut free = Resources::default();
        let mut busy_seconds = 0;
        for runner in runners {
            let (left, busy) = self.room_of(runner, now);
            free = plus(&free, &left);
            busy_seconds = busy_seconds.max(busy);
        }
        Stage::Running { seconds_left, free, busy_seconds }
    }

    /// What a runner's jobs leave free, and when the last of them will have ended.
    fn room_of(&self, runner: &Runner, now: Now) -> (Resources, i64) {
        let mut free = runner.row.capacity;
        let mut busy = 0;
        for (workflow, job) in runner.leases.jobs() {
            let Some(workflow) = self.workflows.get(&workflow) else { continue };
            let Some(job) = workflow.graph.ordinal(job) else { continue };
            let record = workflow.graph.job(job);
            let Some(class) = workflow.graph.class_of(job).filter(|_| record.state() == JobState::Running) else {
                continue;
            };
            free = minus(&free, &class.demand(&runner.row.capacity));
            let elapsed = record.started_ms().map_or(0, |start| (now.wall_ms - start).max(0) / 1_000);
            busy = busy.max(class.requirements.runtime_seconds - elapsed);
        }
        (free, busy)
    }
}

impl Workflow {
    /// Jobs that have not started, by kind. What was promised to a runner has not started either.
    fn kinds(&self) -> Vec<ResourceClass> {
        let mut counts: Vec<(i64, i64)> = vec![(0, 0); self.graph.classes().len()];
        for (job, record) in self.graph.iter() {
            let (ready, waiting) = &mut counts[self.graph.class_index(job) as usize];
            match record.state() {
                JobState::Ready if self.waits_for_nodes(job) => *waiting += 1,
                JobState::Ready | JobState::Leased => *ready += 1,
                JobState::Blocked | JobState::Uninitialized | JobState::Recovering => *waiting += 1,
                _ => {}
            }
        }
        let kind = |(class, (ready, waiting)): (&Class, (i64, i64))| ResourceClass {
            needs: class.requirements.clone(),
            labels: class.labels.clone(),
            scheduler: class.scheduler.clone(),
            ready,
            waiting,
        };
        let all = self.graph.classes().zip(counts).map(kind);
        all.filter(|kind| kind.ready + kind.waiting > 0).collect()
    }

    /// Nodes for it are asked for when others are ready, too.
    fn waits_for_nodes(&self, job: u32) -> bool {
        let brings_nodes = |action: &ActionRecord| {
            action.definition.asks_slurm_for_nodes() && action.row.state == ActionState::Waiting
        };
        self.actions.waiting_for(job).any(brings_nodes)
    }

    fn nodes_wanted(&self) -> Vec<NodeRequest> {
        let wanted = |action: &&ActionRecord| {
            action.row.state == ActionState::Pending && action.definition.asks_slurm_for_nodes()
        };
        let view = |action: &ActionRecord| NodeRequest {
            action: action.row.id,
            definition: action.definition.clone(),
            is_begun: action.row.lease.started_ms.is_some(),
        };
        self.actions.open().filter(wanted).map(view).collect()
    }

    fn nodes_asked_for(&self) -> BTreeMap<String, (i64, Action)> {
        let mut asked: BTreeMap<String, (i64, Action)> = BTreeMap::new();
        for action in self.actions.iter() {
            let definition = &action.definition;
            let is_done = definition.asks_slurm_for_nodes()
                && action.row.state == ActionState::Executed
                && !action.is_superseded();
            let Some(name) = definition.scheduler.as_ref().filter(|_| is_done) else { continue };
            let count = definition.num_allocations.unwrap_or(1);
            asked.entry(name.clone()).or_insert_with(|| (0, definition.clone())).0 += count;
        }
        asked.extend(self.regenerated.iter().filter_map(Regenerated::asked));
        asked
    }
}
