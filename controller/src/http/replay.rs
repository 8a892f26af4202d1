//! `POST /v1/workflows/{workflow}/runs/{run}/results`: results from the journals of runners.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use torc_api::wire::{ReplayRequest, ReplayResponse};

use super::App;
use super::access::Access;
use super::access::AccessMode::Write;
use super::error::ApiResult;
use super::extract::{Body, Param, TargetWorkflow};
use super::route::Route;
use crate::audit::AuditVerb;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::post("/v1/workflows/{workflow}/runs/{run}/results", replay)
            .access(Access::Workflow(Write))
            .audit(AuditVerb::Replay)
            .summary("Replay results from journals of runners; each result is applied once"),
    ]
}

/// The run in a path.
#[derive(Deserialize)]
struct RunParam {
    run: i32,
}

async fn replay(
    State(app): State<App>,
    TargetWorkflow(id): TargetWorkflow,
    Param(RunParam { run }): Param<RunParam>,
    Body(request): Body<ReplayRequest>,
) -> ApiResult<ReplayResponse> {
    let replayed = app.engine.replay(id, run, request.results).await?;
    Ok(Json(ReplayResponse { replayed }))
}
