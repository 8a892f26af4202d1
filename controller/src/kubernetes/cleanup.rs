//! Deletion of an object: the finalizer is removed only after its allocations are gone and its jobs have ended.

use std::time::Duration;

use kube::api::{Api, Patch, PatchParams};
use kube::{Resource as _, ResourceExt as _};
use serde_json::json;
use torc_api::event_reason::EventReason;
use torc_api::quantity::count;
use torc_api::workflow::Workflow;

use super::FINALIZER;
use super::context::{Context, GuardedWorkflow, Object};
use super::events::{self, EventNote, EventType};
use super::status_writer::{ReconcileError, write_status};
use super::ttl::{leaves_archive, seconds};
use crate::clock;

/// Interval between checks of an object that is being deleted.
const CLEANUP_INTERVAL: Duration = Duration::from_secs(2);

/// Time after which remaining allocations and jobs are reported.
const REPORT_LINGERING_AFTER: Duration = Duration::from_secs(30);

/// The next step of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CleanupStep {
    Wait,
    Release,
    /// Remove the finalizer after the timeout, although allocations or jobs remain.
    GiveUp,
}

/// Decides the next step. `left` is the number of allocations and running jobs that remain.
fn decide(left: usize, waited: Duration, timeout: Duration) -> CleanupStep {
    match left {
        0 => CleanupStep::Release,
        _ if waited < timeout => CleanupStep::Wait,
        _ => CleanupStep::GiveUp,
    }
}

/// Checks an object that is being deleted and returns the delay until the next check.
pub(super) async fn clean_up(
    found: &GuardedWorkflow,
    workflow: Option<&Workflow>,
    object: &Object,
    context: &Context,
) -> Result<Option<Duration>, ReconcileError> {
    let Some(place) = found.finalizers().iter().position(|finalizer| finalizer == FINALIZER) else {
        context.forget(object);
        return Ok(None);
    };
    let Some(summary) = context.summary(object).await? else {
        return release(context, object, place).await;
    };
    let id = torc_core::ids::WorkflowId(summary.id);
    let deleted = deleted_at(found);
    let completed = summary.status.completion_time.as_deref().and_then(seconds);
    let ttl = workflow.and_then(|workflow| workflow.spec.ttl_seconds_after_finished);
    let is_kept = leaves_archive(ttl, completed, deleted);
    context.engine.cancel(id).await?;
    if let Some(slurm) = &context.slurm {
        slurm.reconcile_now().await?;
    }
    let allocations = context.engine.live_allocations(Some(id)).await?;
    let jobs = context.engine.summary(id).await?.status.jobs;
    let left = allocations + usize::try_from(jobs.running + jobs.leased).unwrap_or_default();
    let waited = Duration::from_secs((clock::now().wall_ms / 1_000 - deleted).max(0).unsigned_abs());
    match decide(left, waited, context.config.cleanup_timeout) {
        CleanupStep::Wait => {
            let generation = found.meta().generation.unwrap_or_default();
            let stored = workflow.and_then(|workflow| workflow.status.as_ref());
            let lingers = (waited > REPORT_LINGERING_AFTER)
                .then(|| format!("being deleted, waiting for {}", count(allocations, "allocation")));
            write_status(context, object, generation, stored, lingers).await?;
            return Ok(Some(CLEANUP_INTERVAL));
        }
        CleanupStep::Release => {}
        CleanupStep::GiveUp => {
            let note = format!(
                "{} and {} may still be there after {} s: look for Slurm jobs named torc-wf{}-*",
                count(allocations, "allocation"),
                count(jobs.running + jobs.leased, "job"),
                waited.as_secs(),
                summary.id
            );
            tracing::warn!(namespace = object.namespace, workflow = object.name, note, "cleanup given up");
            let event_note = EventNote {
                reason: EventReason::CleanupGivenUp,
                kind: EventType::Warning,
                note: &note,
                key: "cleanup".to_owned(),
            };
            events::publish_if_allowed(context, object, &event_note).await?;
        }
    }
    if !is_kept {
        context.engine.delete(id).await?;
    }
    release(context, object, place).await
}

/// Removes the finalizer. The JSON Patch test prevents the removal of another finalizer at the same position.
async fn release(context: &Context, object: &Object, place: usize) -> Result<Option<Duration>, ReconcileError> {
    let api: Api<Workflow> = Api::namespaced(context.client.clone(), &object.namespace);
    let path = format!("/metadata/finalizers/{place}");
    let patch = json!([
        {"op": "test", "path": path, "value": FINALIZER},
        {"op": "test", "path": "/metadata/uid", "value": object.uid},
        {"op": "remove", "path": path},
    ]);
    let patch: Patch<()> = match serde_json::from_value(patch) {
        Ok(patch) => Patch::Json(patch),
        Err(_) => return Ok(Some(CLEANUP_INTERVAL)),
    };
    match api.patch_metadata(&object.name, &PatchParams::default(), &patch).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        Err(error) => return Err(error.into()),
    }
    context.forget(object);
    Ok(None)
}

/// Returns the time of the deletion request.
fn deleted_at(found: &GuardedWorkflow) -> i64 {
    found.meta().deletion_timestamp.as_ref().map_or(0, |time| time.0.as_second())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_goes_when_nothing_is_left_or_timeout_is() {
        let seconds = Duration::from_secs;
        for (left, waited, expected) in [
            (0, 0, CleanupStep::Release),
            (0, 1_000, CleanupStep::Release),
            (1, 0, CleanupStep::Wait),
            (1, 599, CleanupStep::Wait),
            (1, 600, CleanupStep::GiveUp),
        ] {
            assert_eq!(decide(left, seconds(waited), seconds(600)), expected, "{left} after {waited} s");
        }
    }
}
