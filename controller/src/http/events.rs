//! What happened, as a list and as a stream.

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::routing::get;
use axum::{Json, Router};
use serde::Deserialize;
use torc_api::api::{Event, Page};
use torc_api::document::DEFAULT_NAMESPACE;
use torc_core::ids::WorkflowId;
use torc_store::EventQuery;

use super::App;
use super::error::ApiResult;
use super::watch::watch;
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
}

impl EventsQuery {
    pub async fn workflow(&self, app: &App) -> Result<Option<WorkflowId>, EngineError> {
        let namespace = self.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
        match &self.workflow {
            Some(workflow) => Ok(Some(app.engine.find((namespace, workflow)).await?)),
            None => Ok(None),
        }
    }
}

async fn list(State(app): State<App>, query: Result<Query<EventsQuery>, QueryRejection>) -> ApiResult<Page<Event>> {
    let Query(query) = query?;
    let query = EventQuery {
        workflow: query.workflow(&app).await?,
        after: query.after.unwrap_or_default(),
        limit: query.limit.unwrap_or_default(),
    };
    Ok(Json(app.engine.events(&query).await?))
}
