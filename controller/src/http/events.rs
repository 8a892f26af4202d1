//! Events, as a list and as a stream.

use std::collections::BTreeSet;

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Deserialize;
use torc_api::api::{Event, Page};
use torc_api::document::DEFAULT_NAMESPACE;
use torc_core::ids::WorkflowId;
use torc_store::EventQuery;

use super::access::Access;
use super::access::Mode::Read;
use super::access::find_theirs;
use super::error::ApiResult;
use super::extract::Query;
use super::route::Route;
use super::{App, Caller};
use crate::engine::EngineError;

pub(super) fn routes() -> Vec<Route> {
    vec![Route::get("/v1/events", list).access(Access::Member(Read)).summary("What happened, oldest first")]
}

/// Which events.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(super) struct EventsQuery {
    /// `default` when absent.
    namespace: Option<String>,
    /// A workflow, by name or number.
    workflow: Option<String>,
    /// A sequence number; for a stream `Last-Event-ID` wins.
    pub after: Option<i64>,
    /// The most items of one page.
    limit: Option<u32>,
}

impl EventsQuery {
    /// Returns the workflow that is asked for, which must be one that the caller deals with.
    pub async fn workflow(&self, app: &App, caller: &Caller) -> Result<Option<WorkflowId>, EngineError> {
        let namespace = self.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
        match &self.workflow {
            Some(workflow) => find_theirs(app, caller, (namespace, workflow)).await.map(Some),
            None => Ok(None),
        }
    }
}

async fn list(State(app): State<App>, caller: Caller, Query(query): Query<EventsQuery>) -> ApiResult<Page<Event>> {
    let query = EventQuery {
        workflow: query.workflow(&app, &caller).await?,
        after: query.after.unwrap_or_default(),
        limit: query.limit.unwrap_or_default(),
    };
    let mut page = app.engine.events(&query).await?;
    if let Some(theirs) = app.engine.theirs(&caller.grant).await? {
        page.items.retain(|event| concerns(&theirs, event));
    }
    Ok(Json(page))
}

/// Whether an event is of one of these workflows.
pub(super) fn concerns(workflows: &BTreeSet<WorkflowId>, event: &Event) -> bool {
    event.workflow_id.is_some_and(|id| workflows.contains(&WorkflowId(id)))
}
