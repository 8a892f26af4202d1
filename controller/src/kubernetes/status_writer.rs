//! Writes statuses and finalizers of objects.

use std::time::{Duration, Instant};

use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use torc_api::API_VERSION;
use torc_api::status::WorkflowStatus;
use torc_core::time::rfc3339;

use super::FIELD_MANAGER;
use super::context::{Context, GuardedWorkflow, Object};
use super::log_once::explained;
use super::status::{View, status};
use super::status_throttle::{WriteDecision, decide};
use crate::clock;
use crate::engine::EngineError;

/// Delay before the next reconcile while this process may not lead.
pub(super) const NOT_LEADING_INTERVAL: Duration = Duration::from_secs(2);

/// The reason why a reconcile failed. It is repeated.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReconcileError {
    #[error("Kubernetes API: {}", explained(.0))]
    Api(#[from] kube::Error),
    #[error("the engine: {0}")]
    Engine(#[from] EngineError),
}

/// Writes the status if it has changed. Returns a delay if the write must wait.
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
        WriteDecision::Nothing => Ok(None),
        WriteDecision::After(delay) => Ok(Some(delay)),
        WriteDecision::Now => {
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

/// Writes the fields that this controller owns with server-side apply. The uid prevents the creation of a deleted object.
pub(super) async fn apply(
    context: &Context,
    object: &Object,
    patch: &serde_json::Value,
    is_status: bool,
) -> kube::Result<()> {
    let api: Api<GuardedWorkflow> = Api::namespaced(context.client.clone(), &object.namespace);
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    match is_status {
        true => api.patch_status(&object.name, &parameters, &Patch::Apply(patch)).await.map(drop),
        false => api.patch_metadata(&object.name, &parameters, &Patch::Apply(patch)).await.map(drop),
    }
}
