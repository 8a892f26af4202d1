//! Routes of Slurm allocations and clusters.

use reqwest::Method;
use torc_api::allocation::Allocation;
use torc_api::api::{ClusterApplied, SlurmCluster};
use torc_api::document::SlurmClusterDocument;

use super::{Client, ClientError, add};

impl Client {
    /// Returns the allocations of one workflow, or of all.
    pub async fn allocations(
        &self,
        workflow: Option<&str>,
        limit: Option<usize>,
    ) -> Result<Vec<Allocation>, ClientError> {
        let mut query = self.in_namespace();
        add(&mut query, "workflow", workflow.map(str::to_owned).as_ref());
        self.pages(&["allocations"], query, limit).await
    }

    /// Creates or updates a Slurm cluster.
    pub async fn apply_cluster(&self, document: &SlurmClusterDocument) -> Result<ClusterApplied, ClientError> {
        self.post(&["slurmclusters"], document).await
    }

    /// Returns the Slurm clusters.
    pub async fn clusters(&self) -> Result<Vec<SlurmCluster>, ClientError> {
        self.pages(&["slurmclusters"], Vec::new(), None).await
    }

    /// Returns a Slurm cluster.
    pub async fn cluster(&self, name: &str) -> Result<SlurmCluster, ClientError> {
        self.get(&["slurmclusters", name], Vec::new()).await
    }

    /// Deletes a Slurm cluster.
    pub async fn delete_cluster(&self, name: &str) -> Result<(), ClientError> {
        let url = self.url_of(&["slurmclusters", name], &Vec::new());
        self.send(self.request(Method::DELETE, url)).await.map(drop)
    }
}
