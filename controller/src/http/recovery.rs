//! What people ask for when jobs have failed or allocations are gone, each as one command.

use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, Query, State};
use axum::routing::post;
use axum::{Json, Router};
use torc_api::allocation::OrphanReport;
use torc_api::api::{Affected, Workflow};
use torc_api::recovery::{
    ClassifyRequest, CorrectResourcesReport, CorrectResourcesRequest, NodesScheduled, RecoverReport, RecoverRequest,
    RegenerateReport, RegenerateRequest, ScheduleNodesRequest, SyncStatusRequest,
};

use super::error::ApiResult;
use super::{App, Namespace};

pub(super) fn router() -> Router<App> {
    Router::new()
        .route("/v1/workflows/{workflow}/sync-status", post(sync_status))
        .route("/v1/workflows/{workflow}/recover", post(recover))
        .route("/v1/workflows/{workflow}/regenerate", post(regenerate))
        .route("/v1/workflows/{workflow}/correct-resources", post(correct_resources))
        .route("/v1/workflows/{workflow}/classify", post(classify))
        .route("/v1/workflows/{workflow}/schedule-nodes", post(schedule_nodes))
        .route("/v1/workflows/{workflow}/submit", post(submit))
}

type Body<T> = Result<Json<T>, JsonRejection>;

async fn sync_status(
    State(app): State<App>,
    Path(workflow): Path<String>,
    Query(namespace): Query<Namespace>,
    request: Body<SyncStatusRequest>,
) -> ApiResult<OrphanReport> {
    let Json(request) = request?;
    let id = app.engine.find((namespace.name(), &workflow)).await?;
    match &app.slurm {
        Some(slurm) => Ok(Json(slurm.find_orphans(id, request).await?)),
        None => Ok(Json(app.engine.sync_status(Vec::new(), id, request).await?)),
    }
}

async fn recover(
    State(app): State<App>,
    Path(workflow): Path<String>,
    Query(namespace): Query<Namespace>,
    request: Body<RecoverRequest>,
) -> ApiResult<RecoverReport> {
    let Json(request) = request?;
    Ok(Json(app.engine.recover((namespace.name(), &workflow), request).await?))
}

async fn regenerate(
    State(app): State<App>,
    Path(workflow): Path<String>,
    Query(namespace): Query<Namespace>,
    request: Body<RegenerateRequest>,
) -> ApiResult<RegenerateReport> {
    let Json(request) = request?;
    Ok(Json(app.engine.regenerate((namespace.name(), &workflow), request).await?))
}

async fn correct_resources(
    State(app): State<App>,
    Path(workflow): Path<String>,
    Query(namespace): Query<Namespace>,
    request: Body<CorrectResourcesRequest>,
) -> ApiResult<CorrectResourcesReport> {
    let Json(request) = request?;
    Ok(Json(app.engine.correct_resources((namespace.name(), &workflow), request).await?))
}

async fn classify(
    State(app): State<App>,
    Path(workflow): Path<String>,
    Query(namespace): Query<Namespace>,
    request: Body<ClassifyRequest>,
) -> ApiResult<Affected> {
    let Json(request) = request?;
    Ok(Json(app.engine.classify((namespace.name(), &workflow), request).await?))
}

async fn schedule_nodes(
    State(app): State<App>,
    Path(workflow): Path<String>,
    Query(namespace): Query<Namespace>,
    request: Body<ScheduleNodesRequest>,
) -> ApiResult<NodesScheduled> {
    let Json(request) = request?;
    let allocations = app.engine.schedule_nodes((namespace.name(), &workflow), request).await?;
    Ok(Json(NodesScheduled { allocations }))
}

async fn submit(
    State(app): State<App>,
    Path(workflow): Path<String>,
    Query(namespace): Query<Namespace>,
) -> ApiResult<Workflow> {
    Ok(Json(app.engine.submit((namespace.name(), &workflow)).await?))
}
