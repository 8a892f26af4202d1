//! Plans schedulers and allocations for jobs whose allocations are gone. `torc slurm regenerate` adds them to a
//! workflow.
//!
//! The document does not contain them. A reset of jobs removes them, and the scheduling actions of the document apply
//! again.

use torc_api::action::{Action, ActionType, TriggerType};
use torc_api::allocation::AllocationOrigin;
use torc_api::event_reason::EventReason;
use torc_api::quantity::count;
use torc_api::recovery::{RecoveryScheduler, RegenerateReport, RegenerateRequest, ScheduleNodesRequest, UnplacedJob};
use torc_api::state::JobState;

use super::tx::Tx;
use super::workflow::LiveWorkflow;
use super::{CommandError, Engine};
use crate::ids::{Now, WorkflowId};
use crate::planning::allocation_plan;
use crate::planning::fit::{Walltime, WalltimeMargin};
use crate::planning::generate::{PlanSettings, PlannedScheduler, SchedulerPlan, plan};
use crate::planning::groups::PendingJob;
use crate::planning::partition::PartitionLimits;
use crate::rows::{AllocationRow, RegeneratedScheduler};

/// A request to plan schedulers, with the facts that the plan needs.
#[derive(Clone, Copy, Debug)]
pub struct Regenerate<'a> {
    /// The request of the user.
    pub request: &'a RegenerateRequest,
    /// The account to charge.
    pub account: &'a str,
    /// Walltime of allocations in seconds, if the user has set it.
    pub seconds: Option<i64>,
    /// Partitions of the cluster.
    pub partitions: &'a [PartitionLimits],
    /// Suffix that distinguishes the names of schedulers from earlier ones.
    pub stamp: &'a str,
}

/// Allocations of one scheduler to submit.
struct NodeOrder<'a> {
    scheduler: &'a str,
    count: i64,
    action: &'a Action,
    origin: AllocationOrigin,
}

impl Engine {
    /// Returns the plan of a regeneration, by executing it on a copy of the workflow.
    pub fn regenerate_preview(
        &self,
        id: WorkflowId,
        regenerate: Regenerate<'_>,
        now: Now,
    ) -> Result<RegenerateReport, CommandError> {
        let mut copy = self.copy_of(id)?;
        let report = copy.regenerate(id, regenerate, &mut copy.begin(now))?;
        Ok(RegenerateReport { dry_run: true, allocations: Vec::new(), ..report })
    }

    /// Plans schedulers for the jobs that are still to run, and requests the allocations of those without dependencies if the user wants
    /// that. Does nothing if no job is left.
    pub fn regenerate(
        &mut self,
        id: WorkflowId,
        regenerate: Regenerate<'_>,
        tx: &mut Tx,
    ) -> Result<RegenerateReport, CommandError> {
        let workflow = self.workflows.require_mut(id)?;
        check_regeneration(workflow)?;
        let (plan, pending) = plan_pending_jobs(workflow, regenerate)?;
        if pending == 0 {
            return Ok(RegenerateReport::default());
        }
        let superseded = workflow.actions.supersede(tx);
        workflow.remove_recovery_actions(tx);
        let is_requested = |planned: &PlannedScheduler| regenerate.request.submit && !planned.waits;
        let regenerated = |planned: &PlannedScheduler| RegeneratedScheduler {
            action: planned.action(|_| ""),
            scheduler: planned.scheduler.clone(),
            asked: if is_requested(planned) { planned.allocations } else { 0 },
        };
        workflow.set_regenerated(plan.planned.iter().map(regenerated).collect(), tx);
        for planned in &plan.planned {
            workflow.graph.set_recovery_scheduler(planned.jobs.iter().copied(), Some(&planned.name), tx);
        }
        // Allocations of jobs with dependencies are requested when the jobs are ready.
        let name_of = |job| workflow.graph.name(job);
        let actions: Vec<Action> = plan.planned.iter().filter_map(|one| one.recovery_action(name_of)).collect();
        workflow.add_recovery_actions(actions, tx);
        let mut report = report(workflow, &plan, pending, superseded);
        self.cancel_unsubmitted(id, tx);
        if regenerate.request.submit {
            report.allocations = self.record_planned_allocations(id, &plan, tx)?;
        }
        let schedulers = count(report.schedulers.len(), "scheduler");
        let message = format!("{schedulers} planned for {}", count(pending, "job"));
        tx.event(Some(id), EventReason::AllocationsRegenerated, message);
        self.runners.wake();
        Ok(report)
    }

    /// Cancels allocations of an earlier plan that Slurm has never received.
    fn cancel_unsubmitted(&mut self, id: WorkflowId, tx: &mut Tx) {
        let Some(workflow) = self.workflows.get(&id) else { return };
        let is_unsubmitted = |row: &&AllocationRow| row.slurm_job_id.is_none() && row.called_ms.is_none();
        let keys: Vec<_> = workflow.allocations.iter().filter(is_unsubmitted).map(|row| (id, row.id)).collect();
        self.cancel_allocations(&keys, tx);
    }

    /// Returns the account of the first scheduler of the document.
    pub fn scheduler_account(&self, id: WorkflowId) -> Result<Option<String>, CommandError> {
        let schedulers = &self.workflows.require(id)?.spec().slurm_schedulers;
        Ok(schedulers.first().map(|scheduler| scheduler.account.clone()).filter(|account| !account.is_empty()))
    }

    /// Requests allocations of a scheduler for a user. Returns their names.
    pub fn schedule_nodes(
        &mut self,
        id: WorkflowId,
        request: &ScheduleNodesRequest,
        tx: &mut Tx,
    ) -> Result<Vec<String>, CommandError> {
        let workflow = self.workflows.require(id)?;
        if workflow.is_settled() {
            return Err(CommandError::Conflict(format!("workflow '{}' has nothing left to run", workflow.row().name)));
        }
        let name = chosen_scheduler(workflow, request.scheduler.as_deref())?;
        let action = nodes_action(&name, request);
        let count = request.num_allocations.unwrap_or(1).max(1);
        let origin = AllocationOrigin::Manual;
        self.record_allocations(id, &NodeOrder { scheduler: &name, count, action: &action, origin }, tx)
    }

    /// Records allocations of a scheduler, which the controller submits. Returns their names.
    fn record_allocations(
        &mut self,
        id: WorkflowId,
        order: &NodeOrder<'_>,
        tx: &mut Tx,
    ) -> Result<Vec<String>, CommandError> {
        let workflow = self.workflows.require_mut(id)?;
        let schedulers = &workflow.schedulers;
        let scheduler = schedulers.get(order.scheduler).ok_or_else(|| no_scheduler(workflow, order.scheduler))?;
        let cluster = schedulers.cluster_or_local().to_owned();
        let row =
            AllocationRow { cluster, origin: order.origin, ..allocation_plan::of_scheduler(scheduler, order.action) };
        let templates = vec![row; usize::try_from(order.count).unwrap_or(0)];
        let rows = workflow.allocations.add(id, templates, None, tx);
        self.workflows.session.add(id);
        Ok(rows.iter().map(AllocationRow::name).collect())
    }

    /// Requests the planned allocations of jobs without dependencies. Returns their names.
    fn record_planned_allocations(
        &mut self,
        id: WorkflowId,
        plan: &SchedulerPlan,
        tx: &mut Tx,
    ) -> Result<Vec<String>, CommandError> {
        let mut names = Vec::new();
        for planned in plan.planned.iter().filter(|planned| !planned.waits) {
            let (action, count) = (planned.action(|_| ""), planned.allocations);
            let origin = AllocationOrigin::Recovery;
            let order = NodeOrder { scheduler: &planned.name, count, action: &action, origin };
            names.extend(self.record_allocations(id, &order, tx)?);
        }
        Ok(names)
    }
}

/// Returns the action that is equivalent to a manual request for allocations.
pub(super) fn nodes_action(scheduler: &str, request: &ScheduleNodesRequest) -> Action {
    Action {
        trigger_type: TriggerType::OnWorkflowStart,
        action_type: ActionType::ScheduleNodes,
        jobs: None,
        job_name_regexes: None,
        commands: None,
        scheduler: Some(scheduler.to_owned()),
        scheduler_type: None,
        num_allocations: request.num_allocations,
        start_one_worker_per_node: Some(request.start_one_worker_per_node),
        max_parallel_jobs: request.max_parallel_jobs,
        persistent: None,
    }
}

/// Returns an error if the allocations of a workflow cannot be planned on request.
pub(super) fn check_regeneration(workflow: &LiveWorkflow) -> Result<(), CommandError> {
    let name = &workflow.row().name;
    if workflow.is_canceled() {
        let message = format!("workflow '{name}' is canceled; run `torc resume {name}` first");
        return Err(CommandError::Conflict(message));
    }
    if workflow.schedulers.are_sized_by_jobs() {
        let message =
            format!("Torc plans the allocations of workflow '{name}' itself; there are no schedulers to regenerate");
        return Err(CommandError::Conflict(message));
    }
    Ok(())
}

/// Plans schedulers for all jobs that are still to run. Returns the plan and the number of these jobs.
fn plan_pending_jobs(
    workflow: &LiveWorkflow,
    regenerate: Regenerate<'_>,
) -> Result<(SchedulerPlan, usize), CommandError> {
    let graph = &workflow.graph;
    let included = workflow.require_jobs(&regenerate.request.include_jobs)?;
    let is_pending = |job: &u32| {
        let state = graph.job(*job).state();
        matches!(state, JobState::Uninitialized | JobState::Blocked | JobState::Ready) || included.contains(job)
    };
    let is_open = |parent: &u32| !graph.job(*parent).state().is_complete() || is_pending(parent);
    let describe = |job: u32| {
        let profile = graph.profile(job);
        PendingJob {
            index: job,
            name: graph.name(job),
            requirements: &profile.requirements,
            labels: &profile.labels,
            waits: graph.parents(job).iter().any(is_open),
            // Only merged groups use it, and these are not merged.
            chain_seconds: profile.requirements.runtime_seconds,
        }
    };
    let jobs: Vec<PendingJob<'_>> = graph.ordinals().filter(is_pending).map(describe).collect();
    let settings = PlanSettings {
        account: regenerate.account,
        partition: regenerate.request.partition.as_deref(),
        by_requirements: true,
        walltime: Walltime::FromJobs,
        margin: WalltimeMargin::of(workflow.spec().execution_config.as_ref()),
        seconds: regenerate.seconds,
        single_allocation: regenerate.request.single_allocation,
        keep_apart: true,
        stamp: Some(regenerate.stamp),
    };
    let count = jobs.len();
    Ok((plan(&jobs, regenerate.partitions, settings), count))
}

fn report(workflow: &LiveWorkflow, plan: &SchedulerPlan, pending: usize, superseded: usize) -> RegenerateReport {
    let scheduler = |planned: &PlannedScheduler| RecoveryScheduler {
        name: planned.name.clone(),
        partition: planned.scheduler.partition.clone(),
        jobs: planned.jobs.len() as i64,
        allocations: planned.allocations,
        nodes: planned.scheduler.nodes.unwrap_or(1),
        walltime_seconds: planned.seconds,
        deferred: planned.waits,
        node_hours: planned.node_hours(),
    };
    let name_of = |job| workflow.graph.name(job).to_owned();
    let unplaced =
        plan.unplaced.iter().map(|one| UnplacedJob { job: name_of(one.job), reason: one.reason.to_string() });
    RegenerateReport {
        dry_run: false,
        pending_jobs: pending as i64,
        superseded_actions: superseded as i64,
        schedulers: plan.planned.iter().map(scheduler).collect(),
        allocations: Vec::new(),
        unplaced: unplaced.collect(),
    }
}

/// Returns the scheduler that a user has named, or the only one.
fn chosen_scheduler(workflow: &LiveWorkflow, name: Option<&str>) -> Result<String, CommandError> {
    let known: Vec<&str> = workflow.schedulers.iter().filter_map(|one| one.name.as_deref()).collect();
    match (name, known.as_slice()) {
        (Some(name), _) if known.contains(&name) => Ok(name.to_owned()),
        (Some(name), _) => Err(no_scheduler(workflow, name)),
        (None, [only]) => Ok((*only).to_owned()),
        (None, []) => Err(CommandError::Conflict(format!("workflow '{}' has no Slurm scheduler", workflow.row().name))),
        (None, several) => Err(CommandError::Conflict(format!(
            "workflow '{}' has several Slurm schedulers; name one of them: {}",
            workflow.row().name,
            several.join(", ")
        ))),
    }
}

fn no_scheduler(workflow: &LiveWorkflow, name: &str) -> CommandError {
    CommandError::Conflict(format!("workflow '{}' has no Slurm scheduler '{name}'", workflow.row().name))
}

impl LiveWorkflow {
    fn set_regenerated(&mut self, regenerated: Vec<RegeneratedScheduler>, tx: &mut Tx) {
        let text = self.schedulers.replan(regenerated);
        self.record.set_recovery_schedulers(text, tx);
    }

    /// Removes what recovery has planned, because jobs are reset. The scheduling actions of the document wait for their triggers again.
    pub fn forget_regenerated(&mut self, tx: &mut Tx) {
        self.actions.restore_superseded(tx);
        if self.schedulers.planned().is_empty() {
            return;
        }
        self.remove_recovery_actions(tx);
        self.set_regenerated(Vec::new(), tx);
        let is_planned = |job: &u32| self.graph.profile(*job).recovery_scheduler.is_some();
        let planned: Vec<u32> = self.graph.ordinals().filter(is_planned).collect();
        self.graph.set_recovery_scheduler(planned, None, tx);
    }
}
