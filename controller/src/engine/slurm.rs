//! Slurm allocations and clusters.

use std::sync::Arc;

use tokio::sync::Notify;
use torc_api::allocation::{Allocation, OrphanReport};
use torc_api::api::{ClusterApplied, Page, SlurmCluster};
use torc_api::document::{Document, SlurmClusterDocument};
use torc_api::filter::AllocationFilter;
use torc_api::recovery::SyncStatusRequest;
use torc_api::wire::RunnerScope;
use torc_core::engine::{Activity, AllocationKey, AllocationSummary, Observation, PoolDemand, allocation_view};
use torc_core::ids::{JobId, WorkflowId};
use torc_core::planning::allocation_plan::WorkflowDemand;
use torc_core::planning::partition::PartitionLimits;
use torc_core::rows::{AllocationRow, ClusterRow};
use torc_core::time::rfc3339;

use super::{EngineError, EngineHandle, unwritable};
use crate::metrics::Metrics;
use crate::{audit, clock};

impl EngineHandle {
    /// Returns a page of allocations.
    pub async fn allocations(&self, filter: &AllocationFilter<i64>) -> Result<Page<Allocation>, EngineError> {
        let page = self.store.allocations(filter).await?;
        let (names, _) = self.names().await?;
        let named = |id: i64| names.get(&id).map_or("", String::as_str);
        let items = page.items.iter().map(|row| allocation_view(row, named(row.workflow.0))).collect();
        Ok(Page { items, next: page.next })
    }

    /// Creates or updates a cluster from its document.
    pub async fn apply_cluster(&self, document: SlurmClusterDocument) -> Result<ClusterApplied, EngineError> {
        let mut problems = torc_api::validate::validate(&Document::SlurmCluster(document.clone()));
        problems.retain(torc_api::problem::Problem::is_error);
        if !problems.is_empty() {
            return Err(EngineError::invalid(problems));
        }
        let name = document.metadata.name.clone();
        audit::set_object(format!("slurmclusters/{name}"));
        let apply = move |engine: &mut torc_core::engine::Engine, tx: &mut _| {
            engine.apply_cluster(&document, tx).map_err(unwritable)
        };
        let outcome = self.write(apply).await?;
        Ok(ClusterApplied { name, outcome })
    }

    pub async fn delete_cluster(&self, name: &str) -> Result<(), EngineError> {
        let name = name.to_owned();
        self.write(move |engine, tx| Ok(engine.delete_cluster(&name, tx)?)).await
    }

    /// Returns the clusters that documents describe.
    pub async fn clusters(&self) -> Result<Vec<SlurmCluster>, EngineError> {
        let rows: Vec<ClusterRow> = self.read(|engine| Ok(engine.clusters().cloned().collect())).await?;
        rows.into_iter().map(cluster_view).collect()
    }

    /// Lets this process submit allocations.
    pub(crate) async fn serve_slurm(&self) -> Result<(), EngineError> {
        self.write(|engine, _| {
            engine.serve_slurm();
            Ok(())
        })
        .await
    }

    /// Returns the notification that follows every change.
    pub(crate) fn changed(&self) -> Arc<Notify> {
        Arc::clone(&self.changed)
    }

    pub(crate) fn shared_metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.metrics)
    }

    /// Returns the key that distinguishes this store from others.
    pub(crate) async fn identity(&self) -> Result<String, EngineError> {
        self.read(|engine| Ok(engine.identity().to_owned())).await
    }

    /// Returns the demand of workflows for allocations, and the allocations that they have.
    pub(crate) async fn slurm_needs(&self, serves: Option<RunnerScope>) -> Result<Vec<WorkflowDemand>, EngineError> {
        self.read(move |engine| Ok(engine.slurm_needs(serves.as_ref(), clock::now()))).await
    }

    /// Returns the demand for runners outside of Slurm.
    pub(crate) async fn demands(&self) -> Result<Vec<PoolDemand>, EngineError> {
        self.read(|engine| Ok(engine.demands())).await
    }

    /// Returns whether runners are at work or a timer is pending, and the last event.
    pub async fn activity(&self, scope: RunnerScope) -> Result<Activity, EngineError> {
        self.read(move |engine| Ok(engine.activity(&scope))).await
    }

    /// Returns the number of allocations that have not ended, of a workflow or of all.
    pub async fn live_allocations(&self, workflow: Option<WorkflowId>) -> Result<usize, EngineError> {
        self.read(move |engine| Ok(engine.live_allocations(workflow))).await
    }

    /// Applies what Slurm reports about allocations.
    pub(crate) async fn observe_allocations(&self, observations: Vec<Observation>) -> Result<(), EngineError> {
        self.write(move |engine, tx| {
            engine.observe_allocations(&observations, tx);
            Ok(())
        })
        .await
    }

    /// Applies what Slurm and the caller's machine report about a workflow's allocations and runners. A dry run only returns the
    /// report.
    pub(crate) async fn sync_status(
        &self,
        observations: Vec<Observation>,
        workflow: WorkflowId,
        request: SyncStatusRequest,
    ) -> Result<OrphanReport, EngineError> {
        if request.dry_run {
            let find = move |engine: &torc_core::engine::Engine| {
                let mut report = engine.orphan_report(&engine.find_orphans(&observations), Some(workflow));
                let found = engine.find_lost_runners(workflow, &request, &report.runners)?;
                engine.report_lost_runners(workflow, &found, &mut report);
                Ok(report)
            };
            return self.read(find).await;
        }
        self.write(move |engine, tx| {
            // The report is made before the state changes: afterwards, ended allocations are no longer in it.
            let mut report = engine.orphan_report(&engine.find_orphans(&observations), Some(workflow));
            let found = engine.find_lost_runners(workflow, &request, &report.runners)?;
            engine.report_lost_runners(workflow, &found, &mut report);
            engine.observe_allocations(&observations, tx);
            engine.mark_runners_lost(workflow, &found, tx);
            Ok(report)
        })
        .await
    }

    /// Records allocations that are about to be submitted, and the progress of the actions that request them.
    pub(crate) async fn record_submissions(
        &self,
        workflow: WorkflowId,
        rows: Vec<AllocationRow>,
        begun: Vec<JobId>,
        executed: Vec<JobId>,
    ) -> Result<Vec<AllocationRow>, EngineError> {
        self.write(move |engine, tx| {
            begun.iter().for_each(|action| engine.begin_action(workflow, *action, tx));
            executed.iter().for_each(|action| engine.skip_action(workflow, *action, tx));
            Ok(engine.record_submissions(workflow, rows, tx)?)
        })
        .await
    }

    pub(crate) async fn record_sbatch_call(&self, key: AllocationKey) -> Result<Option<AllocationRow>, EngineError> {
        self.write(move |engine, tx| Ok(engine.record_sbatch_call(key, tx))).await
    }

    pub(crate) async fn allocation_submitted(&self, key: AllocationKey, number: String) -> Result<bool, EngineError> {
        self.write(move |engine, tx| Ok(engine.allocation_submitted(key, &number, tx))).await
    }

    pub(crate) async fn allocation_not_submitted(
        &self,
        key: AllocationKey,
        message: String,
        maybe_delivered: bool,
    ) -> Result<(), EngineError> {
        self.write(move |engine, tx| {
            engine.allocation_not_submitted(key, &message, maybe_delivered, tx);
            Ok(())
        })
        .await
    }

    pub(crate) async fn cancel_allocations(&self, keys: Vec<AllocationKey>) -> Result<Vec<AllocationRow>, EngineError> {
        self.write(move |engine, tx| Ok(engine.cancel_allocations(&keys, tx))).await
    }

    /// Stores the partitions of a cluster, which limit what a retry may request.
    pub(crate) async fn set_known_partitions(
        &self,
        cluster: String,
        partitions: Vec<PartitionLimits>,
    ) -> Result<(), EngineError> {
        self.write(move |engine, _| {
            engine.set_partitions(cluster, partitions);
            Ok(())
        })
        .await
    }

    pub(crate) async fn set_allocation_summary(
        &self,
        workflow: WorkflowId,
        summary: AllocationSummary,
    ) -> Result<(), EngineError> {
        self.write(move |engine, tx| {
            engine.set_allocation_summary(workflow, summary, tx);
            Ok(())
        })
        .await
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
