//! `/v1/allocations` and `/v1/slurmclusters`.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;
use torc_api::allocation::Allocation;
use torc_api::api::{ClusterApplied, Page, SlurmCluster};
use torc_api::document::{DEFAULT_NAMESPACE, SlurmClusterDocument};
use torc_core::ids::WorkflowId;
use torc_store::AllocationQuery;

use super::access::Access;
use super::access::Mode::Read;
use super::access::find_theirs;
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
            .summary("Slurm allocations, those that are over too"),
        // The server runs what a cluster's document puts before Slurm's commands.
        Route::post("/v1/slurmclusters", apply)
            .access(Access::Admin)
            .audit(AuditVerb::ApplyCluster)
            .summary("Make a Slurm cluster match its document"),
        Route::get("/v1/slurmclusters", clusters).access(Access::Member(Read)).summary("Slurm clusters"),
        Route::get("/v1/slurmclusters/{cluster}", cluster).access(Access::Member(Read)).summary("One Slurm cluster"),
        Route::delete("/v1/slurmclusters/{cluster}", remove)
            .access(Access::Admin)
            .audit(AuditVerb::DeleteCluster)
            .summary("Delete a Slurm cluster that no allocation lives in"),
    ]
}

#[derive(Deserialize, JsonSchema)]
struct AllocationsQuery {
    /// `default` when absent.
    namespace: Option<String>,
    /// Only of this workflow, by name or number.
    workflow: Option<String>,
    /// `true` for those that are not over.
    #[serde(default)]
    live: bool,
    /// The most items of one page.
    limit: Option<u32>,
    /// `next` of the page before.
    cursor: Option<String>,
}

async fn list(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<AllocationsQuery>,
) -> ApiResult<Page<Allocation>> {
    let namespace = query.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
    let workflow = match &query.workflow {
        Some(workflow) => Some(find_theirs(&app, &caller, (namespace, workflow)).await?),
        None => None,
    };
    let query = AllocationQuery {
        workflow,
        live_only: query.live,
        cursor: query.cursor,
        limit: query.limit.unwrap_or_default(),
    };
    let mut page = app.engine.allocations(&query).await?;
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
