//! A registered runner and what it holds.

use std::collections::{BTreeMap, HashMap, HashSet};

use torc_api::wire::{AttemptKey, RunnerKind, SyncRequest, SyncResponse, Verdict};

use super::allocations::AllocationKey;
use super::offers::Offer;
use super::tasks::TaskId;
use crate::class::Place;
use crate::ids::{JobId, Now, RunnerId, WorkflowId};
use crate::rows::{DetachedLease, RunnerRow};

pub(super) struct Runner {
    pub row: RunnerRow,
    /// When it was last heard of.
    pub heard_ms: u64,
    /// When that was, for people.
    pub heard_wall_ms: i64,
    /// The highest sequence number seen.
    pub sequence: u64,
    /// When it has to end, on our clock.
    pub ends_ms: Option<u64>,
    /// How long it may be silent, if it said so itself.
    pub lease_seconds: Option<u32>,
    /// Its free capacity.
    pub offer: Offer,
    /// It has been silent for longer than its lease.
    pub silent: bool,
    pub held: HashMap<JobId, HeldLease>,
    /// Leases that it is to end, by their numbers.
    pub ending: BTreeMap<i64, RevokedLease>,
    /// The directive that it was told last, and the message whose answer said so first.
    pub sent_directive: SentDirective,
    /// What it was told to end or to give back and still has, with the message whose answer said so first.
    pub sent_orders: HashMap<AttemptKey, u64>,
    /// What waited in it when it last spoke.
    pub waiting: Vec<AttemptKey>,
    /// Classes of the waiting leases, each once: few enough to be compared with every offer.
    pub waiting_classes: Vec<WaitingClass>,
    /// Those of them that were asked back.
    pub asked_back: HashMap<JobId, AskedBack>,
    /// The Slurm allocation that it lives in, if that is one of ours.
    pub allocation: Option<AllocationKey>,
    /// Actions and recovery scripts that it has.
    pub tasks: HashMap<TaskId, LeasedTask>,
}

/// A directive that a runner was told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SentDirective {
    pub verdict: Verdict,
    /// The message whose answer said so first.
    pub sequence: u64,
}

/// A lease of a runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeldLease {
    pub workflow: WorkflowId,
    /// The message whose answer brought it.
    pub granted_in: u64,
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
    /// Time of the request, on the monotonic clock.
    pub at_ms: u64,
}

/// An action or a recovery script of a runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeasedTask {
    pub key: AttemptKey,
    /// The message whose answer brought it.
    pub granted_in: u64,
}

/// A lease that was taken from a runner and has not ended yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RevokedLease {
    pub lease: DetachedLease,
    /// The message whose answer brought it.
    pub granted_in: u64,
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
            held: HashMap::new(),
            ending: BTreeMap::new(),
            sent_directive: SentDirective::default(),
            sent_orders: HashMap::new(),
            allocation: None,
            tasks: HashMap::new(),
            waiting: Vec::new(),
            waiting_classes: Vec::new(),
            asked_back: HashMap::new(),
        }
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

    pub fn place(&self, now: Now) -> Place<'_> {
        Place {
            capacity: self.row.capacity,
            labels: &self.row.labels,
            scheduler: self.row.scheduler.as_deref(),
            remaining_seconds: self.ends_ms.map(|end| (end.saturating_sub(now.mono_ms) / 1_000).cast_signed()),
            by_count: self.row.max_parallel_jobs.is_some(),
        }
    }
}
