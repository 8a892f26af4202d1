//! Files and data of a workflow, jobs that jobs make, provenance.

use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::Value;
use torc_api::api::Page;
use torc_api::data::{File, FileUse, SpawnRequest, SpawnResponse, Staleness, UserData, UserDataWritten, WriteUserData};
use torc_api::document::DEFAULT_NAMESPACE;

use super::error::ApiResult;
use super::{App, Namespace};

pub(super) fn router() -> Router<App> {
    Router::new()
        .route("/v1/workflows/{workflow}/files", get(files))
        .route("/v1/workflows/{workflow}/file-uses", get(file_uses))
        .route("/v1/workflows/{workflow}/user-data", get(user_data))
        .route("/v1/workflows/{workflow}/user-data/{name}", get(one).put(write).delete(take_back))
        .route("/v1/workflows/{workflow}/staleness", get(staleness))
        .route("/v1/workflows/{workflow}/jobs/{job}/spawn", post(spawn))
        .route("/v1/workflows/{workflow}/ro-crate", get(ro_crate))
}

async fn files(
    State(app): State<App>,
    Path(workflow): Path<String>,
    Query(namespace): Query<Namespace>,
) -> ApiResult<Page<File>> {
    Ok(Json(Page::whole(app.engine.files((namespace.name(), &workflow)).await?)))
}

#[derive(Deserialize)]
struct UsesQuery {
    namespace: Option<String>,
    limit: Option<u32>,
    cursor: Option<String>,
}

async fn file_uses(
    State(app): State<App>,
    Path(workflow): Path<String>,
    query: Result<Query<UsesQuery>, QueryRejection>,
) -> ApiResult<Page<FileUse>> {
    let Query(query) = query?;
    let namespace = query.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
    let limit = query.limit.unwrap_or_default();
    Ok(Json(app.engine.file_uses((namespace, &workflow), query.cursor, limit).await?))
}

async fn user_data(
    State(app): State<App>,
    Path(workflow): Path<String>,
    Query(namespace): Query<Namespace>,
) -> ApiResult<Page<UserData>> {
    Ok(Json(Page::whole(app.engine.user_data((namespace.name(), &workflow)).await?)))
}

async fn one(
    State(app): State<App>,
    Path((workflow, name)): Path<(String, String)>,
    Query(namespace): Query<Namespace>,
) -> ApiResult<UserData> {
    Ok(Json(app.engine.one_user_data((namespace.name(), &workflow), &name).await?))
}

async fn write(
    State(app): State<App>,
    Path((workflow, name)): Path<(String, String)>,
    Query(namespace): Query<Namespace>,
    request: Result<Json<WriteUserData>, JsonRejection>,
) -> ApiResult<UserDataWritten> {
    let Json(request) = request?;
    Ok(Json(app.engine.write_user_data((namespace.name(), &workflow), &name, Some(request)).await?))
}

async fn take_back(
    State(app): State<App>,
    Path((workflow, name)): Path<(String, String)>,
    Query(namespace): Query<Namespace>,
) -> ApiResult<UserDataWritten> {
    Ok(Json(app.engine.write_user_data((namespace.name(), &workflow), &name, None).await?))
}

async fn staleness(
    State(app): State<App>,
    Path(workflow): Path<String>,
    Query(namespace): Query<Namespace>,
) -> ApiResult<Staleness> {
    Ok(Json(app.engine.staleness((namespace.name(), &workflow)).await?))
}

async fn spawn(
    State(app): State<App>,
    Path((workflow, job)): Path<(String, String)>,
    Query(namespace): Query<Namespace>,
    request: Result<Json<SpawnRequest>, JsonRejection>,
) -> ApiResult<SpawnResponse> {
    let Json(request) = request?;
    Ok(Json(app.engine.spawn((namespace.name(), &workflow), &job, request).await?))
}

async fn ro_crate(
    State(app): State<App>,
    Path(workflow): Path<String>,
    Query(namespace): Query<Namespace>,
) -> ApiResult<Value> {
    Ok(Json(app.engine.ro_crate((namespace.name(), &workflow)).await?))
}
