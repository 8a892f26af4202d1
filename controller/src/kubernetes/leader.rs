//! Leader election among several servers, with a Lease.
//!
//! The Lease names the leader, but the store decides (`torc_store::Leader`): the writer's epoch rises with every change
//! of the leader, and a server with a lower epoch cannot write. A leader that cannot reach the API server therefore
//! keeps serving its runners. It only stops actions that the store cannot undo: before each call of Slurm or
//! Kubernetes, it checks with its own clock that no other server can hold the lease.

mod term;

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, PostParams};
use tokio_util::sync::CancellationToken;
use torc_store::Leader;

use super::log_once::{LogOnce, explained};
use crate::clock;
use crate::leadership::Leadership;

use term::{LEASE_SECONDS, LeaseRecord, LeaseStep, RETRY_INTERVAL, decide};

/// Timeout of an API call.
const LEASE_CALL_TIMEOUT: Duration = Duration::from_secs(4);

/// A candidate in the leader election, and the holder of the Lease after it has won.
pub(crate) struct Candidate {
    leases: Api<Lease>,
    name: String,
    /// Unique among all processes, including earlier ones of the same name.
    identity: String,
    /// The lease when it last changed, and the local time at which that was seen.
    seen: Option<(Lease, u64)>,
}

impl Candidate {
    /// Returns a candidate. `client` must not retry calls: a late renewal is worse than none.
    pub fn new(client: kube::Client, namespace: &str, name: &str, who: &str) -> Self {
        let identity = format!("{who}_{:08x}", rand::random::<u32>());
        Self { leases: Api::namespaced(client, namespace), name: name.to_owned(), identity, seen: None }
    }

    /// Waits until this process leads. Returns the leader, whose epoch is higher than any that the store has seen, and
    /// the local time in milliseconds at which the lease was requested.
    pub async fn win(&mut self, database: &Path, standing_by: impl Fn(&str)) -> (Leader, u64) {
        let mut logged = String::new();
        let mut log_once = LogOnce::default();
        loop {
            let asked = clock::now().mono_ms;
            match self.attempt(database).await {
                Ok(Some(epoch)) => return (Leader { epoch, holder: self.identity.clone() }, asked),
                Ok(None) => {
                    let holder = self.record().map_or_else(String::new, |record| record.holder);
                    standing_by(&holder);
                    if holder != logged {
                        tracing::info!(holder, "standing by");
                        logged = holder;
                    }
                }
                Err(said) => {
                    standing_by("");
                    if log_once.should_log(&said) {
                        tracing::warn!(error = said, "lease was not acquired");
                    }
                }
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    /// Tries once to lead and returns the epoch on success.
    async fn attempt(&mut self, database: &Path) -> Result<Option<i64>, String> {
        self.read_lease().await?;
        let age = self.seen.as_ref().map_or(0, |(_, at)| clock::now().mono_ms.saturating_sub(*at));
        let record = self.record();
        match decide(record.as_ref(), &self.identity, age) {
            LeaseStep::Wait => Ok(None),
            LeaseStep::Take | LeaseStep::Renew => {
                let last = torc_store::last_leader(database).await.map_err(|error| error.to_string())?;
                let epoch = record.map_or(0, |record| record.transitions).max(last.epoch) + 1;
                Ok(self.write(Some(epoch)).await?.then_some(epoch))
            }
        }
    }

    /// Reads the lease and records when it last changed.
    async fn read_lease(&mut self) -> Result<(), String> {
        let found = with_timeout(self.leases.get_opt(&self.name)).await?;
        let known = self.seen.as_ref().and_then(|(lease, _)| lease.metadata.resource_version.clone());
        match found {
            Some(lease) if lease.metadata.resource_version != known => {
                self.seen = Some((lease, clock::now().mono_ms));
            }
            Some(_) => {}
            None => self.seen = None,
        }
        Ok(())
    }

    fn record(&self) -> Option<LeaseRecord> {
        let spec = self.seen.as_ref()?.0.spec.clone().unwrap_or_default();
        Some(LeaseRecord {
            holder: spec.holder_identity.unwrap_or_default(),
            transitions: spec.lease_transitions.map_or(0, i64::from),
            seconds: spec.lease_duration_seconds.unwrap_or(LEASE_SECONDS),
        })
    }

    /// Writes the lease with this process as its holder. Returns false if another server was faster.
    async fn write(&mut self, epoch: Option<i64>) -> Result<bool, String> {
        let now = MicroTime(Timestamp::now());
        let (mut lease, is_new) = match &self.seen {
            Some((lease, _)) => (lease.clone(), false),
            None => (
                Lease {
                    metadata: ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() },
                    ..Lease::default()
                },
                true,
            ),
        };
        let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
        spec.holder_identity = Some(self.identity.clone());
        spec.lease_duration_seconds = Some(LEASE_SECONDS);
        spec.renew_time = Some(now.clone());
        if let Some(epoch) = epoch {
            spec.acquire_time = Some(now);
            spec.lease_transitions = Some(i32::try_from(epoch).unwrap_or(i32::MAX));
        }
        self.put(lease, is_new).await
    }

    async fn put(&mut self, lease: Lease, is_new: bool) -> Result<bool, String> {
        let parameters = PostParams::default();
        let written = match is_new {
            true => tokio::time::timeout(LEASE_CALL_TIMEOUT, self.leases.create(&parameters, &lease)).await,
            // The resource version makes the write fail if another server was faster.
            false => {
                tokio::time::timeout(LEASE_CALL_TIMEOUT, self.leases.replace(&self.name, &parameters, &lease)).await
            }
        };
        match written {
            Ok(Ok(lease)) => {
                self.seen = Some((lease, clock::now().mono_ms));
                Ok(true)
            }
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => Ok(false),
            Ok(Err(error)) => Err(explained(&error)),
            Err(_) => Err("the API server did not answer in time".to_owned()),
        }
    }

    /// Renews the lease until `stop` and then releases it. Returns early when another server holds it.
    pub async fn hold(mut self, leadership: Leadership, stop: CancellationToken) {
        let mut log_once = LogOnce::default();
        loop {
            tokio::select! {
                () = stop.cancelled() => return self.release().await,
                () = tokio::time::sleep(RETRY_INTERVAL) => {}
            }
            let asked = clock::now().mono_ms;
            match self.renew().await {
                Ok(true) => {
                    leadership.renewed(asked);
                    log_once.reset();
                }
                Ok(false) => {
                    tracing::error!("another server leads");
                    return leadership.lose();
                }
                Err(said) if log_once.should_log(&said) => tracing::warn!(error = said, "lease was not renewed"),
                Err(_) => {}
            }
        }
    }

    async fn renew(&mut self) -> Result<bool, String> {
        if self.write(None).await? {
            return Ok(true);
        }
        self.read_lease().await?;
        let is_ours = self.record().is_some_and(|record| record.holder == self.identity);
        if is_ours { self.write(None).await } else { Ok(false) }
    }

    /// Releases the lease, so that the next leader need not wait until it expires.
    async fn release(&mut self) {
        let Some((mut lease, _)) = self.seen.clone() else { return };
        if let Some(spec) = &mut lease.spec {
            spec.holder_identity = None;
            spec.lease_duration_seconds = Some(1);
        }
        if let Err(error) = self.put(lease, false).await {
            tracing::warn!(%error, "lease was not released");
        }
    }
}

async fn with_timeout<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, String> {
    match tokio::time::timeout(LEASE_CALL_TIMEOUT, call).await {
        Ok(answer) => answer.map_err(|error| explained(&error)),
        Err(_) => Err("the API server did not answer in time".to_owned()),
    }
}
