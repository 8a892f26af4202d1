//! Lists of jobs and results.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use torc_api::api::{Job, JobResult, Page};
use torc_api::explain::JobExplanation;
use torc_api::filter::{JobFilter, ResultFilter};

use super::App;
use super::access::Access;
use super::access::AccessMode::Read;
use super::error::ApiResult;
use super::extract::{Param, Query, TargetWorkflow};
use super::route::Route;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/v1/workflows/{workflow}/jobs", list)
            .access(Access::Workflow(Read))
            .summary("List the jobs of a workflow"),
        Route::get("/v1/workflows/{workflow}/jobs/{job}", show)
            .access(Access::Workflow(Read))
            .summary("Get a job by name or number, with its dependencies"),
        Route::get("/v1/workflows/{workflow}/jobs/{job}/explain", explain)
            .access(Access::Workflow(Read))
            .summary("Explain the state of a job"),
        Route::get("/v1/workflows/{workflow}/results", results)
            .access(Access::Workflow(Read))
            .summary("List the results of attempts"),
    ]
}

/// The name or number of the job in a path.
#[derive(Deserialize)]
pub(super) struct JobParam {
    pub job: String,
}

async fn list(
    State(app): State<App>,
    TargetWorkflow(id): TargetWorkflow,
    Query(filter): Query<JobFilter>,
) -> ApiResult<Page<Job>> {
    Ok(Json(app.engine.jobs(&JobFilter { workflow: Some(id.0), ..filter }).await?))
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

async fn results(
    State(app): State<App>,
    TargetWorkflow(id): TargetWorkflow,
    Query(filter): Query<ResultFilter>,
) -> ApiResult<Page<JobResult>> {
    let job = match &filter.job {
        Some(job) => Some(app.engine.job_id(id, job).await?.0),
        None => None,
    };
    Ok(Json(app.engine.results(&filter.with_numbers(id.0, job)).await?))
}
