//! `/v1/workflows/{workflow}/remote-workers`: machines reached over SSH.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use torc_api::api::Page;
use torc_api::remote::{RemoteWorker, RemoteWorkersRequest};

use super::App;
use super::access::Access;
use super::access::AccessMode::{Read, Write};
use super::error::{ApiError, ApiResult};
use super::extract::{Body, Param, TargetWorkflow};
use super::route::Route;
use crate::audit::AuditVerb;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/v1/workflows/{workflow}/remote-workers", list)
            .access(Access::Owned(Read))
            .summary("List the SSH workers of a workflow"),
        Route::post("/v1/workflows/{workflow}/remote-workers", add)
            .access(Access::Owned(Write))
            .audit(AuditVerb::AddWorkers)
            .summary("Add SSH workers to a workflow; the response lists all of them"),
        Route::delete("/v1/workflows/{workflow}/remote-workers/{worker}", remove)
            .access(Access::Owned(Write))
            .audit(AuditVerb::RemoveWorker)
            .summary("Remove an SSH worker from a workflow"),
    ]
}

/// The address of the worker in a path.
#[derive(Deserialize)]
struct WorkerParam {
    worker: String,
}

async fn list(State(app): State<App>, TargetWorkflow(id): TargetWorkflow) -> ApiResult<Page<RemoteWorker>> {
    Ok(Json(Page::whole(app.engine.remote_workers(id).await?)))
}

async fn add(
    State(app): State<App>,
    TargetWorkflow(id): TargetWorkflow,
    Body(request): Body<RemoteWorkersRequest>,
) -> ApiResult<Page<RemoteWorker>> {
    Ok(Json(Page::whole(app.engine.add_remote_workers(id, &request.workers).await?)))
}

async fn remove(
    State(app): State<App>,
    TargetWorkflow(id): TargetWorkflow,
    Param(WorkerParam { worker }): Param<WorkerParam>,
) -> Result<StatusCode, ApiError> {
    app.engine.remove_remote_worker(id, &worker).await?;
    Ok(StatusCode::NO_CONTENT)
}
