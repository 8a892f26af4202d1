//! Slurm clusters with documents.

use torc_api::api::ApplyOutcome;
use torc_api::document::SlurmClusterDocument;
use torc_api::event_reason::EventReason;
use torc_api::quantity::count;

use crate::engine::tx::Tx;
use crate::engine::{CommandError, Engine};
use crate::rows::ClusterRow;

impl Engine {
    /// Creates or replaces a cluster.
    pub fn apply_cluster(
        &mut self,
        document: &SlurmClusterDocument,
        tx: &mut Tx,
    ) -> Result<ApplyOutcome, serde_json::Error> {
        let text = serde_json::to_string(document)?;
        let name = document.metadata.name.clone();
        let known = self.slurm.clusters.get(&name);
        if known.is_some_and(|row| row.document == text) {
            return Ok(ApplyOutcome::Unchanged);
        }
        let outcome = if known.is_some() { ApplyOutcome::Configured } else { ApplyOutcome::Created };
        let row = ClusterRow {
            name: name.clone(),
            document: text,
            generation: known.map_or(1, |row| row.generation + 1),
            created_ms: known.map_or(tx.now.wall_ms, |row| row.created_ms),
        };
        tx.changes.cluster(&row);
        tx.event(None, EventReason::ClusterConfigured, format!("SlurmCluster '{name}' was applied"));
        self.slurm.clusters.insert(name, row);
        self.runners.wake();
        Ok(outcome)
    }

    /// Deletes a cluster, unless an allocation in it has not ended.
    pub fn delete_cluster(&mut self, name: &str, tx: &mut Tx) -> Result<(), CommandError> {
        if !self.slurm.clusters.contains_key(name) {
            return Err(CommandError::NoCluster(name.to_owned()));
        }
        let live = self.workflows.values().flat_map(|workflow| workflow.allocations.iter());
        let live = live.filter(|row| row.cluster == name).count();
        if live > 0 {
            let (verb, live) = (if live == 1 { "has" } else { "have" }, count(live, "allocation"));
            let message = format!("{live} in SlurmCluster '{name}' {verb} not ended; cancel their workflows first");
            return Err(CommandError::Conflict(message));
        }
        self.slurm.clusters.remove(name);
        tx.changes.cluster_removed(name);
        tx.event(None, EventReason::ClusterDeleted, format!("SlurmCluster '{name}' was deleted"));
        Ok(())
    }

    /// Returns the clusters in the order of their names.
    pub fn clusters(&self) -> impl Iterator<Item = &ClusterRow> {
        self.slurm.clusters.values()
    }

    /// Returns the cluster with a name.
    pub fn cluster(&self, name: &str) -> Option<&ClusterRow> {
        self.slurm.clusters.get(name)
    }
}
