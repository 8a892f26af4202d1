//! What happened, as a list and as a stream.

use std::collections::BTreeSet;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::routing::get;
use axum::{Extension, Json, Router};
use serde::Deserialize;
use torc_api::api::{Event, Page};
use torc_api::document::DEFAULT_NAMESPACE;
use torc_core::ids::WorkflowId;
use torc_store::EventQuery;

use super::access::one_of_theirs;
use super::error::ApiResult;
use super::watch::watch;
use super::{App, Caller};
use crate::engine::EngineError;

pub(super) fn router() -> Router<App> {
    Router::new().route("/v1/events", get(list)).route("/v1/watch", get(watch))
}

/// Which events.
#[derive(Debug, Default, Deserialize)]
pub(super) struct EventsQuery {
    namespace: Option<String>,
    workflow: Option<String>,
    pub after: Option<i64>,
    limit: Option<u32>,
    /// For a stream: only statuses, no events.
    #[serde(default, rename = "statusOnly")]
    pub status_only: bool,
}

impl EventsQuery {
    /// The workflow that is asked for, which must be one that the caller deals with.
    pub async fn workflow(&self, app: &App, caller: &Caller) -> Result<Option<WorkflowId>, EngineError> {
        let namespace = self.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
        match &self.workflow {
            Some(workflow) => one_of_theirs(app, caller, (namespace, workflow)).await.map(Some),
            None => Ok(None),
        }
    }
}

async fn list(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    query: Result<Query<EventsQuery>, QueryRejection>,
) -> ApiResult<Page<Event>> {
    let Query(query) = query?;
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
