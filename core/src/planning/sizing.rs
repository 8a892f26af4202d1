//! Allocations of a workflow that says only what its jobs need: how many there should be, and the difference to what there is.
//!
//! Allocations are not for particular jobs. A runner takes whatever fits, so what counts is room: lanes side by side, each of which
//! takes jobs one after another until its time is up.

use torc_api::wire::Resources;

use super::fit::{
    Sequence, Walltime, WalltimeMargin, divide_up, node_hours, one_after_another, side_by_side, walltime,
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

/// Jobs of one kind that have not started.
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
pub struct Existing {
    /// By which it is known.
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
        /// The seconds after which its jobs have probably ended.
        busy_seconds: i64,
    },
}

/// Limits of the allocations of a workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocationLimits {
    /// The most allocations at once, running ones included.
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
pub struct Difference {
    /// Shapes of the allocations to submit.
    pub submit: Vec<AllocationShape>,
    /// Markers of allocations that are not needed.
    pub cancel: Vec<String>,
    /// Markers of the others.
    pub keep: Vec<String>,
    /// Indices of the demands that no allocation can satisfy, and why.
    pub unplaced: Vec<(usize, NoMatchingPartition)>,
    /// The number of ready jobs that wait because `maxAllocations` is reached.
    pub held_back: i64,
}

/// Room in an allocation.
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

/// Compares what jobs need with what there is.
pub fn difference(
    demands: &[JobDemand<'_>],
    existing: &[Existing],
    partitions: &[PartitionLimits],
    limits: AllocationLimits,
) -> Difference {
    let mut result = Difference::default();
    if limits.finished {
        result.cancel = existing.iter().map(|one| one.marker.clone()).collect();
        return result;
    }
    let mut rooms: Vec<FreeCapacity> = existing.iter().map(|one| FreeCapacity::of(one, limits.margin)).collect();
    // Running ones first: they cost already.
    let mut order: Vec<usize> = (0..existing.len()).collect();
    order.sort_by_key(|index| existing.get(*index).is_some_and(|one| one.stage == AllocationStage::Pending));
    let live = i64::try_from(existing.len()).unwrap_or(i64::MAX);
    let mut may_add = if limits.suspended { 0 } else { (limits.max_allocations - live).max(0) };
    for index in hardest_first(demands) {
        let Some(demand) = demands.get(index) else { continue };
        let mut left = if demand.labels.is_empty() { demand.ready } else { 0 };
        let usable = order.iter().copied().chain(existing.len()..rooms.len()).collect::<Vec<usize>>();
        left = take(&mut rooms, &usable, demand.needs, left);
        match shape_for(demand, partitions, limits) {
            Err(reason) => {
                // Report jobs that wait, too: better now than after days.
                if left > 0 || demand.waiting > 0 || !demand.labels.is_empty() {
                    result.unplaced.push((index, reason));
                }
            }
            Ok((shape, partition)) => {
                while left > 0 && may_add > 0 {
                    let shape = trim(&shape, partition, demand.needs, left, limits.margin);
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
    release(existing, &rooms_to_keep(demands, existing, &order, limits.margin), limits, &mut result);
    result
}

/// Returns which allocations to keep. A pending allocation is kept for more reasons than a new one is submitted: for
/// jobs that could start now but for a free slot, and for jobs that will be ready later.
fn rooms_to_keep(
    demands: &[JobDemand<'_>],
    existing: &[Existing],
    order: &[usize],
    margin: WalltimeMargin,
) -> Vec<FreeCapacity> {
    let whole = |one: &Existing| FreeCapacity { then: None, ..FreeCapacity::of(one, margin) };
    let mut rooms: Vec<FreeCapacity> = existing.iter().map(whole).collect();
    let placed: Vec<&JobDemand<'_>> = hardest_first(demands)
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

/// Returns the pending allocations that are not needed: those without jobs, and the newest of those above the limit.
fn release(existing: &[Existing], rooms: &[FreeCapacity], limits: AllocationLimits, result: &mut Difference) {
    let live = i64::try_from(existing.len()).unwrap_or(i64::MAX);
    let idle = |room: &FreeCapacity| !room.is_used || limits.suspended;
    let needless: Vec<bool> =
        existing.iter().zip(rooms).map(|(one, room)| one.stage == AllocationStage::Pending && idle(room)).collect();
    let gone = i64::try_from(needless.iter().filter(|is_needless| **is_needless).count()).unwrap_or(i64::MAX);
    let mut surplus = (live - gone - limits.max_allocations).max(0);
    for (one, is_needless) in existing.iter().zip(needless).rev() {
        let over = !is_needless && surplus > 0 && one.stage == AllocationStage::Pending;
        surplus -= i64::from(over);
        let list = if is_needless || over { &mut result.cancel } else { &mut result.keep };
        list.push(one.marker.clone());
    }
    result.cancel.reverse();
    result.keep.reverse();
}

/// Kinds of jobs in the order in which they are given room.
fn hardest_first(demands: &[JobDemand<'_>]) -> Vec<usize> {
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
fn trim(
    shape: &AllocationShape,
    partition: &PartitionLimits,
    needs: &Requirements,
    jobs: i64,
    margin: WalltimeMargin,
) -> AllocationShape {
    if !partition.is_shared || needs.num_nodes > 1 {
        return shape.clone();
    }
    let each = one_after_another(shape.seconds, needs.runtime_seconds, margin);
    let lanes = divide_up(jobs, each).min(side_by_side(needs, partition));
    AllocationShape {
        cpus: needs.num_cpus.saturating_mul(lanes).min(shape.cpus),
        memory_bytes: needs.memory_bytes.saturating_mul(lanes).min(shape.memory_bytes),
        gpus: needs.num_gpus.saturating_mul(lanes).min(shape.gpus),
        ..shape.clone()
    }
}

impl FreeCapacity {
    fn fresh(shape: AllocationShape, margin: WalltimeMargin) -> Self {
        let now = (shape.capacity(), shape.seconds);
        Self { shape, now, then: None, margin, is_used: false }
    }

    fn of(existing: &Existing, margin: WalltimeMargin) -> Self {
        let AllocationStage::Running { seconds_left, free, busy_seconds } = existing.stage else {
            return Self::fresh(existing.shape.clone(), margin);
        };
        let shape = existing.shape.clone();
        let then = Some((shape.capacity(), seconds_left - busy_seconds.max(0)));
        let margin = WalltimeMargin { startup_seconds: 0, ..margin };
        Self { shape, now: (free, seconds_left), then, margin, is_used: true }
    }

    /// Takes jobs in, and says how many are left.
    fn take(&mut self, needs: &Requirements, jobs: i64) -> i64 {
        let fits_a_node = needs.num_cpus <= self.shape.cpus
            && needs.memory_bytes <= self.shape.memory_bytes
            && needs.num_gpus <= self.shape.gpus
            && needs.num_nodes <= self.shape.nodes;
        if !fits_a_node || jobs == 0 {
            return jobs;
        }
        let (demand, most) = (self.demand(needs), self.lanes(needs));
        let each = self.rounds(self.now.1, needs.runtime_seconds);
        let lanes = lanes_for(jobs, each, room_for(&self.now.0, &demand).min(most));
        self.now.0 = minus_times(&self.now.0, &demand, lanes);
        let mut left = (jobs - lanes.saturating_mul(each)).max(0);
        if let Some((free, seconds)) = self.then {
            // Lanes that start now are taken to the end.
            let free = minus_times(&free, &demand, lanes);
            let each = self.rounds(seconds, needs.runtime_seconds);
            let lanes = lanes_for(left, each, room_for(&free, &demand).min(most));
            let free = minus_times(&free, &demand, lanes);
            self.then = Some((free, seconds));
            self.now.0 = least(&self.now.0, &free);
            left = (left - lanes.saturating_mul(each)).max(0);
        }
        self.is_used |= left < jobs;
        left
    }

    /// Returns the number of jobs that run one after another in `seconds`.
    fn rounds(&self, seconds: i64, runtime: i64) -> i64 {
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
    fn lanes(&self, needs: &Requirements) -> i64 {
        if needs.num_nodes > 1 {
            return self.shape.nodes / needs.num_nodes;
        }
        let node = PartitionLimits {
            cpus: self.shape.cpus,
            memory_bytes: self.shape.memory_bytes,
            gpus: self.shape.gpus,
            ..PartitionLimits::default()
        };
        side_by_side(needs, &node).saturating_mul(self.shape.nodes)
    }
}

/// Gives jobs of a kind to rooms, one after the other, and says how many are left.
fn take(rooms: &mut [FreeCapacity], order: &[usize], needs: &Requirements, mut jobs: i64) -> i64 {
    for index in order {
        if let Some(room) = rooms.get_mut(*index) {
            jobs = room.take(needs, jobs);
        }
    }
    jobs
}

/// Returns the number of slots that `jobs` take if each slot runs `each` of them one after another.
fn lanes_for(jobs: i64, each: i64, most: i64) -> i64 {
    if each == 0 { 0 } else { divide_up(jobs, each).min(most) }
}

fn least(left: &Resources, right: &Resources) -> Resources {
    Resources {
        cpus: left.cpus.min(right.cpus),
        memory_bytes: left.memory_bytes.min(right.memory_bytes),
        gpus: left.gpus.min(right.gpus),
        nodes: left.nodes.min(right.nodes),
    }
}

fn room_for(free: &Resources, demand: &Resources) -> i64 {
    let fit = |have: i64, need: i64| if need > 0 { have.max(0) / need } else { i64::MAX };
    fit(free.cpus, demand.cpus)
        .min(fit(free.memory_bytes, demand.memory_bytes))
        .min(fit(free.gpus, demand.gpus))
        .min(fit(free.nodes, demand.nodes))
}

fn minus_times(free: &Resources, demand: &Resources, times: i64) -> Resources {
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
