//! Simulated runners that follow the protocol on a network that loses, delays and duplicates requests and answers.

use std::collections::HashMap;

use torc_api::state::Cause;
use torc_api::wire::{
    AttemptKey, FinishedAttempt, LEASE_SECONDS, LeaseRole, RegisterRequest, Resources, RunningAttempt, SyncRequest,
    SyncResponse, WorkRequest,
};

use super::harness;
use crate::ids::RunnerId;

#[derive(Clone, Debug)]
pub struct SimRunner {
    pub introduction: RegisterRequest,
    /// None before its registration, and after the server has forgotten it.
    pub id: Option<RunnerId>,
    /// It sends no more messages.
    pub gone: bool,
    pub sequence: u64,
    pub acknowledged: u64,
    pub queued: Vec<Promise>,
    pub running: Vec<Promise>,
    pub finished: Vec<FinishedAttempt>,
    pub returned: Vec<AttemptKey>,
    /// Send time of the message whose answer it received last. The server has had contact with it at least until
    /// then.
    pub heard_ms: u64,
    /// Send times of its messages, by sequence number.
    pub sent_ms: HashMap<u64, u64>,
}

/// A lease that a simulated runner holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Promise {
    pub key: AttemptKey,
    pub role: LeaseRole,
    pub demand: Resources,
    pub started_ms: u64,
    /// It was canceled and has not ended yet.
    pub canceled: bool,
    /// Its runner was disconnected while it ran, so another runner may have been granted the job.
    pub was_cut_off: bool,
}

impl SimRunner {
    pub fn new(introduction: RegisterRequest) -> Self {
        Self {
            introduction,
            id: None,
            gone: false,
            sequence: 0,
            acknowledged: 0,
            queued: Vec::new(),
            running: Vec::new(),
            finished: Vec::new(),
            returned: Vec::new(),
            heard_ms: 0,
            sent_ms: HashMap::new(),
        }
    }

    /// Returns whether the server may have expired its leases without its knowledge.
    pub fn is_cut_off(&self, now_ms: u64) -> bool {
        self.gone || now_ms - self.heard_ms > LEASE_SECONDS * 1_000
    }

    /// Returns its current report as the next message.
    pub fn message(&mut self, ahead: u32, limit: u32, now_ms: u64) -> SyncRequest {
        self.sequence += 1;
        self.sent_ms.insert(self.sequence, now_ms);
        let elapsed = |promise: &Promise| RunningAttempt { key: promise.key, elapsed_ms: now_ms - promise.started_ms };
        SyncRequest {
            sequence: self.sequence,
            acknowledged: self.acknowledged,
            queued: self.queued.iter().map(|promise| promise.key).collect(),
            running: self.running.iter().map(elapsed).collect(),
            finished: self.finished.clone(),
            returned: self.returned.clone(),
            want: WorkRequest { free: self.free(), ahead, bridge: ahead, limit },
            ..SyncRequest::default()
        }
    }

    fn free(&self) -> Resources {
        let mut free = self.introduction.capacity;
        if let Some(slots) = self.introduction.max_parallel_jobs {
            let taken = (self.queued.len() + self.running.len()) as i64;
            return Resources { cpus: (i64::from(slots) - taken).max(0), ..Resources::default() };
        }
        for promise in self.queued.iter().chain(&self.running) {
            free.cpus = (free.cpus - promise.demand.cpus).max(0);
            free.memory_bytes = (free.memory_bytes - promise.demand.memory_bytes).max(0);
            free.gpus = (free.gpus - promise.demand.gpus).max(0);
        }
        free
    }

    /// Applies an answer, unless a newer one has arrived before.
    pub fn take(&mut self, request: &SyncRequest, response: &SyncResponse, now_ms: u64) {
        if response.sequence <= self.acknowledged {
            return;
        }
        if self.is_cut_off(now_ms) {
            self.running.iter_mut().for_each(|promise| promise.was_cut_off = true);
        }
        self.heard_ms = self.sent_ms.get(&request.sequence).copied().unwrap_or(now_ms);
        self.acknowledged = response.sequence;
        self.finished.retain(|finished| !request.finished.contains(finished));
        self.returned.retain(|key| !request.returned.contains(key));
        for key in &response.cancel {
            self.queued.retain(|promise| promise.key != *key);
            for promise in self.running.iter_mut().filter(|promise| promise.key == *key) {
                promise.canceled = true;
            }
        }
        for key in &response.give_back {
            if let Some(index) = self.queued.iter().position(|promise| promise.key == *key) {
                self.queued.remove(index);
                self.returned.push(*key);
            }
        }
        for lease in &response.leases {
            let demand = response.profiles[lease.profile as usize].resources;
            let (key, role) = (lease.key, lease.role);
            self.queued.push(Promise { key, role, demand, started_ms: 0, canceled: false, was_cut_off: false });
        }
    }

    pub fn start(&mut self, choice: usize, now_ms: u64) -> Option<AttemptKey> {
        if self.queued.is_empty() {
            return None;
        }
        let mut promise = self.queued.remove(choice % self.queued.len());
        promise.started_ms = now_ms;
        self.running.push(promise);
        Some(promise.key)
    }

    pub fn finish(&mut self, choice: usize, outcome: Option<(i32, Cause)>) {
        if self.running.is_empty() {
            return;
        }
        let promise = self.running.remove(choice % self.running.len());
        self.finished.push(match outcome {
            _ if promise.canceled => harness::failure(promise.key, 143, Cause::Canceled),
            None => harness::success(promise.key),
            Some((code, cause)) => harness::failure(promise.key, code, cause),
        });
    }

    pub fn give_back(&mut self, choice: usize) {
        if !self.queued.is_empty() {
            let promise = self.queued.remove(choice % self.queued.len());
            self.returned.push(promise.key);
        }
    }

    /// Resets the connection after the server has forgotten the runner. The runner keeps its leases.
    pub fn forgotten(&mut self) {
        self.id = None;
        self.sequence = 0;
        self.acknowledged = 0;
        self.sent_ms.clear();
    }
}
