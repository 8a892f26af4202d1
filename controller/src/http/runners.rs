//! `/v1/runners`: who is there, and the one call that runners make.

use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, Query, State};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use serde::Deserialize;
use torc_api::api::{Page, Runner};
use torc_api::wire::{RegisterRequest, RegisterResponse, SyncRequest, SyncResponse};

use super::error::ApiResult;
use super::{App, Caller};

pub(super) fn router() -> Router<App> {
    Router::new().route("/v1/runners", get(list).post(register)).route("/v1/runners/{runner}/sync", post(sync))
}

#[derive(Deserialize)]
struct RunnersQuery {
    #[serde(default)]
    all: bool,
}

async fn list(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Query(query): Query<RunnersQuery>,
) -> ApiResult<Page<Runner>> {
    Ok(Json(Page::whole(app.engine.runners_of(&caller.grant, query.all).await?)))
}

async fn register(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    request: Result<Json<RegisterRequest>, JsonRejection>,
) -> ApiResult<RegisterResponse> {
    let Json(request) = request?;
    Ok(Json(app.engine.register(request, caller.grant).await?))
}

async fn sync(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Path(runner): Path<i64>,
    request: Result<Json<SyncRequest>, JsonRejection>,
) -> ApiResult<SyncResponse> {
    let Json(request) = request?;
    Ok(Json(app.engine.sync(runner, request, caller.grant).await?))
}
