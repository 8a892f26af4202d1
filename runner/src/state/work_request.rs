//! What a runner asks for.

use std::time::Duration;

use torc_api::wire::{Resources, WorkRequest};
use torc_core::class::{fits, minus, taken_from};

use super::State;
use super::jobs::Job;
use crate::clock::BootInstant;

impl State {
    /// How much more work it could use; nothing while enough is waiting.
    pub(super) fn want(&self, now: BootInstant) -> WorkRequest {
        let is_open = self.lifecycle.is_serving() && !self.is_preempted() && self.jobs.has_node();
        if !is_open || self.session.is_draining() || self.is_too_late(now) {
            return WorkRequest::default();
        }
        let waiting = u32::try_from(self.jobs.waiting_jobs()).unwrap_or(u32::MAX);
        let free = self.free_now(now);
        let free_jobs = u32::try_from(free.cpus).unwrap_or(u32::MAX);
        let jobs = || self.jobs.active().map(|(_, job)| job).filter(|job| job.role.is_job());
        let youngest = jobs().map(|job| now.since(job.since)).min();
        let target = self.throughput.target(youngest.unwrap_or_default());
        if free_jobs == 0 && waiting >= target.refill_below {
            return WorkRequest::default();
        }
        let ahead = target.queued.saturating_sub(waiting);
        let bridge = self.throughput.bridge(&target, self.settings.report_interval).saturating_sub(waiting);
        WorkRequest { free, ahead, bridge, limit: free_jobs.saturating_add(ahead).min(target.batch) }
    }

    /// How many jobs run; what is done for a workflow or a worker beside them is none.
    pub(super) fn jobs_at_work(&self) -> u32 {
        let jobs = self.jobs.active().map(|(_, job)| job).filter(|job| job.role.is_job());
        u32::try_from(jobs.count()).unwrap_or(u32::MAX)
    }

    /// By number of jobs, the runtimes of jobs are ignored: jobs are claimed only while the remaining time exceeds the minimum.
    pub(super) fn is_too_late(&self, now: BootInstant) -> bool {
        let least = Duration::from_secs(self.session.policy().min_time_for_new_jobs_seconds);
        self.settings.max_parallel_jobs.is_some() && self.deadlines.end().is_some_and(|end| end.since(now) <= least)
    }

    /// Returns the resources that are free for further jobs. Waiting jobs that fit come first, and nothing is free while a large job has
    /// waited for too long. Free slots count as CPUs.
    pub(super) fn free_now(&self, now: BootInstant) -> Resources {
        let mut free = match self.jobs.ledger().free_slots() {
            Some(slots) => Resources { cpus: slots.into(), ..Resources::default() },
            None => self.jobs.ledger().free(),
        };
        for job in self.jobs.queue().filter_map(|key| self.jobs.get(&key)) {
            if free.cpus <= 0 {
                break;
            }
            let need = self.demand_of(job);
            if fits(&free, &need) {
                free = minus(&free, &need);
            } else if self.is_passed_over_too_long(job, now) {
                return Resources::default();
            }
        }
        free
    }

    /// Returns the resources that a waiting job will take.
    fn demand_of(&self, job: &Job) -> Resources {
        if self.settings.max_parallel_jobs.is_some() {
            return Resources { cpus: 1, ..Resources::default() };
        }
        taken_from(&self.jobs.ledger().capacity(), job.launch.resources())
    }

    /// Nothing waits, and something could run.
    pub(super) fn is_starving(&self) -> bool {
        self.jobs.waiting_jobs() == 0 && self.jobs.has_room()
    }
}
