//! `POST /v1/workflows/{workflow}/runs/{run}/results`: what runners wrote down while the server was away.

use axum::extract::rejection::{JsonRejection, PathRejection};
use axum::extract::{Path, Query, State};
use axum::routing::post;
use axum::{Json, Router};
use torc_api::wire::{ReplayRequest, ReplayResponse};

use super::error::ApiResult;
use super::{App, Namespace};
use crate::engine::EngineError;

pub(super) fn router() -> Router<App> {
    Router::new().route("/v1/workflows/{workflow}/runs/{run}/results", post(replay))
}

async fn replay(
    State(app): State<App>,
    path: Result<Path<(String, i32)>, PathRejection>,
    Query(namespace): Query<Namespace>,
    request: Result<Json<ReplayRequest>, JsonRejection>,
) -> ApiResult<ReplayResponse> {
    let Path((workflow, run)) = path.map_err(|error| EngineError::bad_request(error.body_text()))?;
    let Json(request) = request?;
    let replayed = app.engine.replay((namespace.name(), &workflow), run, request.results).await?;
    Ok(Json(ReplayResponse { replayed }))
}
