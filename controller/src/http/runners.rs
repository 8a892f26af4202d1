//! `/v1/runners`: the list of runners, and the calls that runners make.

use axum::Json;
use axum::extract::State;
use torc_api::api::{Page, Runner};
use torc_api::filter::RunnerFilter;
use torc_api::wire::{RegisterRequest, RegisterResponse, SyncRequest, SyncResponse};

use super::access::Access;
use super::access::AccessMode::{Read, Write};
use super::error::ApiResult;
use super::extract::{Body, Param, Query};
use super::route::Route;
use super::{App, Caller};
use crate::audit::AuditVerb;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/v1/runners", list).access(Access::Member(Read)).summary("List runners"),
        Route::post("/v1/runners", register)
            .access(Access::Member(Write))
            .audit(AuditVerb::Register)
            .summary("Register a runner"),
        Route::post("/v1/runners/{runner}/sync", sync)
            .access(Access::Member(Write))
            .audit(AuditVerb::Sync)
            .summary("Report the state of a runner, and receive leases and directives"),
    ]
}

async fn list(State(app): State<App>, caller: Caller, Query(filter): Query<RunnerFilter>) -> ApiResult<Page<Runner>> {
    Ok(Json(Page::whole(app.engine.runners_of(&caller.grant, filter.all).await?)))
}

async fn register(
    State(app): State<App>,
    caller: Caller,
    Body(request): Body<RegisterRequest>,
) -> ApiResult<RegisterResponse> {
    Ok(Json(app.engine.register(request, caller.grant).await?))
}

async fn sync(
    State(app): State<App>,
    caller: Caller,
    Param(runner): Param<i64>,
    Body(request): Body<SyncRequest>,
) -> ApiResult<SyncResponse> {
    Ok(Json(app.engine.sync(runner, request, caller.grant).await?))
}
