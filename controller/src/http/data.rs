//! Files, user data, spawned jobs and provenance of a workflow.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use torc_api::api::Page;
use torc_api::data::{File, FileUse, SpawnRequest, SpawnResponse, Staleness, UserData, UserDataWritten, WriteUserData};

use super::App;
use super::access::Access;
use super::access::AccessMode::{Read, Write};
use super::error::ApiResult;
use super::extract::{Body, Param, Query, TargetWorkflow};
use super::jobs::JobParam;
use super::route::Route;
use crate::audit::AuditVerb;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/v1/workflows/{workflow}/files", files)
            .access(Access::Workflow(Read))
            .summary("List the files of a workflow, with their last recorded state"),
        Route::get("/v1/workflows/{workflow}/file-uses", file_uses).access(Access::Workflow(Read)).summary(
            "List the files that jobs read and write, with their state at the latest success; pages count jobs",
        ),
        Route::get("/v1/workflows/{workflow}/user-data", user_data)
            .access(Access::Workflow(Read))
            .summary("List the user data of a workflow"),
        Route::get("/v1/workflows/{workflow}/user-data/{name}", one)
            .access(Access::Workflow(Read))
            .summary("Get a value"),
        Route::put("/v1/workflows/{workflow}/user-data/{name}", write)
            .access(Access::Workflow(Write))
            .audit(AuditVerb::WriteData)
            .summary("Write a value"),
        Route::delete("/v1/workflows/{workflow}/user-data/{name}", delete)
            .access(Access::Workflow(Write))
            .audit(AuditVerb::DeleteData)
            .summary("Delete a written value; the document's value applies again"),
        Route::get("/v1/workflows/{workflow}/staleness", staleness)
            .access(Access::Workflow(Read))
            .summary("List data that has changed since jobs completed, and missing data"),
        Route::post("/v1/workflows/{workflow}/jobs/{job}/spawn", spawn)
            .access(Access::Workflow(Write))
            .audit(AuditVerb::Spawn)
            .summary("Add jobs to the workflow of a running job"),
        Route::get("/v1/workflows/{workflow}/ro-crate", ro_crate)
            .access(Access::Workflow(Read))
            .summary("Export the provenance as an RO-Crate in JSON-LD"),
    ]
}

/// The name of a value in a path.
#[derive(Deserialize)]
struct NameParam {
    name: String,
}

async fn files(State(app): State<App>, TargetWorkflow(id): TargetWorkflow) -> ApiResult<Page<File>> {
    Ok(Json(Page::whole(app.engine.files(id).await?)))
}

#[derive(Deserialize, JsonSchema)]
struct UsesQuery {
    /// The maximum number of jobs of one page.
    limit: Option<u32>,
    /// `next` of the previous page.
    cursor: Option<String>,
}

async fn file_uses(
    State(app): State<App>,
    TargetWorkflow(id): TargetWorkflow,
    Query(query): Query<UsesQuery>,
) -> ApiResult<Page<FileUse>> {
    Ok(Json(app.engine.file_uses(id, query.cursor, query.limit).await?))
}

async fn user_data(State(app): State<App>, TargetWorkflow(id): TargetWorkflow) -> ApiResult<Page<UserData>> {
    Ok(Json(Page::whole(app.engine.user_data(id).await?)))
}

async fn one(
    State(app): State<App>,
    TargetWorkflow(id): TargetWorkflow,
    Param(NameParam { name }): Param<NameParam>,
) -> ApiResult<UserData> {
    Ok(Json(app.engine.one_user_data(id, &name).await?))
}

async fn write(
    State(app): State<App>,
    TargetWorkflow(id): TargetWorkflow,
    Param(NameParam { name }): Param<NameParam>,
    Body(request): Body<WriteUserData>,
) -> ApiResult<UserDataWritten> {
    Ok(Json(app.engine.write_user_data(id, &name, Some(request)).await?))
}

async fn delete(
    State(app): State<App>,
    TargetWorkflow(id): TargetWorkflow,
    Param(NameParam { name }): Param<NameParam>,
) -> ApiResult<UserDataWritten> {
    Ok(Json(app.engine.write_user_data(id, &name, None).await?))
}

async fn staleness(State(app): State<App>, TargetWorkflow(id): TargetWorkflow) -> ApiResult<Staleness> {
    Ok(Json(app.engine.staleness(id).await?))
}

async fn spawn(
    State(app): State<App>,
    TargetWorkflow(id): TargetWorkflow,
    Param(JobParam { job }): Param<JobParam>,
    Body(request): Body<SpawnRequest>,
) -> ApiResult<SpawnResponse> {
    Ok(Json(app.engine.spawn(id, &job, request).await?))
}

async fn ro_crate(State(app): State<App>, TargetWorkflow(id): TargetWorkflow) -> ApiResult<Value> {
    Ok(Json(app.engine.ro_crate(id).await?))
}
