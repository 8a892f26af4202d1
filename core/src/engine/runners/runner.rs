//! A registered runner and its leases.

use std::collections::{HashMap, HashSet};

use torc_api::wire::{AttemptKey, Resources, RunnerDirective, RunnerKind, SyncRequest, SyncResponse};

use super::held_leases::RunnerLeases;
use crate::class::RunnerView;
use crate::engine::tx::Tx;
use crate::ids::{AllocationKey, JobId, Now, RunnerId, WorkflowId};
use crate::rows::RunnerRow;

/// Time for which an offer is valid after the long poll of the runner has ended: enough for the next message over a slow link. Runners
/// that poll less often do not hold back leases of others.
const OFFER_LIFETIME_MS: u64 = 2_000;

/// Free capacity of a runner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Offer {
    pub free: Resources,
    /// Time at which the offer expires, on the monotonic clock.
    pub until_ms: u64,
}

impl Offer {
    /// Returns the time at which the offer in a message expires, if the message waits for `wait_ms` on the server.
    pub fn until(wait_ms: u64, now: Now) -> u64 {
        now.mono_ms.saturating_add(wait_ms).saturating_add(OFFER_LIFETIME_MS)
    }

    pub fn is_empty(&self) -> bool {
        self.free.cpus <= 0
    }
}

/// A registered runner, with its leases and its last message.
pub(in crate::engine) struct LiveRunner {
    row: RunnerRow,
    /// Time of the last message, on the monotonic clock.
    last_contact_ms: u64,
    /// Time of the last message, for the API.
    last_contact_wall_ms: i64,
    /// Highest sequence number of its messages.
    sequence: u64,
    /// Time at which its allocation ends, on the monotonic clock.
    ends_ms: Option<u64>,
    /// Lease duration that the runner has requested.
    lease_seconds: Option<u32>,
    pub(super) offer: Offer,
    /// Its lease duration has passed since the last message.
    silent: bool,
    pub leases: RunnerLeases,
    sent_directive: SentDirective,
    /// Leases that answers cancel or request back and that the runner still has. The value is the sequence number of
    /// the message whose answer first named the lease.
    sent_keys: HashMap<AttemptKey, u64>,
    /// Leases that had not started at its last message.
    pub(super) waiting: Vec<AttemptKey>,
    /// Classes of the waiting leases, each once: few enough to compare each with every offer.
    pub(super) waiting_classes: Vec<WaitingClass>,
    /// Waiting leases that the runner was requested to return.
    pub(super) return_requests: HashMap<JobId, ReturnRequest>,
    /// The Slurm allocation that it lives in, if the allocation belongs to this store.
    allocation: Option<AllocationKey>,
}

/// The last directive in an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SentDirective {
    directive: RunnerDirective,
    /// Sequence number of the message whose answer first had the directive.
    sequence: u64,
}

/// A class of leases that wait in a runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) struct WaitingClass {
    pub workflow: WorkflowId,
    /// Index into the classes of the workflow.
    pub class: u32,
}

/// A request to return the lease of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) struct ReturnRequest {
    /// The runner that could start the job.
    pub taker: RunnerId,
    pub workflow: WorkflowId,
    /// Time of the request, on the monotonic clock.
    pub at_ms: u64,
}

impl LiveRunner {
    pub fn new(row: RunnerRow, now: Now) -> Self {
        Self {
            row,
            last_contact_ms: now.mono_ms,
            last_contact_wall_ms: now.wall_ms,
            sequence: 0,
            ends_ms: None,
            lease_seconds: None,
            offer: Offer::default(),
            silent: false,
            leases: RunnerLeases::default(),
            sent_directive: SentDirective::default(),
            sent_keys: HashMap::new(),
            allocation: None,
            waiting: Vec::new(),
            waiting_classes: Vec::new(),
            return_requests: HashMap::new(),
        }
    }

    pub fn id(&self) -> RunnerId {
        self.row.id
    }

    pub fn row(&self) -> &RunnerRow {
        &self.row
    }

    pub fn allocation(&self) -> Option<AllocationKey> {
        self.allocation
    }

    /// Records the allocation that the runner lives in.
    pub fn enter(&mut self, allocation: AllocationKey) {
        self.allocation = Some(allocation);
    }

    /// Records the end of the runner.
    pub fn end(&mut self, tx: &mut Tx) {
        self.row.ended_ms = Some(tx.now.wall_ms);
        tx.changes.runner(&self.row);
    }

    /// Records a message. Returns whether it is the newest one: an overtaken message still reports results, but what it says about held
    /// leases is outdated.
    pub fn record_message(&mut self, request: &SyncRequest, now: Now) -> bool {
        self.last_contact_ms = now.mono_ms;
        self.last_contact_wall_ms = now.wall_ms;
        self.silent = false;
        self.lease_seconds = request.lease_seconds;
        self.ends_ms = request.remaining_ms.map(|left| now.mono_ms.saturating_add(left));
        let is_newest = request.sequence > self.sequence;
        self.sequence = self.sequence.max(request.sequence);
        if is_newest {
            self.offer.until_ms = Offer::until(request.wait_ms, now);
        }
        is_newest
    }

    /// Returns the time since the last message.
    pub fn silence_ms(&self, now: Now) -> u64 {
        now.mono_ms.saturating_sub(self.last_contact_ms)
    }

    /// Returns the time of the last message, for the API.
    pub fn last_contact_wall_ms(&self) -> i64 {
        self.last_contact_wall_ms
    }

    /// Marks the runner as silent. Returns whether it was not silent before.
    pub fn set_silent(&mut self) -> bool {
        !std::mem::replace(&mut self.silent, true)
    }

    /// Returns whether its lease duration has passed since the last message.
    pub fn is_silent(&self) -> bool {
        self.silent
    }

    /// Returns the highest sequence number of its messages.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Returns the lease duration that the runner has requested.
    pub fn lease_seconds(&self) -> Option<u32> {
        self.lease_seconds
    }

    /// Returns the leases that had not started at its last message.
    pub fn waiting(&self) -> impl Iterator<Item = &AttemptKey> {
        self.waiting.iter()
    }

    /// Returns the number of leases that it was requested to return.
    #[cfg(test)]
    pub fn return_request_count(&self) -> usize {
        self.return_requests.len()
    }

    #[cfg(test)]
    pub(super) fn forget_unstored(&mut self, now: Now) {
        let stored = Self::new(self.row.clone(), now);
        let before = std::mem::replace(self, stored);
        self.leases = before.leases;
        self.leases.forget_answers();
        self.allocation = before.allocation;
    }

    /// Returns whether an answer cancels or requests back a lease that no acknowledged answer has named. Answers
    /// repeat these keys until the leases end, but a repetition does not end a long poll.
    pub fn has_new_keys(&mut self, request: &SyncRequest, response: &SyncResponse) -> bool {
        let keys: HashSet<AttemptKey> = response.cancel.iter().chain(&response.give_back).copied().collect();
        self.sent_keys.retain(|key, _| keys.contains(key));
        let mut is_new = false;
        for key in keys {
            is_new |= *self.sent_keys.entry(key).or_insert(request.sequence) > request.acknowledged;
        }
        is_new
    }

    /// Returns whether an answer has a directive that no acknowledged answer had. A runner that knows of a completion waits for the next
    /// workflow as for any other work.
    pub fn has_new_directive(&mut self, request: &SyncRequest, response: &SyncResponse) -> bool {
        if self.sent_directive.directive != response.directive {
            self.sent_directive = SentDirective { directive: response.directive, sequence: request.sequence };
        }
        self.sent_directive.sequence > request.acknowledged
    }

    /// Returns whether it lives in a Slurm allocation, where jobs are steps unless their workflow says otherwise.
    pub fn is_in_allocation(&self) -> bool {
        self.row.kind == RunnerKind::Slurm
    }

    /// Returns the properties that decide whether a job fits the runner.
    pub fn view(&self, now: Now) -> RunnerView<'_> {
        RunnerView {
            capacity: self.row.capacity,
            labels: &self.row.labels,
            scheduler: self.row.scheduler.as_deref(),
            remaining_seconds: self.ends_ms.map(|end| (end.saturating_sub(now.mono_ms) / 1_000).cast_signed()),
            by_count: self.row.max_parallel_jobs.is_some(),
        }
    }
}
