//! Near the end, work that has not started moves from loaded runners to idle ones.
//!
//! A runner that wants work and finds none is *starving*. Leases that wait in others are then asked back on its behalf: from
//! those that have the most waiting for each job that they run, the last in line first, and at most half of what waits. Their
//! holder gives them back, or says that it has started them. A lease moves once: nothing goes to and fro.

use std::cmp::Reverse;
use std::collections::HashSet;

use torc_api::wire::{AttemptKey, Resources, SyncRequest, Want};

use super::State;
use super::runner::Runner;
use crate::class::{fits, minus};
use crate::ids::{JobId, Now, RunnerId, WorkflowId};

/// The most leases that are looked at for one starving runner in one go.
const LOOK_AT_MOST: usize = 256;

impl Runner {
    /// What waits in it and is not asked back yet.
    fn spare(&self) -> usize {
        self.waiting.len().saturating_sub(self.asked_back.len())
    }

    /// Jobs that it runs, as far as is known.
    fn busy(&self) -> usize {
        self.held.len().saturating_sub(self.waiting.len())
    }

    /// The more waits for each job that runs, the sooner it gives something away.
    fn load(&self) -> usize {
        self.spare() * 1_024 / self.busy().max(1)
    }

    /// A message says what waits in it. What it was asked for and no longer has, or has started, is not awaited any more.
    pub fn says_what_waits(&mut self, request: &SyncRequest) {
        self.waiting.clone_from(&request.queued);
        if !self.asked_back.is_empty() {
            let waiting: HashSet<i64> = request.queued.iter().map(|key| key.job).collect();
            self.asked_back.retain(|job, _| waiting.contains(&job.0));
        }
    }
}

impl State {
    /// Nothing was found for a runner that wants work: others are asked for some of what waits in them.
    pub(super) fn ask_back_for(&mut self, id: RunnerId, want: Want, now: Now) {
        let asked = |runner: &Runner| runner.asked_back.values().any(|for_whom| *for_whom == id);
        if self.runners.values().any(asked) {
            return;
        }
        let found = self.spare_leases(id, want, now);
        if found.is_empty() {
            return;
        }
        for (donor, workflow_id, job) in found {
            let Some(workflow) = self.workflows.get_mut(&workflow_id) else { continue };
            workflow.jobs[job as usize].moved = true;
            let number = workflow.jobs[job as usize].id;
            if let Some(donor) = self.runners.get_mut(&donor) {
                donor.asked_back.insert(number, id);
            }
        }
        self.news += 1;
    }

    /// Whether the runner was asked to give this back.
    pub(super) fn is_asked_back(&self, id: RunnerId, key: &AttemptKey) -> bool {
        self.runners.get(&id).is_some_and(|runner| runner.asked_back.contains_key(&JobId(key.job)))
    }

    /// Leases that wait elsewhere and that the runner could start now or soon.
    fn spare_leases(&self, id: RunnerId, want: Want, now: Now) -> Vec<(RunnerId, WorkflowId, u32)> {
        let Some(starving) = self.runners.get(&id) else { return Vec::new() };
        let place = starving.place(now);
        let scope = self.may_give_to(id, starving);
        let mut donors: Vec<(&RunnerId, &Runner)> = self
            .runners
            .iter()
            .filter(|(other, donor)| **other != id && !donor.silent && donor.spare() > 0 && donor.busy() > 0)
            .collect();
        donors.sort_by_key(|(other, donor)| (Reverse(donor.load()), **other));
        let mut basket = Basket { free: want.free, ahead: want.ahead, by_count: place.by_count };
        let (mut found, mut looked) = (Vec::new(), 0);
        for (donor_id, donor) in donors {
            let mut share = donor.spare().div_ceil(2);
            for key in donor.waiting.iter().rev() {
                if share == 0 || looked == LOOK_AT_MOST || found.len() >= want.limit as usize {
                    break;
                }
                looked += 1;
                let Some((workflow, job)) = self.movable(*donor_id, key) else { continue };
                let class = workflow.class_of(job);
                let end = workflow.end_margin(starving.is_in_allocation());
                let may = scope.contains(&workflow.id()) && class.is_some_and(|class| class.suits(&place, end));
                let demand = class.map(|class| class.demand(&place.capacity)).unwrap_or_default();
                if may && !donor.asked_back.contains_key(&JobId(key.job)) && basket.take(&demand) {
                    found.push((*donor_id, workflow.id(), job));
                    share -= 1;
                }
            }
        }
        found
    }

    /// Workflows whose jobs the runner may have now.
    fn may_give_to(&self, id: RunnerId, runner: &Runner) -> HashSet<WorkflowId> {
        let open = |workflow: &WorkflowId| {
            self.workflows
                .get(workflow)
                .is_some_and(|workflow| workflow.is_active() && !workflow.is_starting() && !workflow.is_preparing(id))
        };
        self.live_in_scope(&runner.row.scope).into_iter().filter(open).collect()
    }

    /// The job of a lease that has not started and has not moved before.
    fn movable(&self, donor: RunnerId, key: &AttemptKey) -> Option<(&super::workflow::Workflow, u32)> {
        let (workflow, job) = self.held_by(donor, key)?;
        let record = &workflow.jobs[job as usize];
        (record.started_ms.is_none() && !record.moved).then_some((workflow, job))
    }
}

/// What a starving runner can take: first what fits, then some to follow.
struct Basket {
    free: Resources,
    ahead: u32,
    by_count: bool,
}

impl Basket {
    fn take(&mut self, demand: &Resources) -> bool {
        if self.by_count {
            return true;
        }
        if fits(&self.free, demand) {
            self.free = minus(&self.free, demand);
            return true;
        }
        let more = self.ahead > 0;
        self.ahead = self.ahead.saturating_sub(1);
        more
    }
}
