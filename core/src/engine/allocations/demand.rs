//! Demand of workflows for Slurm allocations, and the allocations that they have.

use std::collections::BTreeMap;

use torc_api::action::{Action, ActionState};
use torc_api::allocation::AllocationStatus;
use torc_api::state::JobState;
use torc_api::wire::{Resources, RunnerScope};

use super::Engine;
use crate::class::{JobClass, minus, plus};
use crate::engine::activity::awaits_commands;
use crate::engine::runners::{Fleet, LiveRunner};
use crate::engine::tx::Tx;
use crate::engine::workflow::ActionRecord;
use crate::engine::workflow::LiveWorkflow;
use crate::ids::{JobId, Now, WorkflowId};
use crate::planning::allocation_plan::{LiveAllocation, NodeRequest, ResourceClass, WorkflowDemand};
use crate::planning::sizing::AllocationStage;
use crate::rows::{AllocationRow, RegeneratedScheduler};

/// Time after its start for which an allocation without runners counts as free capacity, because its runner may still
/// register. Long enough to boot a node and start a container.
const RUNNER_START_MS: i64 = 180_000;

impl Engine {
    /// Returns the demand of all workflows that run on Slurm or have allocations. `served`: the scope of the runner of this process.
    pub fn slurm_needs(&self, served: Option<&RunnerScope>, now: Now) -> Vec<WorkflowDemand> {
        let is_concerned = |workflow: &&LiveWorkflow| {
            workflow.allocations.iter().next().is_some()
                || self.workflows.is_live(workflow.id()) && workflow.schedulers.is_for_slurm()
        };
        let fleet = self.fleet(now);
        self.workflows.values().filter(is_concerned).map(|workflow| fleet.demand_of(workflow, served)).collect()
    }

    /// Returns the number of allocations that have not ended, of one workflow or of all.
    pub fn live_allocations(&self, workflow: Option<WorkflowId>) -> usize {
        let is_concerned = |one: &&LiveWorkflow| workflow.is_none_or(|id| one.id() == id);
        self.workflows.values().filter(is_concerned).map(|workflow| workflow.allocations.iter().count()).sum()
    }

    /// Records that the allocations of an action are being submitted.
    pub fn begin_action(&mut self, workflow: WorkflowId, action: JobId, tx: &mut Tx) {
        if let Some(workflow) = self.workflows.get_mut(&workflow) {
            workflow.actions.begin_submission(action, tx);
        }
    }

    /// Records that an action is executed, because its allocations already exist.
    pub fn skip_action(&mut self, workflow: WorkflowId, action: JobId, tx: &mut Tx) {
        if let Some(workflow) = self.workflows.get_mut(&workflow) {
            workflow.actions.execute(action, Some("its allocations already exist"), tx);
        }
    }
}

impl Fleet<'_> {
    fn demand_of(self, workflow: &LiveWorkflow, served: Option<&RunnerScope>) -> WorkflowDemand {
        let is_served = match served {
            None => false,
            Some(RunnerScope::All) => true,
            Some(RunnerScope::Session) => self.workflows.session.contains(workflow.id()),
            Some(RunnerScope::Workflow(name)) => self.workflows.find_served(name) == Some(workflow.id()),
        };
        let (row, counts) = (workflow.row(), workflow.graph.counts());
        WorkflowDemand {
            workflow: row.id,
            name: row.name.clone(),
            working_dir: row.working_dir.clone(),
            cluster: workflow.schedulers.cluster().map(str::to_owned),
            spec: workflow.schedulers.spec(),
            has_explicit_requests: workflow.schedulers.are_submitted_by_actions(),
            is_served,
            is_canceled: workflow.is_canceled(),
            finished_ms: row.completed_ms.filter(|_| !awaits_commands(self.workflows, self.runners, row.id)),
            is_suspended: workflow.is_suspended(),
            is_exhausted: workflow.allocations.is_exhausted(),
            kinds: resource_classes(workflow),
            open_jobs: counts.total - counts.settled() - counts.running - counts.pending_failed,
            allocations: self.live_allocations_of(workflow),
            actions: node_requests(workflow),
            requested: requested_nodes(workflow),
        }
    }

    fn live_allocations_of(self, workflow: &LiveWorkflow) -> Vec<LiveAllocation> {
        let rows = workflow.allocations.iter();
        rows.map(|row| {
            let lives_there = |runner: &&LiveRunner| runner.allocation() == Some((row.workflow, row.id));
            let runners: Vec<&LiveRunner> = self.runners.values().filter(lives_there).collect();
            LiveAllocation {
                row: row.clone(),
                stage: self.stage(row, &runners),
                runners: runners.len(),
                idle_polls: workflow.allocations.idle_polls(row.id),
            }
        })
        .collect()
    }

    fn stage(self, row: &AllocationRow, runners: &[&LiveRunner]) -> AllocationStage {
        if row.status != AllocationStatus::Active {
            return AllocationStage::Pending;
        }
        let planned_end = row.started_ms.map(|start| start.saturating_add(row.seconds.saturating_mul(1_000)));
        let end_ms = row.expected_end_ms.or(planned_end).unwrap_or(self.now.wall_ms);
        let seconds_left = (end_ms - self.now.wall_ms).max(0) / 1_000;
        if runners.is_empty() {
            // The runner has not registered yet, or has left.
            let is_young = row.started_ms.is_some_and(|start| self.now.wall_ms - start < RUNNER_START_MS);
            let is_starting = is_young && !row.has_reported;
            let all = |amount: i64| amount.saturating_mul(row.nodes);
            let (cpus, memory_bytes, gpus) = (all(row.cpus), all(row.memory_bytes), all(row.gpus));
            let total = Resources { cpus, memory_bytes, gpus, nodes: row.nodes };
            let free = if is_starting { total } else { Resources::default() };
            return AllocationStage::Running {
                seconds_left: if is_starting { seconds_left } else { 0 },
                free,
                busy_seconds: 0,
            };
        }
        let mut free = Resources::default();
        let mut busy_seconds = 0;
        for runner in runners {
            let (runner_free, runner_busy) = self.free_capacity(runner);
            free = plus(&free, &runner_free);
            busy_seconds = busy_seconds.max(runner_busy);
        }
        AllocationStage::Running { seconds_left, free, busy_seconds }
    }

    /// Returns the capacity that the running jobs of a runner leave free, and the seconds until the last of them should end.
    fn free_capacity(self, runner: &LiveRunner) -> (Resources, i64) {
        let capacity = &runner.row().capacity;
        let mut free = *capacity;
        let mut busy_seconds = 0;
        for (workflow, job) in runner.leases.jobs() {
            let Some(graph) = self.workflows.get(&workflow).map(|workflow| &workflow.graph) else { continue };
            let Some(job) = graph.ordinal(job) else { continue };
            let record = graph.job(job);
            let Some(class) = graph.class_of(job).filter(|_| record.state() == JobState::Running) else { continue };
            free = minus(&free, &class.demand(capacity));
            let elapsed = record.started_ms().map_or(0, |start| (self.now.wall_ms - start).max(0) / 1_000);
            busy_seconds = busy_seconds.max(class.requirements.runtime_seconds - elapsed);
        }
        (free, busy_seconds)
    }
}

/// Returns the jobs that have not started, by class. Leased jobs have not started.
fn resource_classes(workflow: &LiveWorkflow) -> Vec<ResourceClass> {
    let graph = &workflow.graph;
    let mut counts: Vec<(i64, i64)> = vec![(0, 0); graph.classes().len()];
    for (job, record) in graph.iter() {
        let (ready, waiting) = &mut counts[graph.class_index(job) as usize];
        match record.state() {
            JobState::Ready if awaits_nodes_of_action(workflow, job) => *waiting += 1,
            JobState::Ready | JobState::Leased => *ready += 1,
            JobState::Blocked | JobState::Uninitialized | JobState::Recovering => *waiting += 1,
            _ => {}
        }
    }
    let resource_class = |(class, (ready, waiting)): (&JobClass, (i64, i64))| ResourceClass {
        needs: class.requirements.clone(),
        labels: class.labels.clone(),
        scheduler: class.scheduler.clone(),
        ready,
        waiting,
    };
    let all = graph.classes().zip(counts).map(resource_class);
    all.filter(|class| class.ready + class.waiting > 0).collect()
}

/// Returns whether an action that has not been triggered yet requests the nodes of a ready job.
fn awaits_nodes_of_action(workflow: &LiveWorkflow, job: u32) -> bool {
    let brings_nodes =
        |action: &ActionRecord| action.definition.requests_slurm_nodes() && action.row().state == ActionState::Waiting;
    workflow.actions.waiting_for(job).any(brings_nodes)
}

/// Returns the triggered actions whose allocations are not all submitted.
fn node_requests(workflow: &LiveWorkflow) -> Vec<NodeRequest> {
    let is_open =
        |action: &&ActionRecord| action.row().state == ActionState::Pending && action.definition.requests_slurm_nodes();
    let request = |action: &ActionRecord| NodeRequest {
        action: action.row().id,
        definition: action.definition.clone(),
        is_begun: action.row().lease.started_ms.is_some(),
    };
    workflow.actions.open().filter(is_open).map(request).collect()
}

/// Returns the number of allocations that executed actions and recovery have requested, by scheduler.
fn requested_nodes(workflow: &LiveWorkflow) -> BTreeMap<String, (i64, Action)> {
    let mut requested: BTreeMap<String, (i64, Action)> = BTreeMap::new();
    for action in workflow.actions.iter() {
        let definition = &action.definition;
        let is_executed =
            definition.requests_slurm_nodes() && action.row().state == ActionState::Executed && !action.is_superseded();
        let Some(name) = definition.scheduler.as_ref().filter(|_| is_executed) else { continue };
        let count = definition.num_allocations.unwrap_or(1);
        requested.entry(name.clone()).or_insert_with(|| (0, definition.clone())).0 += count;
    }
    requested.extend(workflow.schedulers.planned().iter().filter_map(RegeneratedScheduler::requested_allocations));
    requested
}
