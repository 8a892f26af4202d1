//! Commands for failed jobs and lost allocations.

use axum::Json;
use axum::extract::State;
use torc_api::allocation::OrphanReport;
use torc_api::api::{AffectedJobs, Workflow};
use torc_api::recovery::{
    ClassifyRequest, CorrectResourcesReport, CorrectResourcesRequest, NodesScheduled, RecoverReport, RecoverRequest,
    RegenerateReport, RegenerateRequest, ScheduleNodesRequest, SyncStatusRequest,
};

use super::App;
use super::access::Access;
use super::access::AccessMode::Write;
use super::error::ApiResult;
use super::extract::{Body, TargetWorkflow};
use super::route::Route;
use crate::audit::AuditVerb;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::post("/v1/workflows/{workflow}/sync-status", sync_status)
            .access(Access::Owned(Write))
            .audit(AuditVerb::SyncStatus)
            .summary("Record jobs that were lost with allocations and runners"),
        Route::post("/v1/workflows/{workflow}/recover", recover)
            .access(Access::Owned(Write))
            .audit(AuditVerb::Recover)
            .summary("Retry failed jobs, with more memory or time where they ran out of it"),
        Route::post("/v1/workflows/{workflow}/regenerate", regenerate)
            .access(Access::Owned(Write))
            .audit(AuditVerb::Regenerate)
            .summary("Plan schedulers and allocations again"),
        Route::post("/v1/workflows/{workflow}/correct-resources", correct_resources)
            .access(Access::Owned(Write))
            .audit(AuditVerb::CorrectResources)
            .summary("Adjust resource requirements to the observed usage"),
        Route::post("/v1/workflows/{workflow}/classify", classify)
            .access(Access::Owned(Write))
            .audit(AuditVerb::Classify)
            .summary("Decide about failed jobs that need a manual decision"),
        Route::post("/v1/workflows/{workflow}/schedule-nodes", schedule_nodes)
            .access(Access::Owned(Write))
            .audit(AuditVerb::ScheduleNodes)
            .summary("Request allocations of a scheduler"),
        Route::post("/v1/workflows/{workflow}/submit", submit)
            .access(Access::Owned(Write))
            .audit(AuditVerb::Submit)
            .summary("Make the owner of the store run a stored workflow"),
    ]
}

async fn sync_status(
    State(app): State<App>,
    TargetWorkflow(id): TargetWorkflow,
    Body(request): Body<SyncStatusRequest>,
) -> ApiResult<OrphanReport> {
    match &app.slurm {
        Some(slurm) => Ok(Json(slurm.find_orphans(id, request).await?)),
        None => Ok(Json(app.engine.sync_status(Vec::new(), id, request).await?)),
    }
}

async fn recover(
    State(app): State<App>,
    TargetWorkflow(id): TargetWorkflow,
    Body(request): Body<RecoverRequest>,
) -> ApiResult<RecoverReport> {
    Ok(Json(app.engine.recover(id, request).await?))
}

async fn regenerate(
    State(app): State<App>,
    TargetWorkflow(id): TargetWorkflow,
    Body(request): Body<RegenerateRequest>,
) -> ApiResult<RegenerateReport> {
    Ok(Json(app.engine.regenerate(id, request).await?))
}

async fn correct_resources(
    State(app): State<App>,
    TargetWorkflow(id): TargetWorkflow,
    Body(request): Body<CorrectResourcesRequest>,
) -> ApiResult<CorrectResourcesReport> {
    Ok(Json(app.engine.correct_resources(id, request).await?))
}

async fn classify(
    State(app): State<App>,
    TargetWorkflow(id): TargetWorkflow,
    Body(request): Body<ClassifyRequest>,
) -> ApiResult<AffectedJobs> {
    Ok(Json(app.engine.classify(id, request).await?))
}

async fn schedule_nodes(
    State(app): State<App>,
    TargetWorkflow(id): TargetWorkflow,
    Body(request): Body<ScheduleNodesRequest>,
) -> ApiResult<NodesScheduled> {
    let allocations = app.engine.schedule_nodes(id, request).await?;
    Ok(Json(NodesScheduled { allocations }))
}

async fn submit(State(app): State<App>, TargetWorkflow(id): TargetWorkflow) -> ApiResult<Workflow> {
    Ok(Json(app.engine.submit(id).await?))
}
