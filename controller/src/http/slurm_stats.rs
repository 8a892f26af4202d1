//! `/v1/slurm_stats`: Slurm's accounting of steps.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;
use torc_api::api::Page;
use torc_api::document::DEFAULT_NAMESPACE;
use torc_api::slurm_stats::{SlurmStats, SlurmStatsRequest};
use torc_core::ids::{JobId, WorkflowId};
use torc_store::SlurmStatsQuery;

use super::access::Access;
use super::access::Mode::{Read, Write};
use super::access::{find_theirs, require_theirs};
use super::error::{ApiError, ApiResult};
use super::extract::{Body, Query};
use super::route::Route;
use super::{App, Caller};
use crate::audit::AuditVerb;
use crate::engine::EngineError;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/v1/slurm_stats", list).access(Access::Member(Read)).summary("Slurm's accounting of steps"),
        Route::post("/v1/slurm_stats", record)
            .access(Access::Member(Write))
            .audit(AuditVerb::RecordSlurmStats)
            .summary("Record Slurm's accounting of steps, one or several; what was recorded before is replaced"),
    ]
}

#[derive(Deserialize, JsonSchema)]
struct StatsQuery {
    /// `default` when absent.
    namespace: Option<String>,
    /// A workflow, by name or number.
    workflow_id: Option<String>,
    /// A job, by number, or by name with its workflow.
    job_id: Option<String>,
    /// A run.
    run_id: Option<i32>,
    /// An attempt.
    attempt_id: Option<i32>,
    /// The most items of one page.
    limit: Option<u32>,
    /// `next` of the page before.
    cursor: Option<String>,
}

async fn list(State(app): State<App>, caller: Caller, Query(query): Query<StatsQuery>) -> ApiResult<Page<SlurmStats>> {
    let namespace = query.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
    let workflow = match &query.workflow_id {
        Some(workflow) => Some(find_theirs(&app, &caller, (namespace, workflow)).await?),
        None => None,
    };
    let job = match (&query.job_id, workflow) {
        (Some(job), Some(workflow)) => Some(app.engine.job_id(workflow, job).await?),
        (Some(job), None) => Some(number(job)?),
        (None, _) => None,
    };
    let query = SlurmStatsQuery {
        workflow,
        job,
        run: query.run_id,
        attempt: query.attempt_id,
        cursor: query.cursor,
        limit: query.limit.unwrap_or_default(),
    };
    let mut page = app.engine.slurm_stats(&query).await?;
    if let Some(theirs) = app.engine.theirs(&caller.grant).await? {
        page.items.retain(|stats| theirs.contains(&WorkflowId(stats.workflow)));
    }
    Ok(Json(page))
}

/// Numbers of jobs are the same in all workflows; names are not.
fn number(job: &str) -> Result<JobId, EngineError> {
    let number = job.parse().map_err(|_| EngineError::bad_request(format!("job '{job}' needs a workflow_id")))?;
    Ok(JobId(number))
}

async fn record(
    State(app): State<App>,
    caller: Caller,
    Body(request): Body<SlurmStatsRequest>,
) -> Result<StatusCode, ApiError> {
    let stats = request.into_items();
    let workflows: Vec<WorkflowId> = stats.iter().map(|stats| WorkflowId(stats.workflow)).collect();
    require_theirs(&app, &caller, &workflows).await?;
    app.engine.record_slurm_stats(stats).await?;
    Ok(StatusCode::NO_CONTENT)
}
