//! Writes what this controller says to objects: their statuses and finalizers.

use std::time::{Duration, Instant};

use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use torc_api::API_VERSION;
use torc_api::status::WorkflowStatus;
use torc_core::time::rfc3339;

use super::FIELD_MANAGER;
use super::context::{Context, Guarded, Object};
use super::log_once::explained;
use super::status::{View, status};
use super::status_throttle::{Decision, decide};
use crate::clock;
use crate::engine::EngineError;

/// While this process is not sure to lead.
pub(super) const NOT_LEADING_INTERVAL: Duration = Duration::from_secs(2);

/// Why a pass was cut short. It is tried again.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReconcileError {
    #[error("the API server: {}", explained(.0))]
    Api(#[from] kube::Error),
    #[error("the engine: {0}")]
    Engine(#[from] EngineError),
}

/// Writes the status if there is something new to say; when it may be written, if that is not now.
pub(super) async fn write_status(
    context: &Context,
    object: &Object,
    generation: i64,
    stored: Option<&WorkflowStatus>,
    lingers: Option<String>,
) -> Result<Option<Duration>, ReconcileError> {
    let memory = context.recall(object, stored);
    let engine = context.summary(object).await?.map(|summary| summary.status);
    let rejection = memory.rejected.as_ref().filter(|(of, _)| *of == generation).map(|(_, rejection)| rejection);
    let before = memory.written.as_ref();
    let said = status(&View {
        engine: engine.as_ref(),
        generation,
        accepted: memory.accepted.as_ref().map(|accepted| accepted.generation),
        rejection,
        lingers: lingers.as_deref(),
        before: before.map(|status| status.conditions.as_slice()).unwrap_or_default(),
        now: &rfc3339(clock::now().wall_ms),
        api_url: Some(context.api_url.as_str()).filter(|url| !url.is_empty()),
    });
    match decide(before, &said, memory.since_written()) {
        Decision::Nothing => Ok(None),
        Decision::After(pause) => Ok(Some(pause)),
        Decision::Now => {
            if !context.leadership.is_held() {
                return Ok(Some(NOT_LEADING_INTERVAL));
            }
            let patch = json!({
                "apiVersion": API_VERSION,
                "kind": "Workflow",
                "metadata": {"name": object.name, "uid": object.uid},
                "status": said,
            });
            apply(context, object, &patch, true).await?;
            context.engine.metrics().status_written();
            context.remember(object, |memory| (memory.written, memory.written_at) = (Some(said), Instant::now()));
            Ok(None)
        }
    }
}

/// Says what this controller wants to be so, and nothing of what others do. Never brings back what is gone: the uid goes along.
pub(super) async fn apply(
    context: &Context,
    object: &Object,
    patch: &serde_json::Value,
    is_status: bool,
) -> kube::Result<()> {
    let api: Api<Guarded> = Api::namespaced(context.client.clone(), &object.namespace);
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    match is_status {
        true => api.patch_status(&object.name, &parameters, &Patch::Apply(patch)).await.map(drop),
        false => api.patch_metadata(&object.name, &parameters, &Patch::Apply(patch)).await.map(drop),
    }
}
