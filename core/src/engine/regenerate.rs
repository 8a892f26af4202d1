//! Schedulers and allocations for jobs whose allocations are gone: what `slurm regenerate` adds to a workflow.
//!
//! Nothing of it is in the document. It lives until jobs are put back to the start: then the document's own actions count again.

use std::collections::BTreeSet;
use std::sync::Arc;

use torc_api::action::{Action, ActionState, ActionType, TriggerType};
use torc_api::allocation::AllocationOrigin;
use torc_api::cluster::LOCAL;
use torc_api::event_reason::EventReason;
use torc_api::quantity::count;
use torc_api::recovery::{RecoveryScheduler, RegenerateReport, RegenerateRequest, ScheduleNodesRequest, UnplacedJob};
use torc_api::resources::SlurmScheduler;
use torc_api::state::JobState;
use torc_api::workflow::WorkflowSpec;

use super::action_list::{ActionRecord, SUPERSEDED};
use super::actions::recovery_row;
use super::tx::Tx;
use super::workflow::Workflow;
use super::{CommandError, Engine};
use crate::ids::{JobId, Now, WorkflowId};
use crate::planning::course;
use crate::planning::fit::{Walltime, WalltimeMargin};
use crate::planning::generate::{Plan, Planned, Settings, plan};
use crate::planning::groups::PendingJob;
use crate::planning::partition::Partition;
use crate::rows::{AllocationRow, Regenerated};

/// What is planned, and with what.
#[derive(Clone, Copy, Debug)]
pub struct Regenerate<'a> {
    /// What a person asked for.
    pub request: &'a RegenerateRequest,
    /// The account that is charged.
    pub account: &'a str,
    /// How long allocations are, where that was said.
    pub seconds: Option<i64>,
    /// The cluster's partitions.
    pub partitions: &'a [Partition],
    /// What names of schedulers get so that they differ from older ones.
    pub stamp: &'a str,
}

impl Engine {
    /// Returns what a regeneration would plan: it is carried out on a copy of the workflow.
    pub fn regenerate_preview(
        &self,
        id: WorkflowId,
        wanted: Regenerate<'_>,
        now: Now,
    ) -> Result<RegenerateReport, CommandError> {
        let mut copy = self.copy_of(id)?;
        let report = copy.regenerate(id, wanted, &mut copy.begin(now))?;
        Ok(RegenerateReport { dry_run: true, allocations: Vec::new(), ..report })
    }

    /// Plans schedulers for the jobs that are still to run, and asks for the allocations of those that wait for nothing if that is
    /// wanted. Nothing pending, nothing done.
    pub fn regenerate(
        &mut self,
        id: WorkflowId,
        wanted: Regenerate<'_>,
        tx: &mut Tx,
    ) -> Result<RegenerateReport, CommandError> {
        let workflow = self.workflow_mut(id)?;
        workflow.may_be_regenerated()?;
        let (plan, pending) = workflow.plan_anew(wanted)?;
        if pending == 0 {
            return Ok(RegenerateReport::default());
        }
        let superseded = workflow.supersede_actions(tx);
        workflow.drop_recovery_actions(tx);
        let is_asked = |planned: &Planned| wanted.request.submit && !planned.waits;
        let regenerated = |planned: &Planned| Regenerated {
            action: planned.action(|_| ""),
            scheduler: planned.scheduler.clone(),
            asked: if is_asked(planned) { planned.allocations } else { 0 },
        };
        workflow.set_regenerated(plan.planned.iter().map(regenerated).collect(), tx);
        workflow.point_jobs_to(&plan, tx);
        workflow.add_recovery_actions(&plan, tx);
        let mut report = workflow.report(&plan, pending, superseded);
        self.drop_unsubmitted(id, tx);
        if wanted.request.submit {
            report.allocations = self.ask_for_planned(id, &plan, tx)?;
        }
        let schedulers = count(report.schedulers.len(), "scheduler");
        let message = format!("{schedulers} planned for {}", count(pending, "job"));
        tx.event(Some(id), EventReason::AllocationsRegenerated, message);
        self.wake_version += 1;
        Ok(report)
    }

    /// Jobs are put back to the start: what recovery has made goes, and the document's own actions count again.
    pub(super) fn undo_regeneration(&mut self, id: WorkflowId, tx: &mut Tx) {
        if let Some(workflow) = self.workflows.get_mut(&id) {
            workflow.forget_regenerated(tx);
        }
    }

    /// What an earlier plan asked for and Slurm never heard of is not asked for any more.
    fn drop_unsubmitted(&mut self, id: WorkflowId, tx: &mut Tx) {
        let Some(workflow) = self.workflows.get(&id) else { return };
        let is_unheard = |row: &&AllocationRow| row.slurm_job_id.is_none() && row.called_ms.is_none();
        let keys: Vec<_> = workflow.allocations.iter().filter(is_unheard).map(|row| (id, row.id)).collect();
        self.cancel_allocations(&keys, tx);
    }

    /// The account that the document's first scheduler names.
    pub fn account_of(&self, id: WorkflowId) -> Result<Option<String>, CommandError> {
        let schedulers = &self.workflow(id)?.spec.slurm_schedulers;
        Ok(schedulers.first().map(|scheduler| scheduler.account.clone()).filter(|account| !account.is_empty()))
    }

    /// Whoever owns the store runs this workflow from now on.
    pub fn serve(&mut self, id: WorkflowId) -> Result<(), CommandError> {
        self.workflow(id)?;
        self.session.workflows.insert(id);
        self.wake_version += 1;
        Ok(())
    }

    /// A person asks for allocations of a scheduler. Their names.
    pub fn schedule_nodes(
        &mut self,
        id: WorkflowId,
        request: &ScheduleNodesRequest,
        tx: &mut Tx,
    ) -> Result<Vec<String>, CommandError> {
        let workflow = self.workflow(id)?;
        if workflow.graph.is_settled() {
            return Err(CommandError::Conflict(format!("workflow '{}' has nothing left to run", workflow.row.name)));
        }
        let name = workflow.chosen_scheduler(request.scheduler.as_deref())?;
        let action = nodes_action(&name, request);
        let count = request.num_allocations.unwrap_or(1).max(1);
        self.ask_for_nodes(id, (&name, count), &action, AllocationOrigin::Manual, tx)
    }

    /// Writes down allocations of a scheduler; whoever speaks with Slurm submits them.
    fn ask_for_nodes(
        &mut self,
        id: WorkflowId,
        (name, count): (&str, i64),
        action: &Action,
        origin: AllocationOrigin,
        tx: &mut Tx,
    ) -> Result<Vec<String>, CommandError> {
        let workflow = self.workflow(id)?;
        let scheduler = workflow.scheduler(name).ok_or_else(|| workflow.no_scheduler(name))?;
        let cluster = workflow.spec.slurm_cluster.clone().unwrap_or_else(|| LOCAL.to_owned());
        let scheduler = scheduler.clone();
        let row = AllocationRow { cluster, origin, ..course::of_scheduler(&scheduler, action) };
        let rows = self.request_allocations(id, vec![row; usize::try_from(count).unwrap_or(0)], tx)?;
        self.session.workflows.insert(id);
        Ok(rows.iter().map(AllocationRow::name).collect())
    }

    /// Writes down the allocations of jobs that wait for nothing; whoever speaks with Slurm submits them.
    fn ask_for_planned(&mut self, id: WorkflowId, plan: &Plan, tx: &mut Tx) -> Result<Vec<String>, CommandError> {
        let mut names = Vec::new();
        for planned in plan.planned.iter().filter(|planned| !planned.waits) {
            let action = planned.action(|_| "");
            let count = planned.allocations;
            names.extend(self.ask_for_nodes(id, (&planned.name, count), &action, AllocationOrigin::Recovery, tx)?);
        }
        Ok(names)
    }
}

/// The action that a manual request for nodes stands for.
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

impl Workflow {
    /// Its own plan of allocations may be replaced.
    pub(super) fn may_be_regenerated(&self) -> Result<(), CommandError> {
        if self.is_canceled() {
            let message = format!("workflow '{}' was cancelled; `torc resume` takes that back", self.row.name);
            return Err(CommandError::Conflict(message));
        }
        if self.spec.slurm_cluster.is_some() && !self.has_schedule_nodes() {
            let message = format!(
                "the allocations of workflow '{}' follow from what its jobs need; there is nothing to plan for a person",
                self.row.name
            );
            return Err(CommandError::Conflict(message));
        }
        Ok(())
    }

    /// A plan for all jobs that are still to run, and how many these are.
    fn plan_anew(&self, wanted: Regenerate<'_>) -> Result<(Plan, usize), CommandError> {
        let included = self.find_all(&wanted.request.include_jobs)?;
        let is_pending = |job: u32| {
            let state = self.graph.job(job).state();
            matches!(state, JobState::Uninitialized | JobState::Blocked | JobState::Ready) || included.contains(&job)
        };
        let open = |parent: &u32| !self.graph.job(*parent).state().is_complete() || is_pending(*parent);
        let describe = |job: u32| {
            let profile = self.graph.profile(job);
            PendingJob {
                index: job,
                name: self.graph.name(job),
                requirements: &profile.requirements,
                labels: &profile.labels,
                waits: self.graph.parents(job).iter().any(open),
                // Only merged groups need it, and these are kept apart.
                chain_seconds: profile.requirements.runtime_seconds,
            }
        };
        let jobs: Vec<PendingJob<'_>> = self.graph.all().filter(|job| is_pending(*job)).map(describe).collect();
        let settings = Settings {
            account: wanted.account,
            partition: wanted.request.partition.as_deref(),
            by_requirements: true,
            walltime: Walltime::FromJobs,
            margin: WalltimeMargin::of(self.spec.execution_config.as_ref()),
            seconds: wanted.seconds,
            single_allocation: wanted.request.single_allocation,
            keep_apart: true,
            stamp: Some(wanted.stamp),
        };
        let count = jobs.len();
        Ok((plan(&jobs, wanted.partitions, settings), count))
    }

    fn report(&self, plan: &Plan, pending: usize, superseded: usize) -> RegenerateReport {
        let scheduler = |planned: &Planned| RecoveryScheduler {
            name: planned.name.clone(),
            partition: planned.scheduler.partition.clone(),
            jobs: planned.jobs.len() as i64,
            allocations: planned.allocations,
            nodes: planned.scheduler.nodes.unwrap_or(1),
            walltime_seconds: planned.seconds,
            deferred: planned.waits,
            node_hours: planned.node_hours(),
        };
        let unplaced = plan
            .unplaced
            .iter()
            .map(|one| UnplacedJob { job: self.graph.name(one.job).to_owned(), reason: one.reason.to_string() });
        RegenerateReport {
            dry_run: false,
            pending_jobs: pending as i64,
            superseded_actions: superseded as i64,
            schedulers: plan.planned.iter().map(scheduler).collect(),
            allocations: Vec::new(),
            unplaced: unplaced.collect(),
        }
    }

    /// The document's actions that ask for nodes; those that could still do so, if that is asked.
    fn own_scheduling_actions(&self, only_open: bool) -> Vec<JobId> {
        let is_meant = |action: &ActionRecord| {
            let is_open = !matches!(action.row.state, ActionState::Executed | ActionState::Failed);
            !action.is_recovery() && action.definition.asks_slurm_for_nodes() && (is_open || !only_open)
        };
        self.actions.iter().filter(|action| is_meant(action)).map(|action| action.row.id).collect()
    }

    /// The document's actions ask for nothing any more: what they would ask for is planned anew.
    fn supersede_actions(&mut self, tx: &mut Tx) -> usize {
        let open = self.own_scheduling_actions(true);
        let now_ms = tx.now.wall_ms;
        for id in self.own_scheduling_actions(false) {
            self.actions.change(id, tx, |row| {
                row.state = ActionState::Executed;
                row.message = Some(SUPERSEDED.to_owned());
                row.ended_ms.get_or_insert(now_ms);
            });
        }
        open.len()
    }

    /// Jobs belong to the schedulers that were made for them, and to no other.
    fn point_jobs_to(&mut self, plan: &Plan, tx: &mut Tx) {
        for planned in &plan.planned {
            self.graph.set_recovery_scheduler(planned.jobs.iter().copied(), Some(&planned.name), tx);
        }
    }

    /// Groups whose jobs wait get an action that asks for their allocations when they are ready; the others get none.
    fn add_recovery_actions(&mut self, plan: &Plan, tx: &mut Tx) {
        let mut rows: Vec<_> = self.actions.iter().map(|action| action.row.clone()).collect();
        for planned in &plan.planned {
            let Some(action) = planned.recovery_action(|job| self.graph.name(job)) else { continue };
            let row = recovery_row(self, tx.next_job(), &action);
            tx.changes.action(&row);
            rows.push(row);
        }
        self.set_actions(rows);
    }

    fn drop_recovery_actions(&mut self, tx: &mut Tx) {
        let (gone, kept): (Vec<_>, Vec<_>) =
            self.actions.iter().map(|action| action.row.clone()).partition(|row| row.definition.is_some());
        if gone.is_empty() {
            return;
        }
        gone.iter().for_each(|row| tx.changes.action_removed(row.id));
        self.set_actions(kept);
    }

    fn set_regenerated(&mut self, regenerated: Vec<Regenerated>, tx: &mut Tx) {
        self.row.recovery_schedulers = if regenerated.is_empty() {
            String::new()
        } else {
            serde_json::to_string(&regenerated).unwrap_or_default()
        };
        self.load_regenerated();
        tx.changes.workflow(&self.row);
    }

    /// Reads what its row says that recovery has made.
    pub(super) fn load_regenerated(&mut self) {
        self.regenerated = serde_json::from_str(&self.row.recovery_schedulers).unwrap_or_default();
        self.spec_with_regenerated = (!self.regenerated.is_empty()).then(|| {
            let mut spec = WorkflowSpec { jobs: Vec::new(), ..(*self.spec).clone() };
            spec.slurm_schedulers.extend(self.regenerated.iter().map(|one| one.scheduler.clone()));
            Arc::new(spec)
        });
    }

    /// The document as far as Slurm is concerned, with the schedulers that recovery has made.
    pub(super) fn slurm_spec(&self) -> Arc<WorkflowSpec> {
        Arc::clone(self.spec_with_regenerated.as_ref().unwrap_or(&self.spec))
    }

    /// Jobs are put back to the start: what recovery made goes, and the document's actions that ask for nodes wait again.
    pub(super) fn forget_regenerated(&mut self, tx: &mut Tx) {
        for id in self.own_scheduling_actions(false) {
            if self.actions.find(id).is_some_and(ActionRecord::is_superseded) {
                self.actions.change(id, tx, super::actions::reset_trigger);
            }
        }
        if self.regenerated.is_empty() {
            return;
        }
        self.drop_recovery_actions(tx);
        self.set_regenerated(Vec::new(), tx);
        let pointing: BTreeSet<u32> =
            self.graph.all().filter(|job| self.graph.profile(*job).recovery_scheduler.is_some()).collect();
        self.graph.set_recovery_scheduler(pointing, None, tx);
    }

    pub(super) fn schedulers(&self) -> impl Iterator<Item = &SlurmScheduler> {
        self.regenerated.iter().map(|one| &one.scheduler).chain(&self.spec.slurm_schedulers)
    }

    /// A scheduler of the document, or one that recovery made.
    pub fn scheduler(&self, name: &str) -> Option<&SlurmScheduler> {
        self.schedulers().find(|scheduler| scheduler.name.as_deref() == Some(name))
    }

    fn chosen_scheduler(&self, name: Option<&str>) -> Result<String, CommandError> {
        let known: Vec<&str> = self.schedulers().filter_map(|one| one.name.as_deref()).collect();
        match (name, known.as_slice()) {
            (Some(name), _) if known.contains(&name) => Ok(name.to_owned()),
            (Some(name), _) => Err(self.no_scheduler(name)),
            (None, [only]) => Ok((*only).to_owned()),
            (None, []) => Err(CommandError::Conflict(format!("workflow '{}' has no Slurm scheduler", self.row.name))),
            (None, several) => {
                Err(CommandError::Conflict(format!("which scheduler? There are {}", several.join(", "))))
            }
        }
    }

    fn no_scheduler(&self, name: &str) -> CommandError {
        CommandError::Conflict(format!("workflow '{}' has no Slurm scheduler '{name}'", self.row.name))
    }

    /// What an action says, of the document or of recovery.
    pub(super) fn definition_of(&self, position: i32, definition: Option<&str>) -> Option<Action> {
        match definition {
            Some(text) => serde_json::from_str(text).ok(),
            None => self.spec.actions.get(usize::try_from(position).ok()?).cloned(),
        }
    }
}
