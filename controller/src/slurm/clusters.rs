//! Slurm clusters: how each is called, its partitions, and whether it answers.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use torc_api::cluster::{LOCAL, Partition as DetectedPartition, SlurmClusterSpec, SlurmClusterStatus};
use torc_api::condition::{Condition, ConditionReason, ConditionStatus, ConditionType};
use torc_core::planning::partition::PartitionLimits;
use torc_core::time::rfc3339;
use torc_slurm::call::CommandSpec;
use torc_slurm::error::SlurmError;
use torc_slurm::exec::{Answer, Slurm};
use torc_slurm::{partitions, scontrol, sinfo};

use super::login::prefix;
use crate::clock::{self, InstantSource};
use crate::metrics::Metrics;

/// Age at which detected partitions are detected again.
const PARTITIONS_INTERVAL: Duration = Duration::from_secs(600);
/// Time without an answer after which a Slurm is reported as unreachable.
const UNREACHABLE_AFTER: Duration = Duration::from_secs(60);

/// The connection to a Slurm cluster: its description, its programs and its last answers.
pub(super) struct ClusterConnection {
    pub spec: SlurmClusterSpec,
    slurm: Slurm,
    metrics: Arc<Metrics>,
    instants: InstantSource,
    detected: Option<(Vec<DetectedPartition>, Instant)>,
    partitions: Vec<PartitionLimits>,
    last_contact_ms: Option<i64>,
    /// The time of the first of the latest unanswered calls, and the last error.
    silence: Option<(Instant, String)>,
}

impl ClusterConnection {
    fn new(
        spec: SlurmClusterSpec,
        replaced: &BTreeMap<String, String>,
        ssh_secrets: Option<&Path>,
        metrics: Arc<Metrics>,
        instants: InstantSource,
    ) -> Self {
        let prefix = prefix(&spec.command_prefix, spec.secret_name.as_deref(), ssh_secrets);
        let slurm = Slurm::new(&prefix).replaced_by(|name| replaced.get(name).cloned());
        Self {
            spec,
            slurm,
            metrics,
            instants,
            detected: None,
            partitions: Vec::new(),
            last_contact_ms: None,
            silence: None,
        }
    }

    /// Returns the current instant.
    pub fn now(&self) -> Instant {
        (self.instants)()
    }

    /// Makes a call and records whether Slurm answered.
    pub async fn ask(&mut self, call: &CommandSpec) -> Result<Answer, SlurmError> {
        let start = Instant::now();
        let answer = self.slurm.ask(call).await;
        self.metrics.slurm_call(call.tool, start.elapsed());
        match &answer {
            Err(error @ (SlurmError::NoAnswer { .. } | SlurmError::Missing { .. })) => {
                tracing::warn!(%error, "Slurm did not answer");
                let since = self.silence.take().map_or_else(|| self.now(), |(since, _)| since);
                self.silence = Some((since, error.to_string()));
            }
            Ok(_) | Err(SlurmError::Refused { .. }) => {
                self.silence = None;
                self.last_contact_ms = Some(clock::now().wall_ms);
            }
        }
        answer
    }

    /// Writes a file on the machine of Slurm's commands, readable only by its owner.
    pub async fn put(&self, path: &str, content: &str) -> Result<(), SlurmError> {
        self.slurm.write_file(path, content).await
    }

    /// Creates a folder on the machine of Slurm's commands.
    pub async fn make_folder(&self, path: &str) -> Result<(), SlurmError> {
        self.slurm.make_folder(path).await
    }

    /// Returns the partitions that are known without a call.
    pub fn known_partitions(&self) -> Option<Vec<PartitionLimits>> {
        let is_known = !self.spec.partitions.is_empty() || self.detected.is_some();
        is_known.then(|| self.partitions.clone())
    }

    /// Removes a file on the machine of Slurm's commands.
    pub async fn remove(&self, path: &str) -> Result<(), SlurmError> {
        self.slurm.remove_file(path).await
    }

    /// Returns the last error of a Slurm that has not answered for a while.
    pub fn unreachable(&self) -> Option<String> {
        let (since, message) = self.silence.as_ref()?;
        (self.now().duration_since(*since) >= UNREACHABLE_AFTER).then(|| message.clone())
    }

    /// Returns the partitions: as configured, or as detected. `None` before the first detection.
    pub async fn partitions(&mut self) -> Option<&[PartitionLimits]> {
        let now = self.now();
        let is_fresh = self.detected.as_ref().is_some_and(|(_, at)| now.duration_since(*at) < PARTITIONS_INTERVAL);
        if self.spec.partitions.is_empty() && !is_fresh {
            self.detect().await;
        }
        let written = &self.spec.partitions;
        let known = if written.is_empty() { &self.detected.as_ref()?.0 } else { written };
        if self.partitions.len() != known.len() {
            self.partitions = known.iter().filter_map(|one| PartitionLimits::try_from(one).ok()).collect();
        }
        Some(&self.partitions)
    }

    /// Detects the partitions. Without an answer, the earlier ones stay.
    pub async fn detect(&mut self) {
        let rules = match self.ask(&scontrol::partitions()).await {
            Ok(answer) => scontrol::read_partitions(&answer.text),
            Err(_) => return,
        };
        let Ok(answer) = self.ask(&sinfo::nodes()).await else { return };
        let Ok(nodes) = sinfo::read_nodes(&answer.text) else { return };
        self.detected = Some((partitions::detect(&rules, &nodes), self.now()));
        self.partitions.clear();
    }

    /// Returns the status for users.
    pub fn status(&self) -> SlurmClusterStatus {
        let found = self.detected.as_ref().map(|(found, _)| found.clone()).unwrap_or_default();
        let count = if self.spec.partitions.is_empty() { found.len() } else { self.spec.partitions.len() };
        let (status, reason, message) = match (&self.silence, self.last_contact_ms) {
            (Some((_, message)), _) => (ConditionStatus::False, ConditionReason::Unreachable, message.clone()),
            (None, Some(_)) => (ConditionStatus::True, ConditionReason::Answered, String::new()),
            (None, None) => (ConditionStatus::Unknown, ConditionReason::NotAsked, String::new()),
        };
        SlurmClusterStatus {
            last_contact_time: self.last_contact_ms.map(rfc3339),
            partition_count: i64::try_from(count).ok(),
            partitions: found,
            conditions: vec![Condition {
                last_transition_time: rfc3339(self.last_contact_ms.unwrap_or_default()),
                ..Condition::new(ConditionType::Ready, status, reason, message)
            }],
        }
    }
}

/// The connections to all Slurm clusters that this process has used.
pub(super) struct Clusters {
    known: HashMap<String, ClusterConnection>,
    replaced: BTreeMap<String, String>,
    ssh_secrets: Option<PathBuf>,
    metrics: Arc<Metrics>,
    instants: InstantSource,
}

impl Clusters {
    pub fn new(
        replaced: BTreeMap<String, String>,
        ssh_secrets: Option<PathBuf>,
        metrics: Arc<Metrics>,
        instants: InstantSource,
    ) -> Self {
        Self { known: HashMap::new(), replaced, ssh_secrets, metrics, instants }
    }

    /// Returns a cluster as it is described now. The Slurm of this machine needs no description.
    pub fn get(&mut self, name: &str, described: Option<&SlurmClusterSpec>) -> Option<&mut ClusterConnection> {
        let spec = match described {
            Some(spec) => spec.clone(),
            None if name == LOCAL => SlurmClusterSpec::default(),
            None => return None,
        };
        let is_current = self.known.get(name).is_some_and(|cluster| cluster.spec == spec);
        if !is_current {
            let secrets = self.ssh_secrets.as_deref();
            let (metrics, instants) = (Arc::clone(&self.metrics), Arc::clone(&self.instants));
            let cluster = ClusterConnection::new(spec, &self.replaced, secrets, metrics, instants);
            self.known.insert(name.to_owned(), cluster);
        }
        self.known.get_mut(name)
    }

    /// Returns the status of a cluster that was used.
    pub fn status(&self, name: &str) -> Option<SlurmClusterStatus> {
        self.known.get(name).map(ClusterConnection::status)
    }
}

#[cfg(test)]
mod tests;
