//! Plans the submission and cancellation of one workflow's allocations.
//!
//! Every rule compares the desired state with the present one, so it can run at any time, and again after a crash.

use std::collections::BTreeMap;
use std::sync::Arc;

use torc_api::action::Action;
use torc_api::allocation::{AllocationOrigin, AllocationStatus};
use torc_api::failure::RecoveryPolicy;
use torc_api::quantity::{parse_memory, parse_walltime};
use torc_api::resources::SlurmScheduler;
use torc_api::workflow::WorkflowSpec;

use super::fit::{Walltime, WalltimeMargin};
use super::partition::PartitionLimits;
use super::sizing::{
    self, AllocationDifference, AllocationLimits, AllocationShape, AllocationStage, ExistingAllocation,
};
use crate::expanded::Requirements;
use crate::ids::{AllocationId, JobId, WorkflowId};
use crate::rows::AllocationRow;

/// Maximum number of concurrent allocations, unless the document sets `maxAllocations`.
const MAX_ALLOCATIONS: i64 = 4;
/// The walltime of an allocation whose scheduler declares none, in seconds.
const WALLTIME_SECONDS: i64 = 3_600;
/// The number of polls without runners after which an allocation no longer counts as capacity.
const MAX_IDLE_POLLS: u32 = 2;
/// The time in milliseconds after the end of a workflow within which its runners leave by themselves.
const SHUTDOWN_GRACE_MS: i64 = 120_000;
/// Time in milliseconds after which `scancel` is called again for an allocation that still exists.
const CANCEL_RETRY_INTERVAL_MS: i64 = 30_000;

/// The Slurm demand of a workflow, and its allocations.
#[derive(Clone, Debug)]
pub struct WorkflowDemand {
    /// Number of the workflow.
    pub workflow: WorkflowId,
    /// Name of the workflow, for messages.
    pub name: String,
    /// The folder its jobs run in.
    pub working_dir: String,
    /// The Slurm cluster that it runs on; none if it no longer uses Slurm but still has allocations.
    pub cluster: Option<String>,
    /// The specification, with schedulers and actions.
    pub spec: Arc<WorkflowSpec>,
    /// Actions or the user request its allocations, so none is sized automatically.
    pub has_explicit_requests: bool,
    /// New allocations may be submitted: this process runs the workflow.
    pub is_served: bool,
    /// The workflow is canceled.
    pub is_canceled: bool,
    /// The end of the workflow, in milliseconds since 1970.
    pub finished_ms: Option<i64>,
    /// It is suspended, so no allocations are submitted.
    pub is_suspended: bool,
    /// Too many consecutive allocations have ended without a finished job.
    pub is_exhausted: bool,
    /// Jobs that have not started, by resource class.
    pub kinds: Vec<ResourceClass>,
    /// Number of jobs that may still need a runner: those that neither run, nor have ended, nor wait for a manual
    /// decision.
    pub open_jobs: i64,
    /// Its allocations that have not ended.
    pub allocations: Vec<LiveAllocation>,
    /// Triggered actions that request nodes.
    pub actions: Vec<NodeRequest>,
    /// The allocations that executed actions have requested, by scheduler: their number, and the first such action.
    pub requested: BTreeMap<String, (i64, Action)>,
}

/// Jobs with equal requirements, labels and scheduler that have not started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceClass {
    /// The requirements of each job.
    pub needs: Requirements,
    /// Labels that a runner must have.
    pub labels: Vec<String>,
    /// The document's scheduler that they belong to.
    pub scheduler: Option<String>,
    /// The number of jobs that can start now.
    pub ready: i64,
    /// The number of jobs that wait for other jobs, or for an action that requests nodes for them.
    pub waiting: i64,
}

/// An allocation that has not ended, and its use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveAllocation {
    /// The row of the store.
    pub row: AllocationRow,
    /// Its stage for sizing, with the remaining time.
    pub stage: AllocationStage,
    /// The number of runners in it.
    pub runners: usize,
    /// The number of consecutive polls in which Slurm reported it as running after its runners had left.
    pub idle_polls: u32,
}

impl LiveAllocation {
    /// Returns whether its runners have left although Slurm reports it as running. One such poll is not enough,
    /// because a preempted allocation loses its runners before Slurm requeues it.
    pub fn is_left(&self) -> bool {
        self.runners == 0 && self.idle_polls >= MAX_IDLE_POLLS
    }
}

/// An action that requests nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRequest {
    /// Number of the action.
    pub action: JobId,
    /// The action of the document.
    pub definition: Action,
    /// Its allocations are recorded.
    pub is_begun: bool,
}

/// The facts about a cluster that a plan depends on.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClusterView<'a> {
    /// Its partitions; none while they are not known.
    pub partitions: Option<&'a [PartitionLimits]>,
    /// The account that is charged unless a scheduler names another.
    pub account: Option<&'a str>,
}

/// A summary of the demand of a workflow. It is not stored, but computed again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllocationSummary {
    /// The desired number of allocations.
    pub desired: i64,
    /// The number of ready jobs that wait because `maxAllocations` is reached.
    pub held_back: i64,
    /// The reason why no allocation can be submitted for jobs that need one.
    pub unplaced: Option<String>,
    /// The error of a Slurm that has not answered for a while.
    pub unreachable: Option<String>,
    /// Slurm's text when it refused the latest submission.
    pub refused: Option<String>,
}

/// The changes to make.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllocationPlan {
    /// Allocations to submit, without their numbers.
    pub intend: Vec<AllocationRow>,
    /// Actions whose allocations are in `intend`.
    pub begin: Vec<JobId>,
    /// Actions whose allocations all exist.
    pub executed: Vec<JobId>,
    /// Allocations that are not needed.
    pub cancel: Vec<AllocationId>,
    /// The summary for the status.
    pub summary: AllocationSummary,
}

/// Decides which allocations of a workflow to submit and to cancel.
pub fn plan_allocations(needs: &WorkflowDemand, cluster: ClusterView<'_>, now_ms: i64) -> AllocationPlan {
    let mut plan = AllocationPlan::default();
    let live: Vec<&LiveAllocation> = needs.allocations.iter().collect();
    if needs.is_canceled || needs.cluster.is_none() {
        plan.cancel = due(&live, |_| true, now_ms);
        return plan;
    }
    if let Some(finished_ms) = needs.finished_ms {
        // Runners first finish their own work, e.g. `on_worker_complete` commands, and then leave by themselves.
        let stays = needs.spec.compute_node_ignore_workflow_completion == Some(true);
        let may_leave = now_ms - finished_ms < SHUTDOWN_GRACE_MS || stays;
        plan.cancel = due(&live, |one| one.stage == AllocationStage::Pending || one.runners == 0 || !may_leave, now_ms);
        return plan;
    }
    if !needs.is_served {
        plan.summary.desired = live.len() as i64;
        return plan;
    }
    if !needs.is_suspended {
        for wanted in &needs.actions {
            plan_action(wanted, needs, cluster, &mut plan);
        }
    }
    if needs.has_explicit_requests {
        replace_lost(needs, cluster, &mut plan);
        // An explicitly requested allocation is canceled only when no job is left that can use it.
        // An allocation of a scheduler that no longer exists belongs to an earlier plan.
        let is_of_an_earlier_plan = |row: &AllocationRow| {
            let name = row.scheduler.as_deref();
            name.is_some_and(|name| scheduler(&needs.spec, name).is_none())
        };
        let is_useless = |one: &LiveAllocation| {
            one.stage == AllocationStage::Pending && (needs.open_jobs == 0 || is_of_an_earlier_plan(&one.row))
        };
        plan.cancel = due(&live, is_useless, now_ms);
    } else if let Some(partitions) = cluster.partitions {
        size(needs, partitions, cluster.account, now_ms, &mut plan);
    }
    plan.summary.desired = live.len() as i64 - plan.cancel.len() as i64 + plan.intend.len() as i64;
    plan
}

/// Returns the allocations to cancel now. `scancel` is not repeated at every poll.
fn due(live: &[&LiveAllocation], unwanted: impl Fn(&LiveAllocation) -> bool, now_ms: i64) -> Vec<AllocationId> {
    let is_due =
        |row: &AllocationRow| row.canceled_ms.is_none_or(|requested| now_ms - requested >= CANCEL_RETRY_INTERVAL_MS);
    live.iter().filter(|one| is_due(&one.row) && unwanted(one)).map(|one| one.row.id).collect()
}

/// Plans the allocations that an action requests and does not have yet.
fn plan_action(wanted: &NodeRequest, needs: &WorkflowDemand, cluster: ClusterView<'_>, plan: &mut AllocationPlan) {
    if wanted.is_begun {
        return;
    }
    let name = wanted.definition.scheduler.as_deref().unwrap_or_default();
    let Some(scheduler) = scheduler(&needs.spec, name) else {
        plan.summary.refused = Some(format!("there is no Slurm scheduler '{name}'"));
        return;
    };
    let is_its_own = |one: &&LiveAllocation| one.row.action == Some(wanted.action) && one.row.canceled_ms.is_none();
    let there = needs.allocations.iter().filter(is_its_own).count() as i64;
    let missing = wanted.definition.num_allocations.unwrap_or(1) - there;
    if missing <= 0 {
        plan.executed.push(wanted.action);
        return;
    }
    let row = AllocationRow {
        origin: AllocationOrigin::Action,
        action: Some(wanted.action),
        ..for_workflow(needs, scheduler, &wanted.definition, cluster)
    };
    plan.intend.extend(std::iter::repeat_n(row, usize::try_from(missing).unwrap_or(0)));
    plan.begin.push(wanted.action);
}

/// Replaces ended allocations while jobs are ready that no other allocation can run. Never exceeds the number of
/// allocations that actions have requested.
fn replace_lost(needs: &WorkflowDemand, cluster: ClusterView<'_>, plan: &mut AllocationPlan) {
    let policy = needs.spec.recovery.as_ref().and_then(|recovery| recovery.policy);
    let is_allowed = !matches!(policy, Some(RecoveryPolicy::Never | RecoveryPolicy::Manual));
    let Some(partitions) = cluster.partitions.filter(|_| is_allowed && !needs.is_suspended && !needs.is_exhausted)
    else {
        return;
    };
    let existing: Vec<ExistingAllocation> = needs.allocations.iter().map(|one| existing(one, partitions)).collect();
    let mut names: Vec<Option<&str>> = needs.kinds.iter().map(|kind| kind.scheduler.as_deref()).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let kinds = needs.kinds.iter().filter(|kind| kind.scheduler.as_deref() == name);
        let demands: Vec<sizing::JobDemand<'_>> = kinds.map(demand).collect();
        let places: Vec<PartitionLimits> = needs
            .requested
            .keys()
            .filter(|requested| name.is_none_or(|name| name == requested.as_str()))
            .filter_map(|requested| Some(partition_of_scheduler(scheduler(&needs.spec, requested)?, partitions)))
            .collect();
        let limits = limits(i64::MAX, needs);
        for shape in sizing::difference(&demands, &existing, &places, limits).submit {
            let Some((requested, action)) = needs.requested.get(&shape.partition) else { continue };
            let is_of_it = |row: &AllocationRow| row.scheduler.as_deref() == Some(shape.partition.as_str());
            let live = needs.allocations.iter().filter(|one| is_of_it(&one.row) && !one.is_left()).count();
            let coming = plan.intend.iter().filter(|row| is_of_it(row)).count();
            let Some(scheduler) = scheduler(&needs.spec, &shape.partition) else { continue };
            if ((live + coming) as i64) < *requested {
                let row = for_workflow(needs, scheduler, action, cluster);
                plan.intend.push(AllocationRow { origin: AllocationOrigin::Recovery, ..row });
            }
        }
    }
}

/// Plans as many allocations as the jobs need, up to `maxAllocations`.
fn size(
    needs: &WorkflowDemand,
    partitions: &[PartitionLimits],
    account: Option<&str>,
    now_ms: i64,
    plan: &mut AllocationPlan,
) {
    let demands: Vec<sizing::JobDemand<'_>> = needs.kinds.iter().map(demand).collect();
    // A canceled allocation offers no capacity, but still counts. One whose runners have left does not count: Slurm
    // takes minutes to notice that a node's daemon is dead.
    let present = needs.allocations.iter().filter(|one| !one.is_left());
    let (leaving, staying): (Vec<_>, Vec<_>) = present.partition(|one| one.row.canceled_ms.is_some());
    let known: Vec<ExistingAllocation> = staying.iter().map(|one| existing(one, partitions)).collect();
    let most = needs.spec.max_allocations.map_or(MAX_ALLOCATIONS, i64::from);
    let limits = AllocationLimits {
        suspended: needs.is_suspended || needs.is_exhausted,
        ..limits((most - leaving.len() as i64).max(0), needs)
    };
    let AllocationDifference { submit, cancel, unplaced, held_back, .. } =
        sizing::difference(&demands, &known, partitions, limits);
    let template = |shape: AllocationShape| AllocationRow {
        cluster: needs.cluster.clone().unwrap_or_default(),
        origin: AllocationOrigin::Sizing,
        partition: Some(shape.partition),
        account: account.map(str::to_owned),
        nodes: shape.nodes,
        cpus: shape.cpus,
        memory_bytes: shape.memory_bytes,
        gpus: shape.gpus,
        seconds: shape.seconds,
        ..AllocationRow::default()
    };
    plan.intend.extend(submit.into_iter().map(template));
    let again = leaving.into_iter().filter(|one| one.stage == AllocationStage::Pending).collect::<Vec<_>>();
    let is_named = |one: &LiveAllocation| cancel.contains(&one.row.name());
    plan.cancel = due(&staying, is_named, now_ms);
    plan.cancel.extend(due(&again, |_| true, now_ms));
    plan.summary.held_back = held_back;
    let ready_and_unplaced =
        unplaced.iter().find(|(index, _)| needs.kinds.get(*index).is_some_and(|kind| kind.ready > 0));
    plan.summary.unplaced = ready_and_unplaced.and_then(|(index, reason)| {
        Some(format!("jobs that need '{}': {reason}", needs.kinds.get(*index)?.needs.name))
    });
}

fn limits(max_allocations: i64, needs: &WorkflowDemand) -> AllocationLimits {
    AllocationLimits {
        max_allocations,
        walltime: Walltime::FromJobs,
        margin: WalltimeMargin::of(needs.spec.execution_config.as_ref()),
        suspended: needs.is_suspended,
        finished: false,
    }
}

fn demand(kind: &ResourceClass) -> sizing::JobDemand<'_> {
    sizing::JobDemand { needs: &kind.needs, labels: &kind.labels, ready: kind.ready, waiting: kind.waiting }
}

/// Returns the shape of an allocation; what its scheduler leaves open comes from the partition.
fn existing(one: &LiveAllocation, partitions: &[PartitionLimits]) -> ExistingAllocation {
    let row = &one.row;
    let site = node_of(row.partition.as_deref(), partitions);
    let or_site = |amount: i64, site: i64| if amount > 0 { amount } else { site };
    let shape = AllocationShape {
        partition: row.partition.clone().unwrap_or_default(),
        nodes: row.nodes.max(1),
        cpus: or_site(row.cpus, site.cpus),
        memory_bytes: or_site(row.memory_bytes, site.memory_bytes),
        gpus: row.gpus,
        seconds: row.seconds,
    };
    let stage = match one.stage {
        // Its runner has not registered yet. It will have what a node of the partition has.
        AllocationStage::Running { seconds_left, free, busy_seconds }
            if free.cpus == 0 && free.nodes > 0 && row.cpus == 0 =>
        {
            let all = |amount: i64| amount.saturating_mul(shape.nodes);
            let (cpus, memory_bytes, gpus) = (all(shape.cpus), all(shape.memory_bytes), all(shape.gpus));
            let free = torc_api::wire::Resources { cpus, memory_bytes, gpus, nodes: free.nodes };
            AllocationStage::Running { seconds_left, free, busy_seconds }
        }
        stage => stage,
    };
    ExistingAllocation { marker: row.name(), shape, stage }
}

/// Returns a node of the partition, or of the largest partition if none is named.
fn node_of(name: Option<&str>, partitions: &[PartitionLimits]) -> PartitionLimits {
    let named = name.and_then(|name| partitions.iter().find(|partition| partition.name == name));
    let largest = || partitions.iter().max_by_key(|partition| (partition.cpus, partition.memory_bytes));
    named.or_else(largest).cloned().unwrap_or_default()
}

/// Returns the limits of a scheduler's allocations as a partition, so that jobs can be matched with them.
fn partition_of_scheduler(scheduler: &SlurmScheduler, partitions: &[PartitionLimits]) -> PartitionLimits {
    let node = node_of(scheduler.partition.as_deref(), partitions);
    PartitionLimits {
        name: scheduler.name.clone().unwrap_or_default(),
        memory_bytes: memory_of(scheduler).filter(|bytes| *bytes > 0).unwrap_or(node.memory_bytes),
        gpus: gpus_of(scheduler),
        seconds: seconds_of(scheduler),
        nodes: Some(scheduler.nodes.unwrap_or(1)),
        is_shared: false,
        on_request: false,
        ..node
    }
}

/// Creates an allocation of a scheduler for a workflow on a cluster.
fn for_workflow(
    needs: &WorkflowDemand,
    scheduler: &SlurmScheduler,
    action: &Action,
    cluster: ClusterView<'_>,
) -> AllocationRow {
    let row = of_scheduler(scheduler, action);
    let account = row.account.or_else(|| cluster.account.map(str::to_owned));
    AllocationRow { cluster: needs.cluster.clone().unwrap_or_default(), account, ..row }
}

/// Creates an allocation of a scheduler for an action.
pub fn of_scheduler(scheduler: &SlurmScheduler, action: &Action) -> AllocationRow {
    let account = Some(scheduler.account.as_str()).filter(|account| !account.is_empty());
    AllocationRow {
        scheduler: scheduler.name.clone(),
        status: AllocationStatus::Pending,
        partition: scheduler.partition.clone(),
        account: account.map(str::to_owned),
        nodes: scheduler.nodes.unwrap_or(1),
        memory_bytes: memory_of(scheduler).unwrap_or(0),
        gpus: gpus_of(scheduler),
        seconds: seconds_of(scheduler),
        one_worker_per_node: action.start_one_worker_per_node == Some(true),
        max_parallel_jobs: action.max_parallel_jobs,
        ..AllocationRow::default()
    }
}

/// Returns a scheduler of the document by name.
pub fn scheduler<'a>(spec: &'a WorkflowSpec, name: &str) -> Option<&'a SlurmScheduler> {
    spec.slurm_schedulers.iter().find(|scheduler| scheduler.name.as_deref() == Some(name))
}

fn seconds_of(scheduler: &SlurmScheduler) -> i64 {
    scheduler.walltime.as_deref().and_then(|text| parse_walltime(text).ok()).unwrap_or(WALLTIME_SECONDS)
}

/// Returns the memory of a node in bytes; none if it is not set. A number without a unit is in MiB, as in
/// `sbatch --mem`.
fn memory_of(scheduler: &SlurmScheduler) -> Option<i64> {
    let text = scheduler.mem.as_deref()?.trim();
    match text.parse::<i64>() {
        Ok(mebibytes) => Some(mebibytes.saturating_mul(1 << 20)),
        Err(_) => parse_memory(text).ok(),
    }
}

/// Returns the number of GPUs in `gpu:4`, `gpu:h100:4` or `gpu`.
fn gpus_of(scheduler: &SlurmScheduler) -> i64 {
    let of_one = |part: &str| {
        let mut words = part.trim().split(':');
        let is_gpu = words.next() == Some("gpu");
        is_gpu.then(|| words.next_back().and_then(|count| count.parse().ok()).unwrap_or(1))
    };
    scheduler.gres.as_deref().map_or(0, |gres| gres.split(',').filter_map(of_one).sum())
}

#[cfg(test)]
mod tests;
