//! `/v1/slurm_stats`: what Slurm's accounting said of steps.

use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Extension, Json, Router};
use serde::Deserialize;
use torc_api::api::Page;
use torc_api::document::DEFAULT_NAMESPACE;
use torc_api::slurm_stats::{SlurmStats, SlurmStatsRequest};
use torc_core::ids::{JobId, WorkflowId};
use torc_store::SlurmStatsQuery;

use super::access::{one_of_theirs, require_theirs};
use super::error::{ApiError, ApiResult};
use super::{App, Caller};
use crate::engine::EngineError;

pub(super) fn router() -> Router<App> {
    Router::new().route("/v1/slurm_stats", get(list).post(record))
}

#[derive(Deserialize)]
struct StatsQuery {
    namespace: Option<String>,
    workflow_id: Option<String>,
    job_id: Option<String>,
    run_id: Option<i32>,
    attempt_id: Option<i32>,
    limit: Option<u32>,
    cursor: Option<String>,
}

async fn list(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    query: Result<Query<StatsQuery>, QueryRejection>,
) -> ApiResult<Page<SlurmStats>> {
    let Query(query) = query?;
    let namespace = query.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
    let workflow = match &query.workflow_id {
        Some(workflow) => Some(one_of_theirs(&app, &caller, (namespace, workflow)).await?),
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
    Extension(caller): Extension<Caller>,
    request: Result<Json<SlurmStatsRequest>, JsonRejection>,
) -> Result<StatusCode, ApiError> {
    let Json(request) = request?;
    let stats = request.into_items();
    let workflows: Vec<WorkflowId> = stats.iter().map(|stats| WorkflowId(stats.workflow)).collect();
    require_theirs(&app, &caller, &workflows).await?;
    app.engine.record_slurm_stats(stats).await?;
    Ok(StatusCode::NO_CONTENT)
}
