//! The workflows that this process runs, and the facts that it has learned since it started. Not stored.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::WorkflowId;
use crate::planning::partition::PartitionLimits;

/// The workflows that this process was asked to run, and the facts that it has learned from Slurm.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Session {
    workflows: BTreeSet<WorkflowId>,
    /// This process submits allocations. Jobs of Slurm workflows then run in allocations, unless a runner names their
    /// workflow.
    serves_slurm: bool,
    /// Partitions by cluster, as far as the controller has queried them.
    partitions: BTreeMap<String, Vec<PartitionLimits>>,
}

impl Session {
    pub(super) fn contains(&self, id: WorkflowId) -> bool {
        self.workflows.contains(&id)
    }

    pub(super) fn workflows(&self) -> &BTreeSet<WorkflowId> {
        &self.workflows
    }

    pub(super) fn serves_slurm(&self) -> bool {
        self.serves_slurm
    }

    /// Returns the known partitions of a cluster.
    pub(super) fn partitions(&self, cluster: &str) -> &[PartitionLimits] {
        self.partitions.get(cluster).map_or(&[], Vec::as_slice)
    }

    pub(super) fn add(&mut self, id: WorkflowId) {
        self.workflows.insert(id);
    }

    pub(super) fn remove(&mut self, id: WorkflowId) {
        self.workflows.remove(&id);
    }

    pub(super) fn serve_slurm(&mut self) {
        self.serves_slurm = true;
    }

    pub(super) fn set_partitions(&mut self, cluster: String, partitions: Vec<PartitionLimits>) {
        self.partitions.insert(cluster, partitions);
    }

    /// Takes over the session of an earlier state that was dropped and loaded again. `is_there`: whether a workflow
    /// still exists.
    pub(super) fn resume(&mut self, before: &Self, is_there: impl Fn(WorkflowId) -> bool) {
        self.workflows.extend(before.workflows.iter().filter(|id| is_there(**id)));
        self.serves_slurm = before.serves_slurm;
        self.partitions.clone_from(&before.partitions);
    }
}
