//! The request for more work.

use torc_api::wire::{Resources, WorkRequest};
use torc_core::class::{fits, minus, taken_from};

use super::State;
use super::jobs::{Jobs, LeasedJob};
use crate::clock::BootInstant;

impl State {
    /// Returns how much more work the runner can use; nothing while enough is waiting.
    pub(super) fn work_request(&self, now: BootInstant) -> WorkRequest {
        let is_open = self.lifecycle.is_serving() && !self.allocation.is_preempted() && self.jobs.has_node();
        let is_too_late = self.deadlines.is_too_late(self.session.policy(), now);
        if !is_open || self.session.is_draining() || is_too_late {
            return WorkRequest::default();
        }
        let waiting = u32::try_from(self.jobs.waiting_jobs()).unwrap_or(u32::MAX);
        let free = free_capacity(&self.jobs, now);
        let free_jobs = u32::try_from(free.cpus).unwrap_or(u32::MAX);
        let youngest = self.jobs.active_jobs().map(|job| now.since(job.since)).min();
        let target = self.throughput.target(youngest.unwrap_or_default());
        if free_jobs == 0 && waiting >= target.refill_below {
            return WorkRequest::default();
        }
        let ahead = target.queued.saturating_sub(waiting);
        let bridge = self.throughput.bridge(&target, self.settings.report_interval).saturating_sub(waiting);
        WorkRequest { free, ahead, bridge, limit: free_jobs.saturating_add(ahead).min(target.batch) }
    }
}

/// Returns the resources that are free for further jobs. Waiting jobs that fit come first, and nothing is free while a large job
/// has waited for too long. Free slots count as CPUs.
pub(super) fn free_capacity(jobs: &Jobs, now: BootInstant) -> Resources {
    let slots = jobs.ledger().free_slots();
    let mut free = match slots {
        Some(slots) => Resources { cpus: slots.into(), ..Resources::default() },
        None => jobs.ledger().free(),
    };
    let demand = |job: &LeasedJob| match slots {
        Some(_) => Resources { cpus: 1, ..Resources::default() },
        None => taken_from(&jobs.ledger().capacity(), job.launch.resources()),
    };
    for job in jobs.queue().filter_map(|key| jobs.get(&key)) {
        if free.cpus <= 0 {
            break;
        }
        let needed = demand(job);
        if fits(&free, &needed) {
            free = minus(&free, &needed);
        } else if job.is_starved(now) {
            return Resources::default();
        }
    }
    free
}
