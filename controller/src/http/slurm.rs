//! `/v1/allocations` and `/v1/slurmclusters`: lists of both, and changes of clusters.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use torc_api::allocation::Allocation;
use torc_api::api::{ClusterApplied, Page, SlurmCluster};
use torc_api::document::SlurmClusterDocument;
use torc_api::filter::AllocationFilter;
use torc_core::ids::WorkflowId;

use super::access::Access;
use super::access::AccessMode::Read;
use super::access::find_filtered;
use super::error::{ApiError, ApiResult};
use super::extract::{Body, Param, Query};
use super::route::Route;
use super::{App, Caller};
use crate::audit::AuditVerb;
use crate::engine::EngineError;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/v1/allocations", list)
            .access(Access::Member(Read))
            .summary("List Slurm allocations, including those that have ended"),
        // The server runs the command prefix of a cluster's document.
        Route::post("/v1/slurmclusters", apply)
            .access(Access::Admin)
            .audit(AuditVerb::ApplyCluster)
            .summary("Create or update a Slurm cluster"),
        Route::get("/v1/slurmclusters", clusters).access(Access::Member(Read)).summary("List Slurm clusters"),
        Route::get("/v1/slurmclusters/{cluster}", cluster).access(Access::Member(Read)).summary("Get a Slurm cluster"),
        Route::delete("/v1/slurmclusters/{cluster}", remove)
            .access(Access::Admin)
            .audit(AuditVerb::DeleteCluster)
            .summary("Delete a Slurm cluster without active allocations"),
    ]
}

async fn list(
    State(app): State<App>,
    caller: Caller,
    Query(filter): Query<AllocationFilter>,
) -> ApiResult<Page<Allocation>> {
    let AllocationFilter { namespace, workflow, live, limit, cursor } = filter;
    let workflow = find_filtered(&app, &caller, namespace.as_deref(), workflow.as_deref()).await?.map(|id| id.0);
    let filter = AllocationFilter { namespace, workflow, live, limit, cursor };
    let mut page = app.engine.allocations(&filter).await?;
    if let Some(theirs) = app.engine.theirs(&caller.grant).await? {
        page.items.retain(|allocation| theirs.contains(&WorkflowId(allocation.workflow_id)));
    }
    Ok(Json(page))
}

async fn apply(State(app): State<App>, Body(document): Body<SlurmClusterDocument>) -> ApiResult<ClusterApplied> {
    Ok(Json(app.engine.apply_cluster(document).await?))
}

async fn clusters(State(app): State<App>) -> ApiResult<Page<SlurmCluster>> {
    Ok(Json(Page::whole(all(&app).await?)))
}

async fn cluster(State(app): State<App>, Param(name): Param<String>) -> ApiResult<SlurmCluster> {
    let found = all(&app).await?.into_iter().find(|cluster| cluster.name == name);
    Ok(Json(found.ok_or_else(|| EngineError::from(torc_core::engine::CommandError::NoCluster(name)))?))
}

async fn all(app: &App) -> Result<Vec<SlurmCluster>, EngineError> {
    match &app.slurm {
        Some(slurm) => slurm.clusters().await,
        None => app.engine.clusters().await,
    }
}

async fn remove(State(app): State<App>, Param(name): Param<String>) -> Result<StatusCode, ApiError> {
    app.engine.delete_cluster(&name).await?;
    Ok(StatusCode::NO_CONTENT)
}
