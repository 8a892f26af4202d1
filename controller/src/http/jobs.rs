//! Jobs and results of a workflow, a page at a time.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Deserialize;
use torc_api::api::{Job, JobResult, Page};
use torc_api::explain::JobExplanation;
use torc_api::state::JobState;
use torc_store::{JobQuery, ResultQuery};

use super::App;
use super::access::Access;
use super::access::Mode::Read;
use super::error::ApiResult;
use super::extract::{Param, Query, TargetWorkflow};
use super::route::Route;
use crate::engine::EngineError;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/v1/workflows/{workflow}/jobs", list).access(Access::Workflow(Read)).summary("Jobs of a workflow"),
        Route::get("/v1/workflows/{workflow}/jobs/{job}", show)
            .access(Access::Workflow(Read))
            .summary("One job, by name or number, with its dependencies"),
        Route::get("/v1/workflows/{workflow}/jobs/{job}/explain", explain)
            .access(Access::Workflow(Read))
            .summary("Why a job is where it is"),
        Route::get("/v1/workflows/{workflow}/results", results)
            .access(Access::Workflow(Read))
            .summary("Attempts that ended"),
    ]
}

/// The job of a path, by name or number.
#[derive(Deserialize)]
pub(super) struct JobParam {
    pub job: String,
}

#[derive(Deserialize, JsonSchema)]
struct JobsQuery {
    /// States, separated by commas.
    status: Option<String>,
    /// The exact name.
    name: Option<String>,
    /// A part of the name.
    contains: Option<String>,
    /// The most items of one page.
    limit: Option<u32>,
    /// `next` of the page before.
    cursor: Option<String>,
}

async fn list(
    State(app): State<App>,
    TargetWorkflow(id): TargetWorkflow,
    Query(query): Query<JobsQuery>,
) -> ApiResult<Page<Job>> {
    let query = JobQuery {
        workflow: Some(id),
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
    TargetWorkflow(id): TargetWorkflow,
    Param(JobParam { job }): Param<JobParam>,
) -> ApiResult<Job> {
    Ok(Json(app.engine.job(id, &job).await?))
}

async fn explain(
    State(app): State<App>,
    TargetWorkflow(id): TargetWorkflow,
    Param(JobParam { job }): Param<JobParam>,
) -> ApiResult<JobExplanation> {
    Ok(Json(app.engine.explain_job(id, &job).await?))
}

#[derive(Deserialize, JsonSchema)]
struct ResultsQuery {
    /// A job, by name or number.
    job: Option<String>,
    /// A run.
    run: Option<i32>,
    /// States, separated by commas.
    status: Option<String>,
    /// `true` for attempts that did not succeed.
    #[serde(default)]
    failed: bool,
    /// An exit code.
    #[serde(rename = "returnCode")]
    return_code: Option<i32>,
    /// `true` for the last attempt of each job.
    #[serde(default)]
    latest: bool,
    /// The most items of one page.
    limit: Option<u32>,
    /// `next` of the page before.
    cursor: Option<String>,
}

async fn results(
    State(app): State<App>,
    TargetWorkflow(id): TargetWorkflow,
    Query(query): Query<ResultsQuery>,
) -> ApiResult<Page<JobResult>> {
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
