//! Leases that have not started move to runners that can start them now.
//!
//! A runner with free capacity for which no ready job is left gets leases that wait in others: the last in line of the most loaded
//! runner first. Their holder is asked to give them back, and another runner gets them only after it has confirmed that it did not
//! start them. A lease moves at most twice, so nothing goes to and fro.

use std::cmp::Reverse;
use std::collections::HashSet;

use torc_api::wire::{AttemptKey, LeaseRole, Resources, SyncRequest, WorkRequest};

use super::Runner;
use super::runner::{AskedBack, WaitingClass};
use crate::class::{RunnerView, fits, minus};
use crate::engine::Engine;
use crate::engine::held_leases::LeaseTarget;
use crate::engine::workflow::Workflow;
use crate::ids::{JobId, Now, RunnerId, WorkflowId};

/// The most leases that are looked at for one runner in one go.
const MAX_LEASES_EXAMINED: usize = 256;
/// A lease moves this often.
const MAX_MOVES: u8 = 2;
/// A holder that has not answered for so long is not waited for: others are asked, too.
const REQUEST_TIMEOUT_MS: u64 = 2_000;

impl Runner {
    /// Leases that wait in it and are not asked back yet.
    fn spare(&self) -> usize {
        self.waiting.len().saturating_sub(self.asked_back.len())
    }

    /// Jobs that it runs, as far as is known.
    fn busy(&self) -> usize {
        self.leases.job_count().saturating_sub(self.waiting.len())
    }

    /// The more waits for each job that runs, the sooner it gives something away.
    fn load(&self) -> usize {
        self.spare() * 1_024 / self.busy().max(1)
    }
}

/// A lease that could move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SpareLease {
    donor: RunnerId,
    workflow: WorkflowId,
    job: u32,
}

impl Engine {
    /// Takes in which leases wait in a runner. Requests for leases that it no longer has, or has started, are over.
    pub(in crate::engine) fn note_waiting(&mut self, id: RunnerId, request: &SyncRequest, now: Now) {
        let classes = self.classes_of(&request.queued);
        let Some(runner) = self.runners.get_mut(&id) else { return };
        let is_new = runner.waiting != request.queued;
        runner.waiting.clone_from(&request.queued);
        runner.waiting_classes = classes;
        if !runner.asked_back.is_empty() {
            let waiting: HashSet<i64> = request.queued.iter().map(|key| key.job).collect();
            runner.asked_back.retain(|job, _| waiting.contains(&job.0));
        }
        if runner.spare() == 0 {
            self.runners.donors.remove(&id);
            return;
        }
        self.runners.donors.insert(id);
        // Another runner may have found nothing before this message came.
        if is_new && self.is_any_wanted_elsewhere(id, now) {
            self.wake_version += 1;
        }
    }

    /// Returns the classes of leases, each once.
    fn classes_of(&self, keys: &[AttemptKey]) -> Vec<WaitingClass> {
        let mut found: Vec<WaitingClass> = Vec::new();
        for key in keys {
            let workflow = self.workflows.get(&WorkflowId(key.workflow));
            let class =
                workflow.and_then(|workflow| Some(workflow.graph.class_index(workflow.graph.ordinal(JobId(key.job))?)));
            let one = class.map(|class| WaitingClass { workflow: WorkflowId(key.workflow), class });
            // Neighbours are mostly alike.
            found.extend(one.filter(|one| found.last() != Some(one) && !found.contains(one)));
        }
        found
    }

    /// Whether another runner could start one of the leases that wait in this one.
    fn is_any_wanted_elsewhere(&self, id: RunnerId, now: Now) -> bool {
        let Some(runner) = self.runners.get(&id) else { return false };
        runner.waiting_classes.iter().any(|waiting| {
            let workflow = self.workflows.get(&waiting.workflow);
            workflow.is_some_and(|workflow| {
                let class = workflow.graph.class(waiting.class);
                class.is_some_and(|class| self.is_wanted_elsewhere(id, workflow, class, now))
            })
        })
    }

    /// Whether one of the leases that wait in a runner would fit into this.
    fn has_fitting_lease(&self, donor: &Runner, free: &Resources, place: &RunnerView<'_>) -> bool {
        donor.waiting_classes.iter().any(|waiting| {
            let workflow = self.workflows.get(&waiting.workflow);
            let class = workflow.and_then(|workflow| workflow.graph.class(waiting.class));
            class.is_some_and(|class| fits(free, &class.demand_on(place)))
        })
    }

    /// Asks other runners for leases that this one could start now.
    pub(in crate::engine) fn request_leases_for(&mut self, id: RunnerId, want: WorkRequest, now: Now) {
        let found = self.spare_leases(id, want, now);
        if found.is_empty() {
            return;
        }
        for SpareLease { donor, workflow, job } in found {
            let Some(workflow) = self.workflows.get_mut(&workflow) else { continue };
            workflow.graph.count_move(job);
            let number = workflow.graph.job(job).id();
            if let Some(donor) = self.runners.get_mut(&donor) {
                donor.asked_back.insert(number, AskedBack { taker: id, workflow: workflow.id(), at_ms: now.mono_ms });
            }
        }
        self.wake_version += 1;
    }

    /// Whether the runner was asked to give this back.
    pub(in crate::engine) fn is_asked_back(&self, id: RunnerId, job: JobId) -> bool {
        self.runners.get(&id).is_some_and(|runner| runner.asked_back.contains_key(&job))
    }

    /// Lets runners ask others if a holder does not answer.
    pub(in crate::engine) fn expire_lease_requests(&mut self, now: Now) {
        let is_late = |donor: &RunnerId| {
            let asked = self.runners.get(donor).map(|donor| donor.asked_back.values());
            asked.into_iter().flatten().any(|asked| asked.is_late(now))
        };
        if !self.runners.offering.is_empty() && self.runners.donors.iter().any(is_late) {
            self.wake_version += 1;
        }
    }

    /// Leases that wait elsewhere and that the runner could start now; then some to follow, at most half of what waits.
    fn spare_leases(&self, id: RunnerId, want: WorkRequest, now: Now) -> Vec<SpareLease> {
        let Some(taker) = self.runners.get(&id) else { return Vec::new() };
        let place = taker.place(now);
        let donors = self.donors_for(id, &want.free, &place);
        if donors.is_empty() {
            return Vec::new();
        }
        let scope = self.may_give_to(id, taker);
        let mut budget =
            StealBudget { free: self.free_beside_requests(id, want.free, &place, now), ahead: want.bridge };
        let (mut found, mut examined) = (Vec::new(), 0);
        for donor in donors {
            let mut share = donor.spare() / 2;
            for key in donor.waiting.iter().rev() {
                if examined == MAX_LEASES_EXAMINED || found.len() >= want.limit as usize || budget.is_spent() {
                    return found;
                }
                examined += 1;
                let Some((workflow, job)) = self.movable(donor.row.id, key) else { continue };
                let end = workflow.end_margin(taker.is_in_allocation());
                let class = workflow.graph.class_of(job).filter(|class| class.suits(&place, end));
                let Some(class) = class.filter(|_| scope.contains(&workflow.id())) else { continue };
                if budget.take(&class.demand_on(&place), &mut share) {
                    found.push(SpareLease { donor: donor.row.id, workflow: workflow.id(), job });
                }
            }
        }
        found
    }

    /// Runners with waiting leases of which one fits, the most loaded first. One that runs nothing is about to start what it has.
    fn donors_for(&self, id: RunnerId, free: &Resources, place: &RunnerView<'_>) -> Vec<&Runner> {
        let others =
            self.runners.donors.iter().filter(|donor| **donor != id).filter_map(|donor| self.runners.get(donor));
        let can_give = |donor: &&Runner| !donor.is_silent() && donor.spare() > 0 && donor.busy() > 0;
        let mut donors: Vec<&Runner> =
            others.filter(can_give).filter(|donor| self.has_fitting_lease(donor, free, place)).collect();
        donors.sort_by_key(|donor| (Reverse(donor.load()), donor.row.id));
        donors
    }

    /// Returns the free capacity of a runner, less the leases that were requested for it and have not come yet.
    fn free_beside_requests(&self, id: RunnerId, free: Resources, place: &RunnerView<'_>, now: Now) -> Resources {
        let mut left = free;
        for donor in self.runners.donors.iter().filter_map(|donor| self.runners.get(donor)) {
            let awaited = donor.asked_back.iter().filter(|(_, asked)| asked.taker == id && !asked.is_late(now));
            for (job, asked) in awaited {
                let target = LeaseTarget { workflow: asked.workflow, number: *job, role: LeaseRole::Job };
                let held = donor.leases.get(&target);
                let workflow = held.and_then(|_| self.workflows.get(&asked.workflow));
                let class = workflow.and_then(|workflow| workflow.graph.class_of(workflow.graph.ordinal(*job)?));
                left = class.map_or(left, |class| minus(&left, &class.demand_on(place)));
            }
        }
        left
    }

    /// Workflows whose jobs the runner may have now.
    fn may_give_to(&self, id: RunnerId, runner: &Runner) -> HashSet<WorkflowId> {
        let open =
            |workflow: &WorkflowId| self.workflows.get(workflow).is_some_and(|workflow| workflow.may_lease_to(id));
        self.live_in_scope(&runner.row.scope).into_iter().filter(open).collect()
    }

    /// The job of a lease that has not started and may move.
    fn movable(&self, donor: RunnerId, key: &AttemptKey) -> Option<(&Workflow, u32)> {
        let (workflow, job) = self.held_job(donor, key)?;
        let record = workflow.graph.job(job);
        let may_move =
            record.started_ms().is_none() && record.moves() < MAX_MOVES && !self.is_asked_back(donor, record.id());
        may_move.then_some((workflow, job))
    }
}

impl AskedBack {
    /// Its holder should have answered by now.
    fn is_late(&self, now: Now) -> bool {
        now.mono_ms.saturating_sub(self.at_ms) >= REQUEST_TIMEOUT_MS
    }
}

/// The leases that a runner may take from others: those that it can start at once, then some to queue.
struct StealBudget {
    free: Resources,
    ahead: u32,
}

impl StealBudget {
    /// Nothing more can be taken.
    fn is_spent(&self) -> bool {
        self.free.cpus <= 0 && self.ahead == 0
    }

    /// Takes one lease, if there is room for it. What only waits for its turn counts against the donor's share.
    fn take(&mut self, demand: &Resources, share: &mut usize) -> bool {
        if fits(&self.free, demand) {
            self.free = minus(&self.free, demand);
            *share = share.saturating_sub(1);
            return true;
        }
        if self.ahead == 0 || *share == 0 {
            return false;
        }
        self.ahead -= 1;
        *share -= 1;
        true
    }
}
