//! Explanations of the state of jobs and workflows, from the engine's state and the stored attempts.

use torc_api::explain::{JobExplanation, WorkflowExplanation};
use torc_api::filter::ResultFilter;
use torc_core::explain::EndedAttempt;
use torc_core::ids::WorkflowId;
use torc_store::ResultView;

use super::{EngineError, EngineHandle};

/// Maximum number of attempts that an explanation reads.
const ATTEMPTS: u32 = 1_000;

impl EngineHandle {
    /// Explains the state of a job.
    pub async fn explain_job(&self, id: WorkflowId, job: &str) -> Result<JobExplanation, EngineError> {
        let number = self.job_id(id, job).await?;
        let (job, limit) = (Some(number.0), Some(ATTEMPTS));
        let filter = ResultFilter { workflow: Some(id.0), job, limit, ..ResultFilter::default() };
        let mut results: Vec<ResultView> = self.store.results(&filter).await?.items;
        results.sort_by_key(|view| (view.result.run, view.result.attempt));
        let now = crate::clock::now();
        self.read(move |engine| {
            let attempts: Vec<EndedAttempt<'_>> =
                results.iter().map(|view| EndedAttempt { result: &view.result, node: view.host.as_deref() }).collect();
            Ok(engine.explain_job(id, &number.0.to_string(), &attempts, now)?)
        })
        .await
    }

    /// Explains the state of a workflow.
    pub async fn explain_workflow(&self, id: WorkflowId) -> Result<WorkflowExplanation, EngineError> {
        let now = crate::clock::now();
        self.read(move |engine| Ok(engine.explain_workflow(id, now)?)).await
    }
}
