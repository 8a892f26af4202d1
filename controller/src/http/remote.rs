//! `/v1/workflows/{workflow}/remote-workers`: machines reached over SSH.

use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::routing::{delete, get};
use axum::{Json, Router};
use torc_api::api::Page;
use torc_api::remote::{RemoteWorker, RemoteWorkersRequest};

use super::error::{ApiError, ApiResult};
use super::{App, Namespace};

pub(super) fn router() -> Router<App> {
    Router::new()
        .route("/v1/workflows/{workflow}/remote-workers", get(list).post(add))
        .route("/v1/workflows/{workflow}/remote-workers/{worker}", delete(remove))
}

async fn list(
    State(app): State<App>,
    Path(workflow): Path<String>,
    Query(namespace): Query<Namespace>,
) -> ApiResult<Page<RemoteWorker>> {
    Ok(Json(Page::whole(app.engine.remote_workers((namespace.name(), &workflow)).await?)))
}

async fn add(
    State(app): State<App>,
    Path(workflow): Path<String>,
    Query(namespace): Query<Namespace>,
    request: Result<Json<RemoteWorkersRequest>, JsonRejection>,
) -> ApiResult<Page<RemoteWorker>> {
    let Json(request) = request?;
    let workers = app.engine.add_remote_workers((namespace.name(), &workflow), &request.workers).await?;
    Ok(Json(Page::whole(workers)))
}

async fn remove(
    State(app): State<App>,
    Path((workflow, worker)): Path<(String, String)>,
    Query(namespace): Query<Namespace>,
) -> Result<StatusCode, ApiError> {
    app.engine.remove_remote_worker((namespace.name(), &workflow), &worker).await?;
    Ok(StatusCode::NO_CONTENT)
}
