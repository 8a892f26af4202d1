//! `/v1/allocations` and `/v1/slurmclusters`: what Slurm was asked for, and which Slurm.

use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use serde::Deserialize;
use torc_api::allocation::Allocation;
use torc_api::api::{ClusterApplied, Page, SlurmCluster};
use torc_api::document::SlurmClusterDocument;
use torc_core::ids::WorkflowId;
use torc_store::AllocationQuery;

use super::access::one_of_theirs;
use super::error::{ApiError, ApiResult};
use super::{App, Caller};
use crate::engine::EngineError;

pub(super) fn router() -> Router<App> {
    Router::new()
        .route("/v1/allocations", get(list))
        .route("/v1/slurmclusters", post(apply).get(clusters))
        .route("/v1/slurmclusters/{cluster}", get(cluster).delete(remove))
}

#[derive(Deserialize)]
struct AllocationsQuery {
    namespace: Option<String>,
    workflow: Option<String>,
    #[serde(default)]
    live: bool,
    limit: Option<u32>,
    cursor: Option<String>,
}

async fn list(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    query: Result<Query<AllocationsQuery>, QueryRejection>,
) -> ApiResult<Page<Allocation>> {
    let Query(query) = query?;
    let namespace = query.namespace.as_deref().unwrap_or(torc_api::document::DEFAULT_NAMESPACE);
    let workflow = match &query.workflow {
        Some(workflow) => Some(one_of_theirs(&app, &caller, (namespace, workflow)).await?),
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

async fn apply(
    State(app): State<App>,
    request: Result<Json<SlurmClusterDocument>, JsonRejection>,
) -> ApiResult<ClusterApplied> {
    let Json(document) = request?;
    Ok(Json(app.engine.apply_cluster(document).await?))
}

async fn clusters(State(app): State<App>) -> ApiResult<Page<SlurmCluster>> {
    Ok(Json(Page::whole(all(&app).await?)))
}

async fn cluster(State(app): State<App>, Path(name): Path<String>) -> ApiResult<SlurmCluster> {
    let found = all(&app).await?.into_iter().find(|cluster| cluster.name == name);
    Ok(Json(found.ok_or_else(|| EngineError::from(torc_core::engine::CommandError::NoCluster(name)))?))
}

async fn all(app: &App) -> Result<Vec<SlurmCluster>, EngineError> {
    match &app.slurm {
        Some(slurm) => slurm.clusters().await,
        None => app.engine.clusters().await,
    }
}

async fn remove(State(app): State<App>, Path(name): Path<String>) -> Result<StatusCode, ApiError> {
    app.engine.delete_cluster(&name).await?;
    Ok(StatusCode::NO_CONTENT)
}
