//! Slurm clusters that somebody has described.

use torc_api::api::ApplyOutcome;
use torc_api::cluster::LOCAL;
use torc_api::document::SlurmClusterDocument;
use torc_api::event_reason::EventReason;
use torc_api::quantity::count;

use crate::engine::tx::Tx;
use crate::engine::{CommandError, Engine};
use crate::ids::WorkflowId;
use crate::rows::ClusterRow;

impl Engine {
    /// Makes a cluster match its document.
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
        self.wake_version += 1;
        Ok(outcome)
    }

    /// Forgets a cluster. One that allocations live in is still needed.
    pub fn delete_cluster(&mut self, name: &str, tx: &mut Tx) -> Result<(), CommandError> {
        if !self.slurm.clusters.contains_key(name) {
            return Err(CommandError::NoCluster(name.to_owned()));
        }
        let live = self.workflows.values().flat_map(|workflow| workflow.allocations.iter());
        let live = live.filter(|row| row.cluster == name).count();
        if live > 0 {
            let verb = if live == 1 { "lives" } else { "live" };
            let live = count(live, "allocation");
            let message = format!("{live} {verb} in SlurmCluster '{name}'; cancel their workflows first");
            return Err(CommandError::Conflict(message));
        }
        self.slurm.clusters.remove(name);
        tx.changes.cluster_removed(name);
        tx.event(None, EventReason::ClusterDeleted, format!("SlurmCluster '{name}' was deleted"));
        Ok(())
    }

    /// Clusters that somebody has described, by name.
    pub fn clusters(&self) -> impl Iterator<Item = &ClusterRow> {
        self.slurm.clusters.values()
    }

    /// A cluster that somebody has described.
    pub fn cluster(&self, name: &str) -> Option<&ClusterRow> {
        self.slurm.clusters.get(name)
    }

    /// Workflows that say they run on a cluster which nobody has described. The Slurm of this machine needs no description.
    pub fn without_cluster(&self) -> Vec<WorkflowId> {
        let lacks = |name: &str| name != LOCAL && !self.slurm.clusters.contains_key(name);
        let live = self.live.iter().filter_map(|id| self.workflows.get(id));
        live.filter(|workflow| workflow.cluster().is_some_and(lacks)).map(|workflow| workflow.id()).collect()
    }
}
