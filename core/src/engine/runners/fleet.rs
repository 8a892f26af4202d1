//! Matches waiting work with runners that could start it now.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use torc_api::wire::{AttemptKey, LeaseRole, Resources, WorkRequest};

use super::held_leases::LeaseTarget;
use super::rebalance::{MAX_LEASES_EXAMINED, MAX_MOVES, SpareLease, StealBudget};
use super::runner::WaitingClass;
use super::{LiveRunner, Runners};
use crate::class::{JobClass, RunnerView, fits, minus};
use crate::engine::workflow::LiveWorkflow;
use crate::engine::workflows::Workflows;
use crate::ids::{JobId, Now, RunnerId, WorkflowId};
use crate::matching::{ClassQueue, LeaseAllowance, OwnerQueues, ResourcesInUse, WorkflowQueues};

/// The workflows and runners at one time, to choose leases from.
#[derive(Clone, Copy)]
pub(in crate::engine) struct Fleet<'a> {
    pub workflows: &'a Workflows,
    pub runners: &'a Runners,
    pub now: Now,
}

impl<'a> Fleet<'a> {
    /// Returns the ready jobs of the workflows that may give work to a runner, by owner.
    pub fn queues_for(self, id: RunnerId, want: WorkRequest, scope: &[WorkflowId]) -> Vec<OwnerQueues<'a>> {
        let Some(runner) = self.runners.get(&id) else { return Vec::new() };
        let may_give = |workflow: &&LiveWorkflow| workflow.has_ready_jobs() && workflow.may_lease_to(id);
        let mut owners: Vec<OwnerQueues<'_>> = Vec::new();
        let mut index: HashMap<&str, usize> = HashMap::new();
        for workflow in scope.iter().filter_map(|id| self.workflows.get(id)).filter(may_give) {
            let classes = workflow.graph.ready_queues().map(|(class, queue)| {
                let has_other_candidate = want.ahead > 0 && self.has_other_candidate(id, workflow, class);
                ClassQueue { class, queue, has_other_candidate }
            });
            let queues = WorkflowQueues {
                workflow: workflow.id(),
                usage: workflow.graph.usage(),
                allowance: allowance(runner, workflow),
                end: workflow.end_margin(runner.is_in_allocation()),
                classes: classes.collect(),
            };
            let owner = workflow.row().owner.as_str();
            let at = *index.entry(owner).or_insert(owners.len());
            if at == owners.len() {
                owners.push(OwnerQueues { owner, usage: ResourcesInUse::default(), workflows: Vec::new() });
            }
            owners[at].workflows.push(queues);
        }
        self.add_usage(&mut owners);
        owners
    }

    /// Fills in the resources in use by each owner. A single owner needs none, because they are only compared among
    /// owners.
    fn add_usage(self, owners: &mut [OwnerQueues<'_>]) {
        if owners.len() < 2 {
            return;
        }
        let mut usage: HashMap<&str, ResourcesInUse> = HashMap::new();
        for workflow in self.workflows.live() {
            usage.entry(&workflow.row().owner).or_default().merge(&workflow.graph.usage());
        }
        for owner in owners {
            owner.usage = usage.get(owner.owner).copied().unwrap_or_default();
        }
    }

    /// Returns whether another runner could start a job of this class now.
    fn has_other_candidate(self, id: RunnerId, workflow: &LiveWorkflow, class: &JobClass) -> bool {
        let others = self.runners.offering.iter().filter(|other| **other != id);
        others.filter_map(|other| self.runners.get(other)).any(|other| {
            let (offer, view) = (&other.offer, other.view(self.now));
            offer.until_ms >= self.now.mono_ms
                && fits(&offer.free, &class.demand_on(&view))
                && class.matches(&view, workflow.end_margin(other.is_in_allocation()))
                && self.workflows.is_served_by(workflow.id(), &other.row().scope)
                && workflow.may_lease_to(other.id())
        })
    }

    /// Returns whether another runner could start one of the leases that wait in this one.
    pub fn has_other_candidate_for_any(self, id: RunnerId) -> bool {
        let Some(runner) = self.runners.get(&id) else { return false };
        runner.waiting_classes.iter().any(|waiting| {
            let workflow = self.workflows.get(&waiting.workflow);
            workflow.is_some_and(|workflow| {
                let class = workflow.graph.class(waiting.class);
                class.is_some_and(|class| self.has_other_candidate(id, workflow, class))
            })
        })
    }

    /// Returns whether one of the leases that wait in a runner would fit into this capacity.
    fn has_fitting_lease(self, donor: &LiveRunner, free: &Resources, view: &RunnerView<'_>) -> bool {
        donor.waiting_classes.iter().any(|waiting| {
            let workflow = self.workflows.get(&waiting.workflow);
            let class = workflow.and_then(|workflow| workflow.graph.class(waiting.class));
            class.is_some_and(|class| fits(free, &class.demand_on(view)))
        })
    }

    /// Returns leases that wait elsewhere: those that the runner could start now, then some to queue, at most half of what waits.
    pub fn spare_leases(self, id: RunnerId, want: WorkRequest) -> Vec<SpareLease> {
        let Some(taker) = self.runners.get(&id) else { return Vec::new() };
        let view = taker.view(self.now);
        let donors = self.find_donors(id, &want.free, &view);
        if donors.is_empty() {
            return Vec::new();
        }
        let scope = self.open_workflows(taker);
        let mut budget = StealBudget { free: self.free_after_requests(id, want.free, &view), ahead: want.bridge };
        let (mut found, mut examined) = (Vec::new(), 0);
        for donor in donors {
            let mut share = donor.unrequested_leases() / 2;
            for key in donor.waiting.iter().rev() {
                if examined == MAX_LEASES_EXAMINED || found.len() >= want.limit as usize || budget.is_spent() {
                    return found;
                }
                examined += 1;
                let Some((workflow, job)) = self.as_movable_job(donor, key) else { continue };
                let end = workflow.end_margin(taker.is_in_allocation());
                let class = workflow.graph.class_of(job).filter(|class| class.matches(&view, end));
                let Some(class) = class.filter(|_| scope.contains(&workflow.id())) else { continue };
                if budget.take(&class.demand_on(&view), &mut share) {
                    found.push(SpareLease { donor: donor.id(), workflow: workflow.id(), job });
                }
            }
        }
        found
    }

    /// Returns runners in which a fitting lease waits, the most loaded first. Runners without running jobs are left
    /// out, because they are about to start their own leases.
    fn find_donors(self, id: RunnerId, free: &Resources, view: &RunnerView<'_>) -> Vec<&'a LiveRunner> {
        let runners = self.runners;
        let others = runners.donors.iter().filter(|donor| **donor != id).filter_map(|donor| runners.get(donor));
        let can_give =
            |donor: &&LiveRunner| !donor.is_silent() && donor.unrequested_leases() > 0 && donor.running_estimate() > 0;
        let mut donors: Vec<&LiveRunner> =
            others.filter(can_give).filter(|donor| self.has_fitting_lease(donor, free, view)).collect();
        donors.sort_by_key(|donor| (Reverse(donor.load()), donor.id()));
        donors
    }

    /// Returns the free capacity of a runner, less the leases that were requested for it and have not arrived.
    fn free_after_requests(self, id: RunnerId, free: Resources, view: &RunnerView<'_>) -> Resources {
        let mut left = free;
        for donor in self.runners.donors.iter().filter_map(|donor| self.runners.get(donor)) {
            let awaited =
                donor.return_requests.iter().filter(|(_, asked)| asked.taker == id && !asked.is_late(self.now));
            for (job, asked) in awaited {
                let target = LeaseTarget { workflow: asked.workflow, number: *job, role: LeaseRole::Job };
                let held = donor.leases.get(&target);
                let workflow = held.and_then(|_| self.workflows.get(&asked.workflow));
                let class = workflow.and_then(|workflow| workflow.graph.class_of(workflow.graph.ordinal(*job)?));
                left = class.map_or(left, |class| minus(&left, &class.demand_on(view)));
            }
        }
        left
    }

    /// Returns the workflows whose jobs may be leased to a runner now.
    fn open_workflows(self, runner: &LiveRunner) -> HashSet<WorkflowId> {
        let is_open = |id: &WorkflowId| self.workflows.get(id).is_some_and(|one| one.may_lease_to(runner.id()));
        self.workflows.live_in_scope(&runner.row().scope).into_iter().filter(is_open).collect()
    }

    /// Returns the job of a lease that has not started and may move.
    fn as_movable_job(self, donor: &LiveRunner, key: &AttemptKey) -> Option<(&'a LiveWorkflow, u32)> {
        let (workflow, job) = self.workflows.held_job(donor.id(), key)?;
        let record = workflow.graph.job(job);
        let may_move =
            record.started_ms().is_none() && record.moves() < MAX_MOVES && !donor.is_requested_back(record.id());
        may_move.then_some((workflow, job))
    }

    /// Returns the classes of leases, each once.
    pub fn classes_of(self, keys: &[AttemptKey]) -> Vec<WaitingClass> {
        let mut found: Vec<WaitingClass> = Vec::new();
        for key in keys {
            let id = WorkflowId(key.workflow);
            let graph = self.workflows.get(&id).map(|workflow| &workflow.graph);
            let class = graph.and_then(|graph| Some(graph.class_index(graph.ordinal(JobId(key.job))?)));
            let one = class.map(|class| WaitingClass { workflow: id, class });
            // Neighboring leases are mostly of one class.
            found.extend(one.filter(|one| found.last() != Some(one) && !found.contains(one)));
        }
        found
    }
}

/// Returns the number of jobs of a workflow that one answer may lease to a runner, in total and ahead.
fn allowance(runner: &LiveRunner, workflow: &LiveWorkflow) -> LeaseAllowance {
    let Some(prefetch) = &workflow.spec().prefetch else { return LeaseAllowance::default() };
    let number = |value: Option<i32>| value.map_or(usize::MAX, |value| value.unsigned_abs() as usize);
    let queued = || runner.waiting().filter(|key| key.workflow == workflow.id().0).count();
    let ahead = match (prefetch.enabled, prefetch.max_queued) {
        (Some(false), _) => 0,
        (_, None) => usize::MAX,
        (_, max_queued) => number(max_queued).saturating_sub(queued()),
    };
    LeaseAllowance { batch: number(prefetch.batch_size), ahead }
}
