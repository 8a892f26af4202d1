//! Health, version, metrics, the API's description, and the upkeep of the store.

use std::path::PathBuf;

use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Json, Router};
use torc_api::api::{BackupRequest, GcRequest, GcResponse, Version};
use torc_api::wire::PROTOCOL;

use super::App;
use super::error::{ApiError, ApiResult};
use crate::engine::EngineError;

/// What needs no token.
pub(super) fn health() -> Router<App> {
    Router::new().route("/livez", get(|| async { "ok" })).route("/readyz", get(ready))
}

pub(super) fn router() -> Router<App> {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/v1/version", get(version))
        .route("/v1/openapi.json", get(|| async { Json(crate::openapi::document()) }))
        .route("/v1/gc", post(gc))
        .route("/v1/backup", post(backup))
}

/// Ready means that the engine answers and that nothing is being waited for.
async fn ready(State(app): State<App>) -> Result<&'static str, ApiError> {
    app.engine.is_idle().await?;
    match app.readiness.complaint() {
        None => Ok("ok"),
        Some(complaint) => Err(EngineError::not_ready(complaint).into()),
    }
}

async fn metrics(State(app): State<App>) -> Result<impl IntoResponse, ApiError> {
    let workflows = app.engine.workflows(None).await?;
    let runners = app.engine.runners(false).await?.len();
    let text = app.engine.metrics().render(&workflows, runners);
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text))
}

async fn version() -> Json<Version> {
    Json(Version { version: env!("CARGO_PKG_VERSION").to_owned(), protocol: PROTOCOL })
}

async fn gc(State(app): State<App>, request: Result<Json<GcRequest>, JsonRejection>) -> ApiResult<GcResponse> {
    let Json(request) = request?;
    Ok(Json(app.engine.gc(&request).await?))
}

async fn backup(
    State(app): State<App>,
    request: Result<Json<BackupRequest>, JsonRejection>,
) -> Result<StatusCode, ApiError> {
    let Json(request) = request?;
    let path = PathBuf::from(&request.path);
    if !path.is_absolute() {
        return Err(EngineError::bad_request("`path` must be absolute: it is a path of the server's machine").into());
    }
    app.engine.backup(&path).await?;
    Ok(StatusCode::NO_CONTENT)
}
