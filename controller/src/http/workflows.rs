//! `/v1/workflows`: apply, look, stop, go on, forget.

use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use serde::Deserialize;
use torc_api::api::{Affected, ApplyRequest, ApplyResponse, Page, RetryRequest, Workflow, WorkflowAction};
use torc_core::ids::WorkflowId;

use torc_api::explain::WorkflowExplanation;

use super::error::{ApiError, ApiResult};
use super::{App, Caller, Namespace};
use crate::engine::EngineError;
use crate::slurm::FAREWELL;

pub(super) fn router() -> Router<App> {
    Router::new()
        .route("/v1/workflows", post(apply).get(list))
        .route("/v1/workflows/{workflow}", get(show).delete(remove))
        .route("/v1/workflows/{workflow}/actions", get(actions))
        .route("/v1/workflows/{workflow}/explain", get(explain))
        .route("/v1/workflows/{workflow}/cancel", post(cancel))
        .route("/v1/workflows/{workflow}/suspend", post(suspend))
        .route("/v1/workflows/{workflow}/resume", post(resume))
        .route("/v1/workflows/{workflow}/retry", post(retry))
}

async fn apply(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    request: Result<Json<ApplyRequest>, JsonRejection>,
) -> ApiResult<ApplyResponse> {
    let Json(request) = request?;
    Ok(Json(app.engine.apply(request, &caller.name, &caller.grant).await?))
}

#[derive(Deserialize)]
struct ListQuery {
    namespace: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
}

async fn list(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    query: Result<Query<ListQuery>, QueryRejection>,
) -> ApiResult<Page<Workflow>> {
    let Query(query) = query?;
    let after = match &query.cursor {
        None => 0,
        Some(cursor) => {
            cursor.parse().map_err(|_| EngineError::bad_request(format!("'{cursor}' is not a cursor of this list")))?
        }
    };
    let mut workflows = app.engine.workflows(query.namespace.as_deref()).await?;
    workflows.retain(|workflow| workflow.id > after);
    if let Some(theirs) = app.engine.theirs(&caller.grant).await? {
        workflows.retain(|workflow| theirs.contains(&WorkflowId(workflow.id)));
    }
    let limit = query.limit.unwrap_or(usize::MAX).max(1);
    let more = workflows.len() > limit;
    workflows.truncate(limit);
    let next = workflows.last().filter(|_| more).map(|workflow| workflow.id.to_string());
    Ok(Json(Page { items: workflows, next }))
}

async fn show(
    State(app): State<App>,
    Path(workflow): Path<String>,
    Query(namespace): Query<Namespace>,
) -> ApiResult<Workflow> {
    Ok(Json(app.engine.workflow((namespace.name(), &workflow)).await?))
}

#[derive(Deserialize)]
struct RemoveQuery {
    namespace: Option<String>,
    /// Also where its allocations could not be cancelled.
    #[serde(default)]
    force: bool,
}

async fn remove(
    State(app): State<App>,
    Path(workflow): Path<String>,
    query: Result<Query<RemoveQuery>, QueryRejection>,
) -> Result<StatusCode, ApiError> {
    let Query(RemoveQuery { namespace, force }) = query?;
    let namespace = Namespace { namespace };
    let reference = (namespace.name(), workflow.as_str());
    if let Some(slurm) = &app.slurm {
        let id = app.engine.find(reference).await?;
        if app.engine.live_allocations(Some(id)).await? > 0 {
            // Nobody would look after its allocations once it is forgotten.
            app.engine.cancel(reference).await?;
            slurm.see_off(id, FAREWELL).await?;
            let left = app.engine.live_allocations(Some(id)).await?;
            if left > 0 && !force {
                return Err(EngineError::allocations_left(&workflow, left).into());
            }
        }
    }
    app.engine.delete(reference).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn actions(
    State(app): State<App>,
    Path(workflow): Path<String>,
    Query(namespace): Query<Namespace>,
) -> ApiResult<Page<WorkflowAction>> {
    Ok(Json(Page::whole(app.engine.actions((namespace.name(), &workflow)).await?)))
}

async fn explain(
    State(app): State<App>,
    Path(workflow): Path<String>,
    Query(namespace): Query<Namespace>,
) -> ApiResult<WorkflowExplanation> {
    Ok(Json(app.engine.explain_workflow((namespace.name(), &workflow)).await?))
}

async fn cancel(
    State(app): State<App>,
    Path(workflow): Path<String>,
    Query(namespace): Query<Namespace>,
) -> ApiResult<Workflow> {
    let canceled = app.engine.cancel((namespace.name(), &workflow)).await?;
    if let Some(slurm) = &app.slurm {
        slurm.something_stopped().await?;
    }
    Ok(Json(canceled))
}

async fn suspend(
    State(app): State<App>,
    Path(workflow): Path<String>,
    Query(namespace): Query<Namespace>,
) -> ApiResult<Workflow> {
    Ok(Json(app.engine.suspend((namespace.name(), &workflow)).await?))
}

async fn resume(
    State(app): State<App>,
    Path(workflow): Path<String>,
    Query(namespace): Query<Namespace>,
) -> ApiResult<Workflow> {
    Ok(Json(app.engine.resume((namespace.name(), &workflow)).await?))
}

async fn retry(
    State(app): State<App>,
    Path(workflow): Path<String>,
    Query(namespace): Query<Namespace>,
    request: Result<Json<RetryRequest>, JsonRejection>,
) -> ApiResult<Affected> {
    let Json(request) = request?;
    Ok(Json(app.engine.retry((namespace.name(), &workflow), request).await?))
}
