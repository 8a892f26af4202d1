//! Commands about Slurm's allocations and clusters, and questions about them.

use torc_api::allocation::Allocation;
use torc_api::api::{ClusterApplied, Page, SlurmCluster};
use torc_api::document::{Document, SlurmClusterDocument};
use torc_core::engine::allocation_view;
use torc_core::rows::ClusterRow;
use torc_core::time::rfc3339;
use torc_store::AllocationQuery;

use super::{Engine, EngineError, unwritable};

impl Engine {
    /// Allocations, a page at a time.
    pub async fn allocations(&self, query: &AllocationQuery) -> Result<Page<Allocation>, EngineError> {
        let page = self.store.allocations(query).await?;
        let (names, _) = self.names().await?;
        let named = |id: i64| names.get(&id).map_or("", String::as_str);
        let items = page.items.iter().map(|row| allocation_view(row, named(row.workflow.0))).collect();
        Ok(Page { items, next: page.next })
    }

    /// Makes a cluster match its document.
    pub async fn apply_cluster(&self, document: SlurmClusterDocument) -> Result<ClusterApplied, EngineError> {
        let mut problems = torc_api::validate::validate(&Document::SlurmCluster(document.clone()));
        problems.retain(torc_api::problem::Problem::is_error);
        if !problems.is_empty() {
            return Err(EngineError::invalid(problems));
        }
        let name = document.metadata.name.clone();
        let apply = move |state: &mut torc_core::engine::State, recorder: &mut _, now| {
            state.apply_cluster(&document, recorder, now).map_err(unwritable)
        };
        let outcome = self.write(apply).await?;
        Ok(ClusterApplied { name, outcome })
    }

    /// Forgets a cluster.
    pub async fn delete_cluster(&self, name: &str) -> Result<(), EngineError> {
        let name = name.to_owned();
        self.write(move |state, recorder, now| Ok(state.delete_cluster(&name, recorder, now)?)).await
    }

    /// Clusters that somebody has described.
    pub async fn clusters(&self) -> Result<Vec<SlurmCluster>, EngineError> {
        let rows: Vec<ClusterRow> = self.read(|state| Ok(state.clusters().cloned().collect())).await?;
        rows.into_iter().map(cluster_view).collect()
    }
}

fn cluster_view(row: ClusterRow) -> Result<SlurmCluster, EngineError> {
    let document: SlurmClusterDocument = serde_json::from_str(&row.document)
        .map_err(|error| EngineError::internal(format!("the document of '{}' cannot be read: {error}", row.name)))?;
    Ok(SlurmCluster {
        name: row.name,
        generation: row.generation,
        creation_time: Some(rfc3339(row.created_ms)),
        spec: document.spec,
        status: None,
    })
}
