//! Leases that have not started move to runners that can start them now.
//!
//! If no ready job is left for a runner with free capacity, it gets leases that wait in other runners: those at the
//! end of the queue of the most loaded runner first. The engine asks the holder to return them, and grants them to
//! the other runner only after the holder has confirmed that it did not start them. A lease moves at most twice, so
//! that it does not oscillate.

use std::collections::HashSet;

use torc_api::wire::{Resources, SyncRequest};

use super::runner::{ReturnRequest, WaitingClass};
use super::{LiveRunner, Runners};
use crate::class::{fits, minus};
use crate::ids::{JobId, Now, RunnerId, WorkflowId};

/// Maximum number of leases that are examined for one runner in one sync. Limits the time of a sync; few runners start more jobs at once.
pub(super) const MAX_LEASES_EXAMINED: usize = 256;
/// Maximum number of times that a lease moves. A lease that moved more often would oscillate between runners.
pub(super) const MAX_MOVES: u8 = 2;
/// Time after which a request counts as unanswered, and other holders are requested. Longer than a sync over a slow link.
const REQUEST_TIMEOUT_MS: u64 = 2_000;

impl LiveRunner {
    /// Returns the number of waiting leases that are not requested back.
    pub(super) fn unrequested_leases(&self) -> usize {
        self.waiting.len().saturating_sub(self.return_requests.len())
    }

    /// Returns the number of jobs that it probably runs.
    pub(super) fn running_estimate(&self) -> usize {
        self.leases.job_count().saturating_sub(self.waiting.len())
    }

    /// Returns the ratio of spare leases to running jobs, scaled: the runner with the highest load gives leases away first.
    pub(super) fn load(&self) -> usize {
        self.unrequested_leases() * 1_024 / self.running_estimate().max(1)
    }

    /// Returns whether it was requested to return the lease of a job.
    pub fn is_requested_back(&self, job: JobId) -> bool {
        self.return_requests.contains_key(&job)
    }
}

/// A lease that could move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) struct SpareLease {
    pub donor: RunnerId,
    pub workflow: WorkflowId,
    pub job: u32,
}

impl Runners {
    /// Records which leases wait in a runner, and of which classes. Drops the return requests for leases that it has
    /// returned or started. Returns whether the leases have changed and one of them could be given away.
    pub fn set_waiting(&mut self, id: RunnerId, request: &SyncRequest, classes: Vec<WaitingClass>) -> bool {
        let Some(runner) = self.all.get_mut(&id) else { return false };
        let is_new = runner.waiting != request.queued;
        runner.waiting.clone_from(&request.queued);
        runner.waiting_classes = classes;
        if !runner.return_requests.is_empty() {
            let waiting: HashSet<i64> = request.queued.iter().map(|key| key.job).collect();
            runner.return_requests.retain(|job, _| waiting.contains(&job.0));
        }
        if runner.unrequested_leases() == 0 {
            self.donors.remove(&id);
            return false;
        }
        self.donors.insert(id);
        is_new
    }

    /// Records that a runner is requested to return the lease of a job, for another runner to start.
    pub fn request_return(&mut self, donor: RunnerId, job: JobId, request: ReturnRequest) {
        if let Some(donor) = self.all.get_mut(&donor) {
            donor.return_requests.insert(job, request);
        }
    }

    /// Wakes waiting runners if a holder has not returned a lease in time.
    pub fn expire_return_requests(&mut self, now: Now) {
        let is_late = |donor: &RunnerId| {
            let requests = self.all.get(donor).map(|donor| donor.return_requests.values());
            requests.into_iter().flatten().any(|request| request.is_late(now))
        };
        if !self.offering.is_empty() && self.donors.iter().any(is_late) {
            self.wake();
        }
    }
}

impl ReturnRequest {
    /// Returns whether the holder should have answered by now.
    pub(super) fn is_late(&self, now: Now) -> bool {
        now.mono_ms.saturating_sub(self.at_ms) >= REQUEST_TIMEOUT_MS
    }
}

/// The leases that a runner may take from others: those that it can start now, then some to queue.
pub(super) struct StealBudget {
    pub free: Resources,
    pub ahead: u32,
}

impl StealBudget {
    pub fn is_spent(&self) -> bool {
        self.free.cpus <= 0 && self.ahead == 0
    }

    /// Takes one lease if there is room for it. A lease that would only be queued counts against the share of the donor.
    pub fn take(&mut self, demand: &Resources, share: &mut usize) -> bool {
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
