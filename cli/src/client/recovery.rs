//! Routes of recovery, and of the submission of workflows and allocations.

use torc_api::allocation::{Allocation, OrphanReport};
use torc_api::api::{AffectedJobs, Workflow};
use torc_api::recovery::{
    ClassifyRequest, CorrectResourcesReport, CorrectResourcesRequest, NodesScheduled, RecoverReport, RecoverRequest,
    RegenerateReport, RegenerateRequest, ScheduleNodesRequest, SyncStatusRequest,
};

use super::{Client, ClientError};

impl Client {
    /// Finds attempts that were lost with their allocations or runners.
    pub async fn sync_status(&self, workflow: &str, request: &SyncStatusRequest) -> Result<OrphanReport, ClientError> {
        self.post(&["workflows", workflow, "sync-status"], request).await
    }

    /// Retries failed jobs with adjusted resources.
    pub async fn recover(&self, workflow: &str, request: &RecoverRequest) -> Result<RecoverReport, ClientError> {
        self.post(&["workflows", workflow, "recover"], request).await
    }

    /// Re-plans schedulers and allocations.
    pub async fn regenerate(
        &self,
        workflow: &str,
        request: &RegenerateRequest,
    ) -> Result<RegenerateReport, ClientError> {
        self.post(&["workflows", workflow, "regenerate"], request).await
    }

    /// Corrects resource requirements by observed usage.
    pub async fn correct_resources(
        &self,
        workflow: &str,
        request: &CorrectResourcesRequest,
    ) -> Result<CorrectResourcesReport, ClientError> {
        self.post(&["workflows", workflow, "correct-resources"], request).await
    }

    /// Decides about failed jobs that need a manual decision.
    pub async fn classify(&self, workflow: &str, request: &ClassifyRequest) -> Result<AffectedJobs, ClientError> {
        self.post(&["workflows", workflow, "classify"], request).await
    }

    /// Requests Slurm allocations of a scheduler.
    pub async fn schedule_nodes(
        &self,
        workflow: &str,
        request: &ScheduleNodesRequest,
    ) -> Result<NodesScheduled, ClientError> {
        self.post(&["workflows", workflow, "schedule-nodes"], request).await
    }

    /// Starts a stored workflow.
    pub async fn submit(&self, workflow: &str) -> Result<Workflow, ClientError> {
        self.post(&["workflows", workflow, "submit"], &serde_json::json!({})).await
    }

    /// Returns the pending and running allocations of a workflow.
    pub async fn live_allocations(&self, workflow: &str) -> Result<Vec<Allocation>, ClientError> {
        let mut query = self.in_namespace();
        query.push(("workflow", workflow.to_owned()));
        query.push(("live", "true".to_owned()));
        self.pages(&["allocations"], query, None).await
    }
}
