//! What a runner asks for.

use std::time::Duration;

use torc_api::wire::{Resources, Want};

use super::{Phase, State};
use crate::clock::Moment;

impl State {
    /// How much more work it could use; nothing while enough is waiting.
    pub(super) fn want(&self, now: Moment) -> Want {
        let is_open = self.phase == Phase::Serving && !self.is_preempted() && self.has_node();
        if !is_open || self.contact.is_draining() || self.is_too_late(now) {
            return Want::default();
        }
        let waiting = u32::try_from(self.queue.len() + self.kinds.handed()).unwrap_or(u32::MAX);
        let free = self.free_after_queue();
        let slots = self.ledger.free_slots();
        let free_jobs = slots.unwrap_or_else(|| u32::try_from(free.cpus).unwrap_or(u32::MAX)).saturating_sub(
            // By number, every job that waits takes a slot.
            if slots.is_some() { waiting } else { 0 },
        );
        let jobs = || self.active.iter().filter_map(|key| self.jobs.get(key)).filter(|job| job.role.is_job());
        let youngest = jobs().map(|job| now.since(job.since)).min();
        let target = self.pace.target(youngest.unwrap_or_default());
        let starving = waiting == 0 && free_jobs > 0;
        if !starving && waiting >= target.refill_below {
            return Want::default();
        }
        let ahead = target.queued.saturating_sub(waiting);
        Want { free, ahead, limit: free_jobs.saturating_add(ahead).min(target.batch) }
    }

    /// How many jobs run; what is done for a workflow or a worker beside them is none.
    pub(super) fn jobs_at_work(&self) -> u32 {
        let jobs = self.active.iter().filter_map(|key| self.jobs.get(key)).filter(|job| job.role.is_job());
        u32::try_from(jobs.count()).unwrap_or(u32::MAX)
    }

    /// By number of jobs, the runtimes of jobs are ignored: jobs are claimed only while the remaining time exceeds the minimum.
    pub(super) fn is_too_late(&self, now: Moment) -> bool {
        let least = Duration::from_secs(self.contact.terms.min_time_for_new_jobs_seconds);
        self.settings.max_parallel_jobs.is_some() && self.settings.time.is_some_and(|(_, end)| end.since(now) <= least)
    }

    /// What would be free once everything that waits has started.
    pub(super) fn free_after_queue(&self) -> Resources {
        let mut free = self.ledger.free();
        for job in self.queue.iter().filter_map(|key| self.jobs.get(key)) {
            let need = job.kind.resources();
            let times = need.nodes.max(1);
            free.cpus -= need.cpus.max(0).saturating_mul(times);
            free.memory_bytes -= need.memory_bytes.max(0).saturating_mul(times);
            free.gpus -= need.gpus.max(0).saturating_mul(times);
            free.nodes -= if times > 1 { times } else { 0 };
            if free.cpus <= 0 {
                break;
            }
        }
        Resources {
            cpus: free.cpus.max(0),
            memory_bytes: free.memory_bytes.max(0),
            gpus: free.gpus.max(0),
            nodes: free.nodes.max(0),
        }
    }

    /// Nothing waits, and something could run.
    pub(super) fn is_starving(&self) -> bool {
        self.queue.is_empty() && self.kinds.handed() == 0 && self.has_room()
    }
}
