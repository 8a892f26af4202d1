//! The end of an object: its allocations are cancelled and seen to be gone, its jobs are ended, and only then it may go.

use std::time::Duration;

use kube::api::{Api, Patch, PatchParams};
use kube::{Resource as _, ResourceExt as _};
use serde_json::json;
use torc_api::event_reason::EventReason;
use torc_api::quantity::count;
use torc_api::workflow::Workflow;

use super::FINALIZER;
use super::context::{Context, Guarded, Object};
use super::events::{self, EventNote, Kind};
use super::status_writer::{ReconcileError, write_status};
use super::ttl::{leaves_archive, seconds};
use crate::clock;

/// Between two looks at what is still there.
const CLEANUP_INTERVAL: Duration = Duration::from_secs(2);

/// What is still there after so long is told about.
const REPORT_LINGERING_AFTER: Duration = Duration::from_secs(30);

/// What to do about an object that is being deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Look again soon.
    Wait,
    /// It may go.
    Release,
    /// It may go, although not everything is gone: somebody has waited for long enough.
    GiveUp,
}

/// Decides. `left` is how much is still there: allocations, and jobs that run. Pure.
fn step(left: usize, waited: Duration, patience: Duration) -> Step {
    match left {
        0 => Step::Release,
        _ if waited < patience => Step::Wait,
        _ => Step::GiveUp,
    }
}

/// One look at an object that is being deleted; when to look again.
pub(super) async fn clean_up(
    found: &Guarded,
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
    match step(left, waited, context.config.cleanup_patience) {
        Step::Wait => {
            let generation = found.meta().generation.unwrap_or_default();
            let stored = workflow.and_then(|workflow| workflow.status.as_ref());
            let lingers = (waited > REPORT_LINGERING_AFTER)
                .then(|| format!("it is being deleted, and waits for {}", count(allocations, "allocation")));
            write_status(context, object, generation, stored, lingers).await?;
            return Ok(Some(CLEANUP_INTERVAL));
        }
        Step::Release => {}
        Step::GiveUp => {
            let note = format!(
                "{} and {} may still be there after {} s: look for Slurm jobs named torc-wf{}-*",
                count(allocations, "allocation"),
                count(jobs.running + jobs.leased, "job"),
                waited.as_secs(),
                summary.id
            );
            tracing::warn!(namespace = object.namespace, workflow = object.name, "{note}");
            let event_note = EventNote {
                reason: EventReason::CleanupGivenUp,
                kind: Kind::Warning,
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

/// Lets the object go. The test keeps this from removing what somebody else has put in the same place.
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

/// When somebody asked for the end of an object.
fn deleted_at(found: &Guarded) -> i64 {
    found.meta().deletion_timestamp.as_ref().map_or(0, |time| time.0.as_second())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_goes_when_nothing_is_left_or_patience_is() {
        let seconds = Duration::from_secs;
        for (left, waited, expected) in [
            (0, 0, Step::Release),
            (0, 1_000, Step::Release),
            (1, 0, Step::Wait),
            (1, 599, Step::Wait),
            (1, 600, Step::GiveUp),
        ] {
            assert_eq!(step(left, seconds(waited), seconds(600)), expected, "{left} after {waited} s");
        }
    }
}
