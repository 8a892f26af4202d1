//! `/v1/workflows`: apply, list, show, cancel, suspend, resume, retry and delete.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;
use torc_api::api::{AffectedJobs, ApplyRequest, ApplyResponse, Page, RetryRequest, Workflow, WorkflowAction};
use torc_api::explain::WorkflowExplanation;
use torc_core::ids::WorkflowId;

use super::access::Access;
use super::access::AccessMode::{Read, Write};
use super::error::{ApiError, ApiResult};
use super::extract::{Body, Query, TargetWorkflow};
use super::route::Route;
use super::{App, Caller};
use crate::audit::AuditVerb;
use crate::engine::EngineError;
use crate::slurm::RELEASE_TIMEOUT;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::post("/v1/workflows", apply)
            .access(Access::Owner)
            .audit(AuditVerb::Apply)
            .summary("Create or update a workflow, or preview the changes"),
        Route::get("/v1/workflows", list)
            .access(Access::Member(Read))
            .summary("List workflows, without their documents"),
        Route::get("/v1/workflows/{workflow}", show)
            .access(Access::Workflow(Read))
            .summary("Get a workflow by name or number, with its document"),
        Route::delete("/v1/workflows/{workflow}", remove)
            .access(Access::Owned(Write))
            .audit(AuditVerb::Delete)
            .summary("Delete a workflow with its jobs, results and events"),
        Route::get("/v1/workflows/{workflow}/actions", actions)
            .access(Access::Workflow(Read))
            .summary("List the actions of a workflow"),
        Route::get("/v1/workflows/{workflow}/explain", explain)
            .access(Access::Workflow(Read))
            .summary("Explain the states of the jobs of a workflow"),
        Route::post("/v1/workflows/{workflow}/cancel", cancel)
            .access(Access::Owned(Write))
            .audit(AuditVerb::Cancel)
            .summary("Cancel a workflow: end its running jobs and start no more"),
        Route::post("/v1/workflows/{workflow}/suspend", suspend)
            .access(Access::Owned(Write))
            .audit(AuditVerb::Suspend)
            .summary("Suspend a workflow: start no more jobs; running jobs continue"),
        Route::post("/v1/workflows/{workflow}/resume", resume)
            .access(Access::Owned(Write))
            .audit(AuditVerb::Resume)
            .summary("Resume a suspended or canceled workflow"),
        Route::post("/v1/workflows/{workflow}/retry", retry)
            .access(Access::Owned(Write))
            .audit(AuditVerb::Retry)
            .summary("Reset jobs and their dependents, so that they run again"),
    ]
}

async fn apply(State(app): State<App>, caller: Caller, Body(request): Body<ApplyRequest>) -> ApiResult<ApplyResponse> {
    Ok(Json(app.engine.apply(request, &caller.name, &caller.grant).await?))
}

#[derive(Deserialize, JsonSchema)]
struct ListQuery {
    /// All namespaces when absent.
    namespace: Option<String>,
    /// The maximum number of items of one page.
    limit: Option<usize>,
    /// `next` of the previous page.
    cursor: Option<String>,
}

async fn list(State(app): State<App>, caller: Caller, Query(query): Query<ListQuery>) -> ApiResult<Page<Workflow>> {
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

async fn show(State(app): State<App>, TargetWorkflow(id): TargetWorkflow) -> ApiResult<Workflow> {
    Ok(Json(app.engine.workflow(id).await?))
}

#[derive(Deserialize, JsonSchema)]
struct RemoveQuery {
    /// `true` to delete a workflow even if its allocations could not be canceled.
    #[serde(default)]
    force: bool,
}

async fn remove(
    State(app): State<App>,
    TargetWorkflow(id): TargetWorkflow,
    Query(RemoveQuery { force }): Query<RemoveQuery>,
) -> Result<StatusCode, ApiError> {
    if let Some(slurm) = &app.slurm
        && app.engine.live_allocations(Some(id)).await? > 0
    {
        // Once the workflow is deleted, no process would look after its allocations.
        let workflow = app.engine.cancel(id).await?;
        slurm.await_release(id, RELEASE_TIMEOUT).await?;
        let left = app.engine.live_allocations(Some(id)).await?;
        if left > 0 && !force {
            return Err(EngineError::allocations_left(&workflow.name, left).into());
        }
    }
    app.engine.delete(id).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn actions(State(app): State<App>, TargetWorkflow(id): TargetWorkflow) -> ApiResult<Page<WorkflowAction>> {
    Ok(Json(Page::whole(app.engine.actions(id).await?)))
}

async fn explain(State(app): State<App>, TargetWorkflow(id): TargetWorkflow) -> ApiResult<WorkflowExplanation> {
    Ok(Json(app.engine.explain_workflow(id).await?))
}

async fn cancel(State(app): State<App>, TargetWorkflow(id): TargetWorkflow) -> ApiResult<Workflow> {
    let canceled = app.engine.cancel(id).await?;
    if let Some(slurm) = &app.slurm {
        slurm.reconcile_now().await?;
    }
    Ok(Json(canceled))
}

async fn suspend(State(app): State<App>, TargetWorkflow(id): TargetWorkflow) -> ApiResult<Workflow> {
    Ok(Json(app.engine.suspend(id).await?))
}

async fn resume(State(app): State<App>, TargetWorkflow(id): TargetWorkflow) -> ApiResult<Workflow> {
    Ok(Json(app.engine.resume(id).await?))
}

async fn retry(
    State(app): State<App>,
    TargetWorkflow(id): TargetWorkflow,
    Body(request): Body<RetryRequest>,
) -> ApiResult<AffectedJobs> {
    Ok(Json(app.engine.retry(id, request).await?))
}
