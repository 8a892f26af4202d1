//! A scenario: runners and workflows, with everything that decides how a simulation goes.

use std::time::Duration;

use torc_api::failure::Prefetch;
use torc_api::wire::{Resources, RunnerScope};

use crate::network::Link;
use crate::time::Time;

/// One mebibyte and one gibibyte.
pub const MIB: i64 = 1 << 20;
pub const GIB: i64 = 1 << 30;

/// Everything that decides how a simulation goes.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed of jitter.
    pub seed: u64,
    pub runners: Vec<RunnerPlan>,
    pub workflows: Vec<WorkflowPlan>,
    pub timing: Timing,
    /// The simulation ends at this time, whatever is left to do.
    pub limit: Time,
}

impl Scenario {
    /// Returns a scenario with the default timing.
    pub fn new(seed: u64, runners: Vec<RunnerPlan>, workflows: Vec<WorkflowPlan>) -> Self {
        Self { seed, runners, workflows, timing: Timing::default(), limit: Time::from_secs(6 * 3_600) }
    }

    /// Returns the job of a reference.
    pub fn job(&self, job: JobRef) -> &JobPlan {
        &self.workflows[job.workflow].jobs[job.job]
    }

    /// Returns all jobs, in the order of their workflows.
    pub fn jobs(&self) -> impl Iterator<Item = (JobRef, &JobPlan)> {
        self.workflows.iter().enumerate().flat_map(|(workflow, plan)| {
            plan.jobs.iter().enumerate().map(move |(job, plan)| (JobRef { workflow, job }, plan))
        })
    }

    /// Returns the time from which the schedule is measured: the first workflow that is no warm-up.
    pub fn measured_from(&self) -> Time {
        let measured = self.workflows.iter().filter(|workflow| !workflow.is_warm_up);
        measured.map(|workflow| workflow.applied).min().unwrap_or_default()
    }

    /// Returns whether a job counts for the makespan.
    pub fn is_measured(&self, job: JobRef) -> bool {
        !self.workflows[job.workflow].is_warm_up
    }

    /// Sets leasing ahead for all workflows.
    #[must_use]
    pub fn with_prefetch(mut self, enabled: bool) -> Self {
        for workflow in &mut self.workflows {
            workflow.prefetch.get_or_insert_default().enabled = Some(enabled);
        }
        self
    }
}

/// Durations of a commit and of a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// From a message that changes something to the answers that depend on it.
    pub commit: Duration,
    /// From an order to the start of the process.
    pub start_overhead: Duration,
}

impl Default for Timing {
    /// As measured with SQLite on an SSD and with the shim.
    fn default() -> Self {
        Self { commit: Duration::from_micros(300), start_overhead: Duration::from_micros(500) }
    }
}

/// A runner with its capacity and its lifetime.
#[derive(Clone, Debug)]
pub struct RunnerPlan {
    pub host: String,
    /// Capacity of all nodes together.
    pub capacity: Resources,
    /// The queue strategy: this many jobs at once.
    pub max_parallel_jobs: Option<u32>,
    pub labels: Vec<String>,
    pub scope: RunnerScope,
    pub link: Link,
    /// Settings of the runner, which override those of the workflow.
    pub prefetch: Prefetch,
    pub arrives: Time,
    /// Time of the stop signal.
    pub stops: Option<Time>,
    /// Time of its crash, which ends its processes.
    pub crashes: Option<Time>,
    /// Walltime, counted from its arrival.
    pub walltime: Option<Duration>,
}

impl RunnerPlan {
    /// Returns a runner of one node that is there from the start and stays.
    pub fn new(host: impl Into<String>, cpus: i64, memory_bytes: i64, gpus: i64) -> Self {
        Self {
            host: host.into(),
            capacity: Resources { cpus, memory_bytes, gpus, nodes: 1 },
            max_parallel_jobs: None,
            labels: Vec::new(),
            scope: RunnerScope::All,
            link: Link::default(),
            prefetch: Prefetch::default(),
            arrives: Time::ZERO,
            stops: None,
            crashes: None,
            walltime: None,
        }
    }

    /// Returns the same runner with so many nodes of this size, in a Slurm allocation.
    #[must_use]
    pub fn with_nodes(mut self, nodes: i64) -> Self {
        let Resources { cpus, memory_bytes, gpus, .. } = self.capacity;
        self.capacity = Resources { cpus: cpus * nodes, memory_bytes: memory_bytes * nodes, gpus: gpus * nodes, nodes };
        self
    }

    /// Returns whether its jobs are steps of a Slurm allocation: only these can be on any of its nodes.
    pub fn is_in_allocation(&self) -> bool {
        self.capacity.nodes > 1
    }

    /// Returns the time from which it starts nothing new, if there is one.
    pub fn closes(&self) -> Option<Time> {
        let over = self.walltime.map(|walltime| self.arrives.plus(walltime));
        [self.stops, self.crashes, over].into_iter().flatten().min()
    }
}

/// A workflow with its jobs and the time at which it is applied.
#[derive(Clone, Debug)]
pub struct WorkflowPlan {
    /// Unique in its scenario.
    pub name: String,
    pub owner: String,
    pub applied: Time,
    /// It is there before the schedule is measured, and its jobs do not count for the makespan.
    pub is_warm_up: bool,
    pub prefetch: Option<Prefetch>,
    /// Time after which a running job of a silent runner is lost.
    pub orphan_after: Option<Duration>,
    pub jobs: Vec<JobPlan>,
}

impl WorkflowPlan {
    /// Returns a workflow that is applied at the start.
    pub fn new(name: impl Into<String>, jobs: Vec<JobPlan>) -> Self {
        Self {
            name: name.into(),
            owner: "ada".to_owned(),
            applied: Time::ZERO,
            is_warm_up: false,
            prefetch: None,
            orphan_after: None,
            jobs,
        }
    }
}

/// A job with its requirements, duration and dependencies.
#[derive(Clone, Debug, PartialEq)]
pub struct JobPlan {
    /// Unique in its workflow.
    pub name: String,
    /// Resources on each node.
    pub needs: Resources,
    /// The runtime that the document declares, in whole seconds.
    pub runtime_seconds: i64,
    /// True duration of the process.
    pub duration: Duration,
    pub priority: i64,
    /// Jobs of the same workflow that have to end first, by index; each is lower than the job's own.
    pub after: Vec<usize>,
    pub labels: Vec<String>,
}

impl JobPlan {
    /// Returns a job of one CPU that declares its true duration, rounded up.
    pub fn new(name: impl Into<String>, duration: Duration) -> Self {
        Self {
            name: name.into(),
            needs: Resources { cpus: 1, memory_bytes: MIB, gpus: 0, nodes: 1 },
            runtime_seconds: whole_seconds(duration),
            duration,
            priority: 0,
            after: Vec::new(),
            labels: Vec::new(),
        }
    }

    /// Returns the same job with other needs.
    #[must_use]
    pub fn needing(mut self, cpus: i64, memory_bytes: i64, gpus: i64) -> Self {
        self.needs = Resources { cpus, memory_bytes, gpus, ..self.needs };
        self
    }

    /// Returns the same job after others.
    #[must_use]
    pub fn after(mut self, jobs: impl IntoIterator<Item = usize>) -> Self {
        self.after = jobs.into_iter().collect();
        self
    }
}

/// Returns whole seconds, rounded up, and at least one.
pub fn whole_seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis().div_ceil(1_000)).unwrap_or(i64::MAX).max(1)
}

/// A job of a scenario, by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobRef {
    pub workflow: usize,
    pub job: usize,
}
