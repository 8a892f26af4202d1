//! A registered runner and what it holds.

use std::collections::{HashMap, HashSet};

use torc_api::wire::{AttemptKey, Resources, RunnerDirective, RunnerKind, SyncRequest, SyncResponse};

use crate::class::RunnerView;
use crate::engine::held_leases::RunnerLeases;
use crate::ids::{AllocationKey, JobId, Now, RunnerId, WorkflowId};
use crate::rows::RunnerRow;

/// Time for which an offer counts after the runner's wait on the server has ended: long enough to ask again over a slow link. A runner
/// that polls less often is not counted on.
const OFFER_MS: u64 = 2_000;

/// Free capacity of a runner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Offer {
    /// Resources that are still free.
    pub free: Resources,
    /// The offer expires then; on the monotonic clock.
    pub until_ms: u64,
}

impl Offer {
    /// Returns the time until which a runner's message counts, if it waits for `wait_ms` on the server.
    pub fn until(wait_ms: u64, now: Now) -> u64 {
        now.mono_ms.saturating_add(wait_ms).saturating_add(OFFER_MS)
    }

    pub fn is_empty(&self) -> bool {
        self.free.cpus <= 0
    }
}

pub(in crate::engine) struct Runner {
    pub row: RunnerRow,
    /// When it was last heard of.
    heard_ms: u64,
    /// When that was, for people.
    heard_wall_ms: i64,
    /// The highest sequence number seen.
    sequence: u64,
    /// When it has to end, on our clock.
    ends_ms: Option<u64>,
    /// How long it may be silent, if it said so itself.
    lease_seconds: Option<u32>,
    /// Its free capacity.
    pub(super) offer: Offer,
    /// It has been silent for longer than its lease.
    silent: bool,
    pub leases: RunnerLeases,
    /// The directive that it was told last, and the message whose answer said so first.
    sent_directive: SentDirective,
    /// What it was told to end or to give back and still has, with the message whose answer said so first.
    sent_orders: HashMap<AttemptKey, u64>,
    /// What waited in it when it last spoke.
    pub(super) waiting: Vec<AttemptKey>,
    /// Classes of the waiting leases, each once: few enough to be compared with every offer.
    pub(super) waiting_classes: Vec<WaitingClass>,
    /// Those of them that were asked back.
    pub(super) asked_back: HashMap<JobId, AskedBack>,
    /// The Slurm allocation that it lives in, if that is one of ours.
    pub allocation: Option<AllocationKey>,
}

/// A directive that a runner was told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct SentDirective {
    pub verdict: RunnerDirective,
    /// The message whose answer said so first.
    pub sequence: u64,
}

/// A class of leases that wait in a runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WaitingClass {
    pub workflow: WorkflowId,
    /// Index into the workflow's classes.
    pub class: u32,
}

/// A lease that its holder was asked to give back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AskedBack {
    /// The runner that could start it.
    pub taker: RunnerId,
    /// The job's workflow.
    pub workflow: WorkflowId,
    /// Time of the request, on the monotonic clock.
    pub at_ms: u64,
}

impl Runner {
    pub fn new(row: RunnerRow, now: Now) -> Self {
        Self {
            row,
            heard_ms: now.mono_ms,
            heard_wall_ms: now.wall_ms,
            sequence: 0,
            ends_ms: None,
            lease_seconds: None,
            offer: Offer::default(),
            silent: false,
            leases: RunnerLeases::default(),
            sent_directive: SentDirective::default(),
            sent_orders: HashMap::new(),
            allocation: None,
            waiting: Vec::new(),
            waiting_classes: Vec::new(),
            asked_back: HashMap::new(),
        }
    }

    /// The runner has said something. Returns whether no newer message had come before it: one that was overtaken still reports what
    /// ended, but its view of what is held is old.
    pub fn hear(&mut self, request: &SyncRequest, now: Now) -> bool {
        self.heard_ms = now.mono_ms;
        self.heard_wall_ms = now.wall_ms;
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

    /// Returns for how long nothing was heard of it.
    pub fn silence_ms(&self, now: Now) -> u64 {
        now.mono_ms.saturating_sub(self.heard_ms)
    }

    /// Returns when it was last heard of, for people.
    pub fn heard_wall_ms(&self) -> i64 {
        self.heard_wall_ms
    }

    /// It has been silent for longer than its lease. Returns whether that is new.
    pub fn set_silent(&mut self) -> bool {
        !std::mem::replace(&mut self.silent, true)
    }

    /// Whether it has been silent for longer than its lease.
    pub fn is_silent(&self) -> bool {
        self.silent
    }

    /// Returns the highest sequence number of its messages.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Returns how long it may be silent, if it said so itself.
    pub fn lease_seconds(&self) -> Option<u32> {
        self.lease_seconds
    }

    /// Returns the leases that waited in it when it last spoke.
    pub fn waiting(&self) -> impl Iterator<Item = &AttemptKey> {
        self.waiting.iter()
    }

    /// Returns how many leases it was asked to give back.
    #[cfg(test)]
    pub fn asked_back_count(&self) -> usize {
        self.asked_back.len()
    }

    #[cfg(test)]
    pub(super) fn forget_what_is_not_kept(&mut self, now: Now) {
        let kept = Self::new(self.row.clone(), now);
        let before = std::mem::replace(self, kept);
        self.leases = before.leases;
        self.leases.forget_answers();
        self.allocation = before.allocation;
    }

    /// Whether an answer tells the runner to end or to give back something that it has not heard of before. It is told again
    /// every time, but that is no reason not to let it wait for work while its jobs end.
    pub fn has_new_directives(&mut self, request: &SyncRequest, response: &SyncResponse) -> bool {
        let orders: HashSet<AttemptKey> = response.cancel.iter().chain(&response.give_back).copied().collect();
        self.sent_orders.retain(|key, _| orders.contains(key));
        let mut is_new = false;
        for key in orders {
            is_new |= *self.sent_orders.entry(key).or_insert(request.sequence) > request.acknowledged;
        }
        is_new
    }

    /// Whether an answer brings a directive that the runner has not heard of. Once it knows that everything has completed, it waits
    /// for the next workflow as for any other work.
    pub fn has_new_directive_for_all(&mut self, request: &SyncRequest, response: &SyncResponse) -> bool {
        if self.sent_directive.verdict != response.verdict {
            self.sent_directive = SentDirective { verdict: response.verdict, sequence: request.sequence };
        }
        self.sent_directive.sequence > request.acknowledged
    }

    /// Whether it lives in a Slurm allocation, where jobs are steps unless their workflow says otherwise.
    pub fn is_in_allocation(&self) -> bool {
        self.row.kind == RunnerKind::Slurm
    }

    pub fn place(&self, now: Now) -> RunnerView<'_> {
        RunnerView {
            capacity: self.row.capacity,
            labels: &self.row.labels,
            scheduler: self.row.scheduler.as_deref(),
            remaining_seconds: self.ends_ms.map(|end| (end.saturating_sub(now.mono_ms) / 1_000).cast_signed()),
            by_count: self.row.max_parallel_jobs.is_some(),
        }
    }
}
