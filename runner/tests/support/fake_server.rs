//! A server in memory: it grants a list of jobs, and records their reports.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use torc_api::wire::{
    AttemptKey, FinishedAttempt, Lease, Profile, RegisterRequest, RegisterResponse, RunnerDirective, SyncRequest,
    SyncResponse,
};
use torc_runner::{LinkError, ServerLink};

#[derive(Clone, Default)]
pub struct FakeServer {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    buffer: Mutex<Buffer>,
    changed: Notify,
}

/// The state of the server.
#[derive(Default)]
pub struct Buffer {
    pub profiles: Vec<Profile>,
    pub ready: VecDeque<Lease>,
    /// Each job becomes ready when the one before it has ended.
    pub chain: VecDeque<Lease>,
    pub leased: BTreeMap<AttemptKey, Lease>,
    pub running: BTreeSet<AttemptKey>,
    pub finished: BTreeMap<AttemptKey, FinishedAttempt>,
    pub returned: Vec<AttemptKey>,
    pub cancel: Vec<AttemptKey>,
    /// Returned jobs are not granted again.
    pub closed: bool,
    pub unreachable: bool,
    pub forgotten: bool,
    pub left: bool,
    pub syncs: u64,
    pub latest: u64,
    pub registrations: i64,
}

impl FakeServer {
    pub fn buffer(&self) -> MutexGuard<'_, Buffer> {
        self.inner.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and wakes the waiting calls.
    pub fn change(&self, change: impl FnOnce(&mut Buffer)) {
        change(&mut self.buffer());
        self.inner.changed.notify_waiters();
    }

    /// Adds a ready job with a profile of its own and returns its key.
    pub fn add(&self, command: &str, profile: Profile) -> AttemptKey {
        let mut buffer = self.buffer();
        let job = i64::try_from(buffer.profiles.len()).unwrap_or(0) + 1;
        buffer.profiles.push(profile);
        let key = AttemptKey { workflow: 7, job, run: 1, attempt: 1, lease_id: job };
        let profile = u32::try_from(job - 1).unwrap_or(0);
        buffer.ready.push_back(Lease {
            key,
            name: format!("job{job}"),
            command: command.to_owned(),
            profile,
            ..Lease::default()
        });
        key
    }
}

impl Buffer {
    fn ingest(&mut self, request: &SyncRequest) {
        self.syncs += 1;
        self.latest = self.latest.max(request.sequence);
        self.left |= request.leaving;
        for running in &request.running {
            self.running.insert(running.key);
        }
        for finished in &request.finished {
            self.leased.remove(&finished.key);
            if self.finished.insert(finished.key, finished.clone()).is_none() {
                let next = self.chain.pop_front();
                self.ready.extend(next);
            }
        }
        for key in &request.returned {
            let lease = self.leased.remove(key);
            if lease.is_some() {
                self.returned.push(*key);
            }
            if !self.closed {
                self.ready.extend(lease);
            }
        }
    }

    fn answer(&mut self, request: &SyncRequest) -> SyncResponse {
        let wanted = u32::try_from(request.want.free.cpus).unwrap_or(0).saturating_add(request.want.ahead);
        let count = wanted.min(request.want.limit) as usize;
        let leases: Vec<Lease> = self.ready.drain(..count.min(self.ready.len())).collect();
        self.leased.extend(leases.iter().map(|lease| (lease.key, lease.clone())));
        let held = request.queued.iter().chain(request.running.iter().map(|running| &running.key));
        let cancel = held.filter(|key| self.cancel.contains(key)).copied().collect();
        let settled = self.ready.is_empty() && self.leased.is_empty() && self.chain.is_empty() && leases.is_empty();
        SyncResponse {
            sequence: request.sequence,
            profiles: if leases.is_empty() { Vec::new() } else { self.profiles.clone() },
            leases,
            cancel,
            directive: if settled { RunnerDirective::Complete } else { RunnerDirective::Continue },
            lease_ms: 120_000,
            ..SyncResponse::default()
        }
    }

    fn refusal(&mut self) -> Option<LinkError> {
        if self.unreachable {
            return Some(LinkError::Unreachable("the cable is cut".to_owned()));
        }
        std::mem::take(&mut self.forgotten).then_some(LinkError::Unknown)
    }
}

impl ServerLink for FakeServer {
    async fn register(&self, _request: &RegisterRequest) -> Result<RegisterResponse, LinkError> {
        let mut buffer = self.buffer();
        if let Some(error) = buffer.refusal() {
            return Err(error);
        }
        buffer.registrations += 1;
        Ok(RegisterResponse { runner: buffer.registrations, version: String::new(), lease_ms: 120_000 })
    }

    async fn sync(&self, _runner: i64, request: &SyncRequest) -> Result<SyncResponse, LinkError> {
        let mut first = true;
        let deadline = tokio::time::Instant::now() + Duration::from_millis(request.wait_ms);
        loop {
            let changed = self.inner.changed.notified();
            {
                let mut buffer = self.buffer();
                if let Some(error) = buffer.refusal() {
                    return Err(error);
                }
                if first {
                    buffer.ingest(request);
                }
                let overtaken = buffer.latest > request.sequence;
                let response = if overtaken { SyncResponse::default() } else { buffer.answer(request) };
                let is_news = !response.leases.is_empty()
                    || !response.cancel.is_empty()
                    || response.directive != RunnerDirective::Continue
                    || overtaken
                    || request.leaving
                    || (first && !(request.finished.is_empty() && request.returned.is_empty()));
                if is_news || tokio::time::Instant::now() >= deadline {
                    drop(buffer);
                    if first {
                        self.inner.changed.notify_waiters();
                    }
                    return Ok(SyncResponse { sequence: request.sequence, lease_ms: 120_000, ..response });
                }
            }
            if std::mem::take(&mut first) {
                self.inner.changed.notify_waiters();
            }
            let _ = tokio::time::timeout_at(deadline, changed).await;
        }
    }
}
