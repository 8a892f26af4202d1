//! The placement rules: those of the engine's matching and of the agent's ledger.
//!
//! The reference scheduler and the measure of idle capacity share it, so that both judge by the rules that Torc follows.

use std::time::Duration;

use torc_api::termination::EndMargin;
use torc_api::wire::{Resources, RunnerScope};
use torc_core::class::{JobClass, RunnerView};
use torc_core::expanded::Requirements;
use torc_core::ledger::{Ledger, NodeScope, Reservation, Strategy};

use crate::time::Time;
use crate::workload::{JobPlan, RunnerPlan, Scenario};

/// Time from SIGKILL to the end of the walltime.
const KILL_HEADROOM: Duration = Duration::from_secs(60);

/// Returns the time after which no job of a runner succeeds, if there is one. A job that is asked to stop counts for nothing.
pub fn last_success(plan: &RunnerPlan) -> Option<Time> {
    let out_of_time = plan.walltime.map(|walltime| plan.arrives.plus(walltime.saturating_sub(KILL_HEADROOM)));
    [plan.stops, plan.crashes, out_of_time].into_iter().flatten().min()
}

/// Jobs that may run in the same places: of one workflow, with the same needs and labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkflowClass {
    pub workflow: usize,
    pub class: JobClass,
}

impl WorkflowClass {
    fn of(workflow: usize, job: &JobPlan) -> Self {
        let mut labels = job.labels.clone();
        labels.sort();
        let requirements = Requirements {
            name: String::new(),
            num_cpus: job.needs.cpus,
            memory_bytes: job.needs.memory_bytes,
            num_gpus: job.needs.gpus,
            num_nodes: job.needs.nodes.max(1),
            runtime_seconds: job.runtime_seconds,
        };
        Self { workflow, class: JobClass { requirements, labels, scheduler: None } }
    }

    /// Returns what a job takes, on each of its nodes.
    pub fn needs(&self) -> Resources {
        self.class.requirements.resources()
    }

    /// Jobs take whole nodes.
    pub fn is_multi_node(&self) -> bool {
        self.class.requirements.num_nodes > 1
    }
}

/// The classes of all jobs of a scenario.
#[derive(Clone, Debug, Default)]
pub struct JobClasses {
    pub classes: Vec<WorkflowClass>,
    /// By workflow and job: an index into `classes`.
    of_job: Vec<Vec<usize>>,
}

impl JobClasses {
    /// Returns the classes of a scenario.
    pub fn new(scenario: &Scenario) -> Self {
        let mut classes: Vec<WorkflowClass> = Vec::new();
        let mut of_job = Vec::new();
        for (workflow, plan) in scenario.workflows.iter().enumerate() {
            let first = classes.len();
            let mut find = |job: &JobPlan| {
                let class = WorkflowClass::of(workflow, job);
                let known = classes.iter().skip(first).position(|known| *known == class);
                known.map_or_else(
                    || {
                        classes.push(class);
                        classes.len() - 1
                    },
                    |at| first + at,
                )
            };
            of_job.push(plan.jobs.iter().map(&mut find).collect());
        }
        Self { classes, of_job }
    }

    /// Returns the index of a job's class.
    pub fn of(&self, job: crate::workload::JobRef) -> usize {
        self.of_job[job.workflow][job.job]
    }
}

/// A runner, and what of it is taken.
pub struct RunnerSlots<'a> {
    pub plan: &'a RunnerPlan,
    ledger: Ledger,
}

impl<'a> RunnerSlots<'a> {
    /// Returns a runner on which nothing runs.
    pub fn new(plan: &'a RunnerPlan) -> Self {
        let strategy = plan.max_parallel_jobs.map_or(Strategy::Resources, Strategy::Slots);
        let devices = (0..plan.capacity.gpus / plan.capacity.nodes.max(1)).map(|device| device.to_string()).collect();
        Self { plan, ledger: Ledger::new(strategy, plan.capacity, devices) }
    }

    /// Returns whether the matching would give the runner jobs of a class at this time.
    pub fn matches(&self, job: &WorkflowClass, scenario: &Scenario, now: Time) -> bool {
        let plan = self.plan;
        let serves = match &plan.scope {
            RunnerScope::All | RunnerScope::Session => true,
            RunnerScope::Workflow(name) => *name == scenario.workflows[job.workflow].name,
        };
        let mut labels = plan.labels.clone();
        labels.sort();
        let end = plan.walltime.map(|walltime| plan.arrives.plus(walltime));
        let place = RunnerView {
            capacity: plan.capacity,
            labels: &labels,
            scheduler: None,
            remaining_seconds: end.map(|end| end.since(now).as_secs().cast_signed()),
            by_count: plan.max_parallel_jobs.is_some(),
        };
        serves && job.class.matches(&place, EndMargin::of(None, plan.is_in_allocation()))
    }

    /// Returns whether a process of this duration ends before the runner ends it.
    pub fn lasts(&self, now: Time, duration: Duration) -> bool {
        let plan = self.plan;
        plan.arrives <= now && last_success(plan).is_none_or(|last| now.plus(duration) <= last)
    }

    /// Returns what is free.
    pub fn free(&self) -> Resources {
        self.ledger.free()
    }

    /// Takes what a job of a class needs, or nothing.
    pub fn reserve(&mut self, job: &WorkflowClass) -> Option<Reservation> {
        let scope = if self.plan.is_in_allocation() { NodeScope::AnyNode } else { NodeScope::FirstNode };
        self.ledger.reserve(&job.needs(), scope)
    }

    /// Gives back what was taken.
    pub fn release(&mut self, reservation: Reservation) {
        self.ledger.release(reservation);
    }
}
