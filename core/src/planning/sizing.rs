//! Sizes the allocations of a workflow whose document declares only what its jobs need, and compares them with those
//! that exist.
//!
//! Allocations are not bound to jobs, because a runner takes whatever fits. Therefore only capacity counts: an
//! allocation has a number of slots (`slots_per_allocation`), and each slot runs jobs one after another (`sequential_runs`) until the
//! walltime ends.

use torc_api::wire::Resources;

use super::fit::{
    Sequence, Walltime, WalltimeMargin, div_ceil, jobs_per_allocation, jobs_per_walltime, node_hours, walltime,
};
use super::partition::{NoMatchingPartition, PartitionLimits, choose};
use crate::expanded::Requirements;

/// The resources and the walltime of an allocation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AllocationShape {
    /// Name of the partition.
    pub partition: String,
    /// Number of nodes that it spans.
    pub nodes: i64,
    /// CPUs of each node.
    pub cpus: i64,
    /// Bytes of memory of each node.
    pub memory_bytes: i64,
    /// GPUs of each node.
    pub gpus: i64,
    /// The walltime in seconds.
    pub seconds: i64,
}

impl AllocationShape {
    /// Returns the node hours if it uses its whole walltime.
    pub fn node_hours(&self) -> f64 {
        node_hours(1, self.nodes, self.seconds)
    }

    fn capacity(&self) -> Resources {
        let all = |amount: i64| amount.saturating_mul(self.nodes);
        Resources {
            cpus: all(self.cpus),
            memory_bytes: all(self.memory_bytes),
            gpus: all(self.gpus),
            nodes: self.nodes,
        }
    }
}

/// Jobs with equal requirements and labels that have not started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobDemand<'a> {
    /// The requirements of each job.
    pub needs: &'a Requirements,
    /// Labels that a runner must have.
    pub labels: &'a [String],
    /// The number of jobs that can start now.
    pub ready: i64,
    /// The number of jobs that wait for other jobs.
    pub waiting: i64,
}

/// An allocation that exists or is being submitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExistingAllocation {
    /// Name of the allocation, which identifies it in the result.
    pub marker: String,
    /// Its resources and walltime.
    pub shape: AllocationShape,
    /// Its stage, with the remaining time.
    pub stage: AllocationStage,
}

/// The stage of an allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocationStage {
    /// It waits in Slurm's queue, or Slurm has not confirmed it yet.
    Pending,
    /// It runs, so it has a definite end.
    Running {
        /// The seconds that are left.
        seconds_left: i64,
        /// The resources that its jobs leave free.
        free: Resources,
        /// Seconds until its running jobs should have ended.
        busy_seconds: i64,
    },
}

/// Limits of the allocations of a workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocationLimits {
    /// Maximum number of concurrent allocations, running ones included.
    pub max_allocations: i64,
    /// The rule for the walltime.
    pub walltime: Walltime,
    /// The part of their time that no job can use.
    pub margin: WalltimeMargin,
    /// No new allocations are submitted.
    pub suspended: bool,
    /// The workflow has ended.
    pub finished: bool,
}

/// The difference between the allocations that exist and those that are needed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllocationDifference {
    /// Shapes of the allocations to submit.
    pub submit: Vec<AllocationShape>,
    /// Markers of allocations that are not needed.
    pub cancel: Vec<String>,
    /// Markers of the existing allocations that stay.
    pub keep: Vec<String>,
    /// Indices of the demands that no allocation can satisfy, each with the reason.
    pub unplaced: Vec<(usize, NoMatchingPartition)>,
    /// The number of ready jobs that wait because `maxAllocations` is reached.
    pub held_back: i64,
}

/// The capacity that an allocation has left for jobs.
struct FreeCapacity {
    shape: AllocationShape,
    /// The resources that are free now, and for how many seconds.
    now: (Resources, i64),
    /// The resources that are free after its last job has ended, and for how many seconds; none if it runs no jobs.
    then: Option<(Resources, i64)>,
    /// The part of its time that no job can use: the start is over once it runs.
    margin: WalltimeMargin,
    is_used: bool,
}

/// Compares the demand of jobs with the existing allocations.
pub fn difference(
    demands: &[JobDemand<'_>],
    existing: &[ExistingAllocation],
    partitions: &[PartitionLimits],
    limits: AllocationLimits,
) -> AllocationDifference {
    let mut result = AllocationDifference::default();
    if limits.finished {
        result.cancel = existing.iter().map(|one| one.marker.clone()).collect();
        return result;
    }
    let mut rooms: Vec<FreeCapacity> = existing.iter().map(|one| FreeCapacity::of(one, limits.margin)).collect();
    // Running allocations first, because they are charged anyway.
    let mut order: Vec<usize> = (0..existing.len()).collect();
    order.sort_by_key(|index| existing.get(*index).is_some_and(|one| one.stage == AllocationStage::Pending));
    let live = i64::try_from(existing.len()).unwrap_or(i64::MAX);
    let mut may_add = if limits.suspended { 0 } else { (limits.max_allocations - live).max(0) };
    for index in placement_order(demands) {
        let Some(demand) = demands.get(index) else { continue };
        let mut left = if demand.labels.is_empty() { demand.ready } else { 0 };
        let usable = order.iter().copied().chain(existing.len()..rooms.len()).collect::<Vec<usize>>();
        left = take(&mut rooms, &usable, demand.needs, left);
        match shape_for(demand, partitions, limits) {
            Err(reason) => {
                // Reports jobs that still wait, too, so that the user learns early that no partition fits them.
                if left > 0 || demand.waiting > 0 || !demand.labels.is_empty() {
                    result.unplaced.push((index, reason));
                }
            }
            Ok((shape, partition)) => {
                while left > 0 && may_add > 0 {
                    let shape = shrink_to_demand(&shape, partition, demand.needs, left, limits.margin);
                    rooms.push(FreeCapacity::fresh(shape.clone(), limits.margin));
                    result.submit.push(shape);
                    may_add -= 1;
                    let last = rooms.len() - 1;
                    left = take(&mut rooms, &[last], demand.needs, left);
                }
                result.held_back += left;
            }
        }
    }
    release(existing, &capacity_to_keep(demands, existing, &order, limits.margin), limits, &mut result);
    result
}

/// Returns the capacity of the existing allocations after all jobs were placed, to decide which allocations to keep.
///
/// A pending allocation is kept for more jobs than a new one is submitted for: also for ready jobs that would
/// otherwise wait for the jobs of a running allocation to end, and for jobs that become ready later.
fn capacity_to_keep(
    demands: &[JobDemand<'_>],
    existing: &[ExistingAllocation],
    order: &[usize],
    margin: WalltimeMargin,
) -> Vec<FreeCapacity> {
    let whole = |one: &ExistingAllocation| FreeCapacity { then: None, ..FreeCapacity::of(one, margin) };
    let mut rooms: Vec<FreeCapacity> = existing.iter().map(whole).collect();
    let placed: Vec<&JobDemand<'_>> = placement_order(demands)
        .into_iter()
        .filter_map(|index| demands.get(index))
        .filter(|demand| demand.labels.is_empty())
        .collect();
    for demand in &placed {
        take(&mut rooms, order, demand.needs, demand.ready);
    }
    for demand in placed {
        take(&mut rooms, order, demand.needs, demand.waiting);
    }
    rooms
}

/// Divides the allocations into those to keep and those to cancel: pending ones without jobs, and the newest pending
/// ones above the limit.
fn release(
    existing: &[ExistingAllocation],
    rooms: &[FreeCapacity],
    limits: AllocationLimits,
    result: &mut AllocationDifference,
) {
    let live = i64::try_from(existing.len()).unwrap_or(i64::MAX);
    let idle = |room: &FreeCapacity| !room.is_used || limits.suspended;
    let needless: Vec<bool> =
        existing.iter().zip(rooms).map(|(one, room)| one.stage == AllocationStage::Pending && idle(room)).collect();
    let gone = i64::try_from(needless.iter().filter(|is_needless| **is_needless).count()).unwrap_or(i64::MAX);
    let mut duplicates = (live - gone - limits.max_allocations).max(0);
    for (one, is_needless) in existing.iter().zip(needless).rev() {
        let over = !is_needless && duplicates > 0 && one.stage == AllocationStage::Pending;
        duplicates -= i64::from(over);
        let list = if is_needless || over { &mut result.cancel } else { &mut result.keep };
        list.push(one.marker.clone());
    }
    result.cancel.reverse();
    result.keep.reverse();
}

/// Returns the indices of the demands in the order in which they are placed: those that fit into the fewest
/// allocations first.
fn placement_order(demands: &[JobDemand<'_>]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..demands.len()).collect();
    let weight = |index: &usize| {
        demands.get(*index).map(|demand| {
            let needs = demand.needs;
            (needs.num_nodes, needs.num_gpus, needs.runtime_seconds, needs.memory_bytes, needs.num_cpus)
        })
    };
    order.sort_by(|left, right| weight(right).cmp(&weight(left)).then(left.cmp(right)));
    order
}

/// Returns the allocation for jobs of one class, in whole nodes.
fn shape_for<'a>(
    demand: &JobDemand<'_>,
    partitions: &'a [PartitionLimits],
    limits: AllocationLimits,
) -> Result<(AllocationShape, &'a PartitionLimits), NoMatchingPartition> {
    if !demand.labels.is_empty() {
        return Err(NoMatchingPartition::Labels { labels: demand.labels.join(", ") });
    }
    let partition = choose(demand.needs, partitions, None, limits.margin)?;
    let shape = AllocationShape {
        partition: partition.name.clone(),
        nodes: demand.needs.num_nodes.max(1),
        cpus: partition.cpus,
        memory_bytes: partition.memory_bytes,
        gpus: if demand.needs.num_gpus > 0 { partition.gpus } else { 0 },
        seconds: walltime(Sequence::of_one(demand.needs.runtime_seconds), partition, limits.walltime, limits.margin),
    };
    Ok((shape, partition))
}

/// Reduces an allocation on shared nodes to what the remaining jobs use.
fn shrink_to_demand(
    shape: &AllocationShape,
    partition: &PartitionLimits,
    needs: &Requirements,
    jobs: i64,
    margin: WalltimeMargin,
) -> AllocationShape {
    if !partition.is_shared || needs.num_nodes > 1 {
        return shape.clone();
    }
    let each = jobs_per_walltime(shape.seconds, needs.runtime_seconds, margin);
    let slots = div_ceil(jobs, each).min(jobs_per_allocation(needs, partition));
    AllocationShape {
        cpus: needs.num_cpus.saturating_mul(slots).min(shape.cpus),
        memory_bytes: needs.memory_bytes.saturating_mul(slots).min(shape.memory_bytes),
        gpus: needs.num_gpus.saturating_mul(slots).min(shape.gpus),
        ..shape.clone()
    }
}

impl FreeCapacity {
    fn fresh(shape: AllocationShape, margin: WalltimeMargin) -> Self {
        let now = (shape.capacity(), shape.seconds);
        Self { shape, now, then: None, margin, is_used: false }
    }

    fn of(existing: &ExistingAllocation, margin: WalltimeMargin) -> Self {
        let AllocationStage::Running { seconds_left, free, busy_seconds } = existing.stage else {
            return Self::fresh(existing.shape.clone(), margin);
        };
        let shape = existing.shape.clone();
        let then = Some((shape.capacity(), seconds_left - busy_seconds.max(0)));
        let margin = WalltimeMargin { startup_seconds: 0, ..margin };
        Self { shape, now: (free, seconds_left), then, margin, is_used: true }
    }

    /// Places jobs in the allocation. Returns the number of jobs that do not fit.
    fn take(&mut self, needs: &Requirements, jobs: i64) -> i64 {
        let fits_a_node = needs.num_cpus <= self.shape.cpus
            && needs.memory_bytes <= self.shape.memory_bytes
            && needs.num_gpus <= self.shape.gpus
            && needs.num_nodes <= self.shape.nodes;
        if !fits_a_node || jobs == 0 {
            return jobs;
        }
        let (demand, most) = (self.demand(needs), self.slots_per_allocation(needs));
        let each = self.sequential_runs(self.now.1, needs.runtime_seconds);
        let slots = slots_for(jobs, each, count_fitting(&self.now.0, &demand).min(most));
        self.now.0 = subtract_times(&self.now.0, &demand, slots);
        let mut left = (jobs - slots.saturating_mul(each)).max(0);
        if let Some((free, seconds)) = self.then {
            // Slots that start now stay occupied until the end.
            let free = subtract_times(&free, &demand, slots);
            let each = self.sequential_runs(seconds, needs.runtime_seconds);
            let slots = slots_for(left, each, count_fitting(&free, &demand).min(most));
            let free = subtract_times(&free, &demand, slots);
            self.then = Some((free, seconds));
            self.now.0 = least(&self.now.0, &free);
            left = (left - slots.saturating_mul(each)).max(0);
        }
        self.is_used |= left < jobs;
        left
    }

    /// Returns the number of jobs that run one after another in `seconds`.
    fn sequential_runs(&self, seconds: i64, runtime: i64) -> i64 {
        let runtime = runtime.max(1);
        let whole = (self.margin.usable_seconds(seconds) / runtime).max(0);
        // A runner starts a job with a little less time than the job declares.
        let may_start = self.margin.end.allows(runtime, seconds - self.margin.startup_seconds);
        if may_start { whole.max(1) } else { 0 }
    }

    /// Returns the resources that one job takes from the whole allocation.
    fn demand(&self, needs: &Requirements) -> Resources {
        if needs.num_nodes <= 1 {
            return Resources {
                cpus: needs.num_cpus,
                memory_bytes: needs.memory_bytes,
                gpus: needs.num_gpus,
                nodes: 0,
            };
        }
        let whole = |amount: i64| amount.saturating_mul(needs.num_nodes);
        let AllocationShape { cpus, memory_bytes, gpus, .. } = self.shape;
        Resources { cpus: whole(cpus), memory_bytes: whole(memory_bytes), gpus: whole(gpus), nodes: needs.num_nodes }
    }

    /// Returns the number of jobs that fit side by side into the empty allocation. A job cannot span nodes.
    fn slots_per_allocation(&self, needs: &Requirements) -> i64 {
        if needs.num_nodes > 1 {
            return self.shape.nodes / needs.num_nodes;
        }
        let node = PartitionLimits {
            cpus: self.shape.cpus,
            memory_bytes: self.shape.memory_bytes,
            gpus: self.shape.gpus,
            ..PartitionLimits::default()
        };
        jobs_per_allocation(needs, &node).saturating_mul(self.shape.nodes)
    }
}

/// Places jobs with equal requirements in allocations, in this order. Returns the number of jobs that do not fit.
fn take(rooms: &mut [FreeCapacity], order: &[usize], needs: &Requirements, mut jobs: i64) -> i64 {
    for index in order {
        if let Some(room) = rooms.get_mut(*index) {
            jobs = room.take(needs, jobs);
        }
    }
    jobs
}

/// Returns the number of slots that `jobs` take if each slot runs `each` of them one after another.
fn slots_for(jobs: i64, each: i64, most: i64) -> i64 {
    if each == 0 { 0 } else { div_ceil(jobs, each).min(most) }
}

fn least(left: &Resources, right: &Resources) -> Resources {
    Resources {
        cpus: left.cpus.min(right.cpus),
        memory_bytes: left.memory_bytes.min(right.memory_bytes),
        gpus: left.gpus.min(right.gpus),
        nodes: left.nodes.min(right.nodes),
    }
}

fn count_fitting(free: &Resources, demand: &Resources) -> i64 {
    let fit = |have: i64, need: i64| if need > 0 { have.max(0) / need } else { i64::MAX };
    fit(free.cpus, demand.cpus)
        .min(fit(free.memory_bytes, demand.memory_bytes))
        .min(fit(free.gpus, demand.gpus))
        .min(fit(free.nodes, demand.nodes))
}

fn subtract_times(free: &Resources, demand: &Resources, times: i64) -> Resources {
    let all = |amount: i64| amount.saturating_mul(times);
    let total = Resources {
        cpus: all(demand.cpus),
        memory_bytes: all(demand.memory_bytes),
        gpus: all(demand.gpus),
        nodes: all(demand.nodes),
    };
    crate::class::minus(free, &total)
}

#[cfg(test)]
mod tests;
