//! Plans schedulers and actions for the jobs of a workflow. `slurm generate` writes them into a document, and
//! `slurm regenerate` adds them to a workflow whose allocations are gone.

use torc_api::action::{Action, ActionType, TriggerType};
use torc_api::quantity::format_duration;
use torc_api::resources::SlurmScheduler;

use super::fit::{Load, Sequence, Walltime, WalltimeMargin, allocations, node_hours, walltime};
use super::groups::{Group, PendingJob, groups};
use super::partition::{NoMatchingPartition, PartitionLimits, choose};

/// Jobs with dependencies share the allocations of jobs without if both together need at most this many allocations.
const MAX_MERGED_ALLOCATIONS: i64 = 2;

/// Settings of the planner.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlanSettings<'a> {
    /// The account that is charged.
    pub account: &'a str,
    /// The partition for all jobs; none to choose one for each group.
    pub partition: Option<&'a str>,
    /// A scheduler for each set of requirements, not for each partition.
    pub by_requirements: bool,
    /// The rule for the walltime.
    pub walltime: Walltime,
    /// The part of an allocation's walltime that no job can use.
    pub margin: WalltimeMargin,
    /// A fixed walltime in seconds.
    pub seconds: Option<i64>,
    /// One allocation with many nodes, not many with one.
    pub single_allocation: bool,
    /// Jobs with dependencies never share a scheduler with jobs without.
    pub keep_apart: bool,
    /// A suffix that makes names of schedulers unique, e.g. `regen_20261116T094530`.
    pub stamp: Option<&'a str>,
}

impl PlanSettings<'_> {
    /// Returns the partition for a group. A walltime that the user sets is a limit like that of a partition.
    fn choose_partition<'a>(
        &self,
        group: &Group<'_>,
        partitions: &'a [PartitionLimits],
    ) -> Result<&'a PartitionLimits, NoMatchingPartition> {
        if !group.labels.is_empty() {
            return Err(NoMatchingPartition::Labels { labels: group.labels.join(", ") });
        }
        let partition = choose(group.requirements, partitions, self.partition, self.margin)?;
        let runtime = group.requirements.runtime_seconds;
        let needed = self.margin.walltime_for(runtime);
        match self.seconds {
            Some(most) if needed > most => Err(NoMatchingPartition::Time { runtime, needed, most }),
            _ => Ok(partition),
        }
    }
}

/// A scheduler and the jobs it is for.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedScheduler {
    /// The scheduler, as a document declares it.
    pub scheduler: SlurmScheduler,
    /// Name of the scheduler, unique in the plan.
    pub name: String,
    /// The number of allocations.
    pub allocations: i64,
    /// The walltime of each allocation, in seconds.
    pub seconds: i64,
    /// Nodes that one of its jobs needs.
    pub nodes_per_job: i64,
    /// The jobs have dependencies, so the allocations are submitted when the jobs are ready.
    pub waits: bool,
    /// Indices of the jobs in the list of all jobs.
    pub jobs: Vec<u32>,
}

impl PlannedScheduler {
    /// Returns the node hours if every allocation uses its whole walltime.
    pub fn node_hours(&self) -> f64 {
        node_hours(self.allocations, self.scheduler.nodes.unwrap_or(1), self.seconds)
    }

    /// Returns the action that submits its allocations: at the start, or when its jobs are ready. It names the jobs
    /// one by one.
    pub fn action<'a>(&self, name_of: impl Fn(u32) -> &'a str) -> Action {
        let nodes = self.scheduler.nodes.unwrap_or(1);
        Action {
            trigger_type: if self.waits { TriggerType::OnJobsReady } else { TriggerType::OnWorkflowStart },
            action_type: ActionType::ScheduleNodes,
            jobs: self.waits.then(|| self.jobs.iter().map(|job| name_of(*job).to_owned()).collect()),
            job_name_regexes: None,
            commands: None,
            scheduler: Some(self.name.clone()),
            scheduler_type: Some("slurm".to_owned()),
            num_allocations: Some(self.allocations),
            // Jobs of one node each would otherwise all start on the first.
            start_one_worker_per_node: (nodes > 1 && self.nodes_per_job == 1).then_some(true),
            max_parallel_jobs: None,
            persistent: None,
        }
    }

    /// Returns the action with which a recovery submits its allocations later; only jobs that wait need one.
    pub fn recovery_action<'a>(&self, name_of: impl Fn(u32) -> &'a str) -> Option<Action> {
        self.waits.then(|| self.action(name_of))
    }
}

/// A job that no scheduler of the plan can run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unschedulable {
    /// Index of the job in the list of all jobs.
    pub job: u32,
    /// The reason why no partition takes it.
    pub reason: NoMatchingPartition,
}

/// The result of the planner.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SchedulerPlan {
    /// Schedulers to add to the document.
    pub planned: Vec<PlannedScheduler>,
    /// Jobs that no partition takes, sorted by index.
    pub unplaced: Vec<Unschedulable>,
}

impl SchedulerPlan {
    /// Returns the node hours if every allocation uses its whole walltime.
    pub fn node_hours(&self) -> f64 {
        self.planned.iter().map(PlannedScheduler::node_hours).sum()
    }
}

/// Groups that share a scheduler.
struct SchedulerGroup<'a> {
    partition: &'a PartitionLimits,
    nodes: i64,
    waits: bool,
    requirements: Option<&'a str>,
    groups: Vec<Group<'a>>,
}

/// Plans schedulers for jobs. Every job belongs to exactly one scheduler or is listed as unplaced.
pub fn plan<'a>(
    jobs: &[PendingJob<'a>],
    partitions: &'a [PartitionLimits],
    settings: PlanSettings<'_>,
) -> SchedulerPlan {
    let mut plan = SchedulerPlan::default();
    let mut scheduler_groups: Vec<SchedulerGroup<'a>> = Vec::new();
    for group in groups(jobs) {
        match settings.choose_partition(&group, partitions) {
            Ok(partition) => join(&mut scheduler_groups, group, partition, settings.by_requirements),
            Err(reason) => {
                plan.unplaced.extend(group.jobs.iter().map(|job| Unschedulable { job: *job, reason: reason.clone() }));
            }
        }
    }
    if !settings.keep_apart {
        merge(&mut scheduler_groups, settings);
    }
    plan.planned = scheduler_groups.iter().map(|scheduler_group| scheduler_group.planned(settings)).collect();
    plan.unplaced.sort_by_key(|unplaced| unplaced.job);
    plan
}

fn join<'a>(
    scheduler_groups: &mut Vec<SchedulerGroup<'a>>,
    group: Group<'a>,
    partition: &'a PartitionLimits,
    by_requirements: bool,
) {
    let nodes = group.requirements.num_nodes.max(1);
    let requirements = by_requirements.then_some(group.requirements.name.as_str());
    let same = |scheduler_group: &&mut SchedulerGroup<'a>| {
        (
            scheduler_group.partition.name.as_str(),
            scheduler_group.nodes,
            scheduler_group.waits,
            scheduler_group.requirements,
        ) == (partition.name.as_str(), nodes, group.waits, requirements)
    };
    match scheduler_groups.iter_mut().find(same) {
        Some(scheduler_group) => scheduler_group.groups.push(group),
        None => scheduler_groups.push(SchedulerGroup {
            partition,
            nodes,
            waits: group.waits,
            requirements,
            groups: vec![group],
        }),
    }
}

/// Adds jobs with dependencies to the schedulers of jobs without, where both together need few allocations. The later
/// jobs use the time that the earlier ones leave.
fn merge(scheduler_groups: &mut Vec<SchedulerGroup<'_>>, settings: PlanSettings<'_>) {
    let waiting: Vec<SchedulerGroup<'_>> = extract(scheduler_groups, |scheduler_group| scheduler_group.waits);
    for late in waiting {
        let partner = scheduler_groups.iter_mut().find(|scheduler_group| {
            !scheduler_group.waits
                && (scheduler_group.partition.name.as_str(), scheduler_group.nodes, scheduler_group.requirements)
                    == (late.partition.name.as_str(), late.nodes, late.requirements)
                && scheduler_group.count(settings) + late.count(settings) <= MAX_MERGED_ALLOCATIONS
                && late.has_time_for_chain(settings)
        });
        match partner {
            Some(scheduler_group) => scheduler_group.groups.extend(late.groups),
            None => scheduler_groups.push(late),
        }
    }
}

fn extract<T>(list: &mut Vec<T>, is_meant: impl Fn(&T) -> bool) -> Vec<T> {
    let (meant, others) = std::mem::take(list).into_iter().partition(is_meant);
    *list = others;
    meant
}

impl SchedulerGroup<'_> {
    fn seconds(&self, settings: PlanSettings<'_>) -> i64 {
        let longest_seconds = self.groups.iter().map(|group| group.requirements.runtime_seconds).max().unwrap_or(0);
        // The allocations of jobs that wait begin when these are ready; others begin with the first job of the chain.
        let chain_seconds = if self.waits { longest_seconds } else { self.chain_seconds() };
        let sequence = Sequence { longest_seconds, chain_seconds };
        settings.seconds.unwrap_or_else(|| walltime(sequence, self.partition, settings.walltime, settings.margin))
    }

    fn chain_seconds(&self) -> i64 {
        self.groups.iter().map(|group| group.chain_seconds).max().unwrap_or(0)
    }

    /// Returns whether waiting jobs could end in an allocation that starts with their dependencies.
    fn has_time_for_chain(&self, settings: PlanSettings<'_>) -> bool {
        let most = settings.seconds.unwrap_or(self.partition.seconds);
        settings.margin.walltime_for(self.chain_seconds()) <= most
    }

    fn count(&self, settings: PlanSettings<'_>) -> i64 {
        let load =
            |group: &Group<'_>| (group.requirements.clone(), i64::try_from(group.jobs.len()).unwrap_or(i64::MAX));
        let loads: Vec<_> = self.groups.iter().map(load).collect();
        let loads: Vec<Load<'_>> = loads.iter().map(|(needs, jobs)| Load { needs, jobs: *jobs }).collect();
        allocations(&loads, self.partition, self.seconds(settings), settings.margin)
    }

    fn planned(&self, settings: PlanSettings<'_>) -> PlannedScheduler {
        let (count, seconds) = (self.count(settings), self.seconds(settings));
        // A partition may limit the nodes of one Slurm job. Then several allocations are needed after all.
        let widest = self.partition.nodes.unwrap_or(i64::MAX) / self.nodes;
        let wide = if settings.single_allocation { count.clamp(1, widest.max(1)) } else { 1 };
        let name = self.name(settings.stamp);
        let uses_gpus = self.groups.iter().any(|group| group.requirements.num_gpus > 0);
        let partition = self.partition;
        PlannedScheduler {
            scheduler: SlurmScheduler {
                name: Some(name.clone()),
                account: settings.account.to_owned(),
                partition: Some(partition.name.clone()),
                // All GPUs of a node, because the number of allocations was computed with them.
                gres: uses_gpus.then(|| format!("gpu:{}", partition.gpus)),
                mem: Some(format!("{}m", partition.memory_bytes >> 20)),
                nodes: Some(self.nodes * wide),
                walltime: Some(format_duration(seconds)),
                // On shared nodes, Slurm gives one CPU unless more are requested.
                extra: partition.is_shared.then(|| format!("--cpus-per-task={}", partition.cpus)),
                ..SlurmScheduler::default()
            },
            name,
            allocations: super::fit::div_ceil(count, wide),
            seconds,
            nodes_per_job: self.nodes,
            waits: self.waits,
            jobs: self.groups.iter().flat_map(|group| group.jobs.iter().copied()).collect(),
        }
    }

    fn name(&self, stamp: Option<&str>) -> String {
        let mut name = self.requirements.map_or(self.partition.name.as_str(), |name| name).to_owned();
        if self.requirements.is_some() {
            name = format!("{name}_{}", self.partition.name);
        }
        if self.nodes > 1 {
            name = format!("{name}_{}nodes", self.nodes);
        }
        name.push_str("_scheduler");
        if let Some(stamp) = stamp {
            name = format!("{name}_{stamp}");
        }
        if self.waits { format!("{name}_deferred") } else { name }
    }
}

#[cfg(test)]
mod tests;
