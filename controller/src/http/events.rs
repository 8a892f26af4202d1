//! The list of events.

use std::collections::BTreeSet;

use axum::Json;
use axum::extract::State;
use torc_api::api::{Event, Page};
use torc_api::filter::EventFilter;
use torc_core::ids::WorkflowId;

use super::access::Access;
use super::access::AccessMode::Read;
use super::access::find_filtered;
use super::error::ApiResult;
use super::extract::Query;
use super::route::Route;
use super::{App, Caller};
use crate::engine::EngineError;

pub(super) fn routes() -> Vec<Route> {
    vec![Route::get("/v1/events", list).access(Access::Member(Read)).summary("List events, oldest first")]
}

async fn list(State(app): State<App>, caller: Caller, Query(filter): Query<EventFilter>) -> ApiResult<Page<Event>> {
    let mut page = app.engine.events(&with_number(filter, &app, &caller).await?).await?;
    if let Some(theirs) = app.engine.theirs(&caller.grant).await? {
        page.items.retain(|event| concerns(&theirs, event));
    }
    Ok(Json(page))
}

/// Replaces the name of the filter's workflow by its number. The caller must have access to the workflow.
pub(super) async fn with_number(
    filter: EventFilter,
    app: &App,
    caller: &Caller,
) -> Result<EventFilter<i64>, EngineError> {
    let EventFilter { namespace, workflow, after, limit } = filter;
    let workflow = find_filtered(app, caller, namespace.as_deref(), workflow.as_deref()).await?;
    Ok(EventFilter { namespace, workflow: workflow.map(|id| id.0), after, limit })
}

/// Returns whether an event belongs to one of `workflows`.
pub(super) fn concerns(workflows: &BTreeSet<WorkflowId>, event: &Event) -> bool {
    event.workflow_id.is_some_and(|id| workflows.contains(&WorkflowId(id)))
}
