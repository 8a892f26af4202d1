//! Resource classes: jobs with equal requirements, labels and scheduler wait in one queue.

use torc_api::termination::EndMargin;
use torc_api::wire::Resources;

use crate::expanded::Requirements;
use crate::rows::JobProfile;

/// The properties of a job that decide where it may run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JobClass {
    /// The resources that it needs on each node.
    pub requirements: Requirements,
    /// Labels a runner must have, sorted.
    pub labels: Vec<String>,
    /// The Slurm scheduler it belongs to.
    pub scheduler: Option<String>,
}

/// The properties of a runner that matching uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunnerView<'a> {
    /// The resources that it may use in total.
    pub capacity: Resources,
    /// Labels that it was started with, sorted.
    pub labels: &'a [String],
    /// The scheduler whose allocation it lives in.
    pub scheduler: Option<&'a str>,
    /// Seconds until it ends; none for no end.
    pub remaining_seconds: Option<i64>,
    /// It counts jobs instead of resources.
    pub by_count: bool,
}

impl JobClass {
    /// Returns the class of jobs with this profile.
    pub fn of(profile: &JobProfile) -> Self {
        Self {
            requirements: profile.requirements.clone(),
            labels: profile.labels.clone(),
            scheduler: profile.recovery_scheduler.clone().or_else(|| profile.scheduler.clone()),
        }
    }

    /// Returns the resources that one job takes from a runner. A multi-node job takes whole nodes.
    pub fn demand(&self, capacity: &Resources) -> Resources {
        taken_from(capacity, &self.requirements.resources())
    }

    /// Returns the resources that one job of this class takes from the runner. A runner that counts jobs offers its free slots as CPUs.
    pub fn demand_on(&self, runner: &RunnerView<'_>) -> Resources {
        if runner.by_count {
            return Resources { cpus: 1, ..Resources::default() };
        }
        self.demand(&runner.capacity)
    }

    /// Returns whether a job could run on the runner if it were empty. `end` is the end margin of the workflow's jobs
    /// there. The scheduler is checked separately.
    pub fn matches(&self, runner: &RunnerView<'_>, end: EndMargin) -> bool {
        labels_match(&self.labels, runner.labels)
            && (runner.by_count || self.fits_empty(&runner.capacity))
            && self.has_time(runner, end)
    }

    /// Returns whether the runner lives in an allocation of this class's scheduler, or the class has none.
    pub fn prefers(&self, runner: &RunnerView<'_>) -> bool {
        self.scheduler.is_none() || self.scheduler.as_deref() == runner.scheduler
    }

    fn fits_empty(&self, capacity: &Resources) -> bool {
        let needs = &self.requirements;
        let nodes = capacity.nodes.max(1);
        needs.num_nodes <= nodes
            && needs.num_cpus <= capacity.cpus / nodes
            && needs.memory_bytes <= capacity.memory_bytes / nodes
            && needs.num_gpus <= capacity.gpus / nodes
    }

    /// Returns whether the remaining time suffices. The queue strategy ignores declared runtimes, but no job starts
    /// after its first signal is due.
    fn has_time(&self, runner: &RunnerView<'_>, end: EndMargin) -> bool {
        let runtime = if runner.by_count { 0 } else { self.requirements.runtime_seconds };
        runner.remaining_seconds.is_none_or(|remaining| end.allows(runtime, remaining))
    }
}

/// Returns whether the labels match: jobs without labels run on runners without labels, others on runners with all of
/// their labels.
pub fn labels_match(wanted: &[String], present: &[String]) -> bool {
    wanted.is_empty() == present.is_empty() && wanted.iter().all(|label| present.contains(label))
}

/// Returns whether `demand` fits into `free`.
pub fn fits(free: &Resources, demand: &Resources) -> bool {
    demand.cpus <= free.cpus
        && demand.memory_bytes <= free.memory_bytes
        && demand.gpus <= free.gpus
        && demand.nodes <= free.nodes
}

/// Returns the resources that a job takes from a runner, given its needs on each of its nodes. A job of several nodes takes them whole.
pub fn taken_from(capacity: &Resources, on_a_node: &Resources) -> Resources {
    if on_a_node.nodes <= 1 {
        return Resources { nodes: 0, ..*on_a_node };
    }
    let share = |total: i64| total / capacity.nodes.max(1) * on_a_node.nodes;
    Resources {
        cpus: share(capacity.cpus),
        memory_bytes: share(capacity.memory_bytes),
        gpus: share(capacity.gpus),
        nodes: on_a_node.nodes,
    }
}

/// Returns the sum of two amounts.
pub fn plus(left: &Resources, right: &Resources) -> Resources {
    Resources {
        cpus: left.cpus + right.cpus,
        memory_bytes: left.memory_bytes + right.memory_bytes,
        gpus: left.gpus + right.gpus,
        nodes: left.nodes + right.nodes,
    }
}

/// Returns the resources that are left after `demand` is taken.
pub fn minus(free: &Resources, demand: &Resources) -> Resources {
    Resources {
        cpus: free.cpus - demand.cpus,
        memory_bytes: free.memory_bytes - demand.memory_bytes,
        gpus: free.gpus - demand.gpus,
        nodes: free.nodes - demand.nodes,
    }
}

#[cfg(test)]
mod tests;
