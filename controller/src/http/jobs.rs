//! Jobs and results of a workflow, a page at a time.

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::routing::get;
use axum::{Json, Router};
use serde::Deserialize;
use torc_api::api::{Job, JobResult, Page};
use torc_api::document::DEFAULT_NAMESPACE;
use torc_api::explain::JobExplanation;
use torc_api::state::JobState;
use torc_store::{JobQuery, ResultQuery};

use super::error::ApiResult;
use super::{App, Namespace};
use crate::engine::EngineError;

pub(super) fn router() -> Router<App> {
    Router::new()
        .route("/v1/workflows/{workflow}/jobs", get(list))
        .route("/v1/workflows/{workflow}/jobs/{job}", get(show))
        .route("/v1/workflows/{workflow}/jobs/{job}/explain", get(explain))
        .route("/v1/workflows/{workflow}/results", get(results))
}

#[derive(Deserialize)]
struct JobsQuery {
    namespace: Option<String>,
    status: Option<String>,
    name: Option<String>,
    contains: Option<String>,
    limit: Option<u32>,
    cursor: Option<String>,
}

async fn list(
    State(app): State<App>,
    Path(workflow): Path<String>,
    query: Result<Query<JobsQuery>, QueryRejection>,
) -> ApiResult<Page<Job>> {
    let Query(query) = query?;
    let namespace = query.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
    let query = JobQuery {
        workflow: Some(app.engine.find((namespace, &workflow)).await?),
        states: states(query.status.as_deref())?,
        name: query.name,
        name_contains: query.contains,
        cursor: query.cursor,
        limit: query.limit.unwrap_or_default(),
    };
    Ok(Json(app.engine.jobs(&query).await?))
}

async fn show(
    State(app): State<App>,
    Path((workflow, job)): Path<(String, String)>,
    Query(namespace): Query<Namespace>,
) -> ApiResult<Job> {
    Ok(Json(app.engine.job((namespace.name(), &workflow), &job).await?))
}

async fn explain(
    State(app): State<App>,
    Path((workflow, job)): Path<(String, String)>,
    Query(namespace): Query<Namespace>,
) -> ApiResult<JobExplanation> {
    Ok(Json(app.engine.explain_job((namespace.name(), &workflow), &job).await?))
}

#[derive(Deserialize)]
struct ResultsQuery {
    namespace: Option<String>,
    job: Option<String>,
    run: Option<i32>,
    status: Option<String>,
    #[serde(default)]
    failed: bool,
    #[serde(rename = "returnCode")]
    return_code: Option<i32>,
    #[serde(default)]
    latest: bool,
    limit: Option<u32>,
    cursor: Option<String>,
}

async fn results(
    State(app): State<App>,
    Path(workflow): Path<String>,
    query: Result<Query<ResultsQuery>, QueryRejection>,
) -> ApiResult<Page<JobResult>> {
    let Query(query) = query?;
    let namespace = query.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
    let id = app.engine.find((namespace, &workflow)).await?;
    let job = match &query.job {
        Some(job) => Some(app.engine.job_id(id, job).await?),
        None => None,
    };
    let query = ResultQuery {
        workflow: Some(id),
        job,
        run: query.run,
        states: states(query.status.as_deref())?,
        failed_only: query.failed,
        return_code: query.return_code,
        latest_only: query.latest,
        cursor: query.cursor,
        limit: query.limit.unwrap_or_default(),
    };
    Ok(Json(app.engine.results(&query).await?))
}

/// `failed,terminated` as states.
fn states(list: Option<&str>) -> Result<Vec<JobState>, EngineError> {
    let names = list.unwrap_or_default().split(',').map(str::trim).filter(|name| !name.is_empty());
    names.map(|name| name.parse().map_err(|error: String| EngineError::bad_request(error))).collect()
}
