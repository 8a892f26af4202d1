//! Health, version, metrics, the OpenAPI document, and maintenance of the store.

use std::path::PathBuf;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use schemars::SchemaGenerator;
use serde_json::Value;
use torc_api::api::{BackupRequest, GcRequest, GcResponse, Version};
use torc_api::wire::PROTOCOL;

use super::App;
use super::access::Access;
use super::error::{ApiError, ApiResult};
use super::extract::Body;
use super::operation::{Operation, ResponseType};
use super::route::Route;
use crate::audit::AuditVerb;
use crate::engine::EngineError;
use crate::metrics::CONTENT_TYPE;

/// Returns the routes that need no token.
pub(super) fn health() -> Router<App> {
    Router::new().route("/livez", get(|| async { "ok" })).route("/readyz", get(ready))
}

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/metrics", metrics).access(Access::Metrics).summary("Get metrics for Prometheus").undocumented(),
        Route::get("/v1/version", version)
            .access(Access::Token)
            .summary("Get the versions of the server and of the runner protocol"),
        Route::get("/v1/openapi.json", openapi)
            .access(Access::Token)
            .summary("Get the OpenAPI document")
            .undocumented(),
        Route::post("/v1/gc", gc)
            .access(Access::Admin)
            .audit(AuditVerb::Gc)
            .summary("Delete superseded results and old events"),
        Route::post("/v1/backup", backup)
            .access(Access::Admin)
            .audit(AuditVerb::Backup)
            .summary("Write a copy of the store"),
    ]
}

async fn openapi() -> Json<Value> {
    Json(super::openapi_document())
}

/// Succeeds if the engine answers and no part of the server is missing.
async fn ready(State(app): State<App>) -> Result<&'static str, ApiError> {
    app.engine.is_idle().await?;
    match app.readiness.missing() {
        None => Ok("ok"),
        Some(missing) => Err(EngineError::not_ready(missing).into()),
    }
}

async fn metrics(State(app): State<App>) -> Result<MetricsText, ApiError> {
    let workflows = app.engine.workflows(None).await?;
    let runners = app.engine.runners(false).await?.len();
    Ok(MetricsText(app.engine.metrics().render(&workflows, runners)))
}

/// Metrics in the OpenMetrics text format.
pub(super) struct MetricsText(String);

impl IntoResponse for MetricsText {
    fn into_response(self) -> Response {
        ([(header::CONTENT_TYPE, CONTENT_TYPE)], self.0).into_response()
    }
}

impl ResponseType for MetricsText {
    fn describe(_: &mut Operation, _: &mut SchemaGenerator) {}
}

async fn version() -> Json<Version> {
    Json(Version { version: env!("CARGO_PKG_VERSION").to_owned(), protocol: PROTOCOL })
}

async fn gc(State(app): State<App>, Body(request): Body<GcRequest>) -> ApiResult<GcResponse> {
    Ok(Json(app.engine.gc(&request).await?))
}

async fn backup(State(app): State<App>, Body(request): Body<BackupRequest>) -> Result<StatusCode, ApiError> {
    let path = PathBuf::from(&request.path);
    if !path.is_absolute() {
        return Err(EngineError::bad_request("`path` must be absolute: it is a path of the server's machine").into());
    }
    app.engine.backup(&path).await?;
    Ok(StatusCode::NO_CONTENT)
}
