//! Reconciles one object: applies its document to the engine and writes the engine's status to it.
//!
//! The document takes the same `apply` as `torc apply` without a cluster. Pure modules make the decisions; this module
//! makes the calls.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Preconditions};
use kube::runtime::controller::Action;
use serde_json::json;
use torc_api::API_VERSION;
use torc_api::api::ApplyRequest;
use torc_api::cluster::LOCAL;
use torc_api::condition::ConditionReason;
use torc_api::document::{Metadata, WorkflowDocument};
use torc_api::error_code::ErrorKind;
use torc_api::event_reason::EventReason;
use torc_api::size::too_many_bytes;
use torc_api::token::Grant;
use torc_api::workflow::{Workflow, WorkflowSpec};
use torc_core::ids::WorkflowId;
use torc_core::time::rfc3339;
use tracing::Instrument as _;

use super::context::{AcceptedGeneration, Context, GuardedWorkflow, Object, ObjectState, object};
use super::events::{self, EventNote, EventType};
use super::rejection::Rejection;
use super::sources::{self, Embedded};
use super::status::unmanaged_status;
use super::status_writer::{NOT_LEADING_INTERVAL, ReconcileError, apply, write_status};
use super::ttl::{Lifetime, lifetime, seconds};
use super::{FINALIZER, UID, WORKING_DIR, backoff, cleanup};
use crate::clock;
use crate::metrics::Reconciler;

/// Interval between reads of tables in ConfigMaps.
const SOURCES_INTERVAL: Duration = Duration::from_secs(60);

/// Reconciles an object and returns the delay until the next time.
pub(super) async fn reconcile(found: Arc<GuardedWorkflow>, context: Arc<Context>) -> Result<Action, ReconcileError> {
    let Some(object) = object(&found) else { return Ok(Action::await_change()) };
    if !context.leadership.is_held() {
        return Ok(Action::requeue(NOT_LEADING_INTERVAL));
    }
    let span = tracing::info_span!("reconcile", namespace = object.namespace, workflow = object.name);
    let start = Instant::now();
    let passed = pass(&found, &object, &context).instrument(span).await;
    context.engine.metrics().reconciled(Reconciler::Workflow, start.elapsed());
    let delay = passed?;
    context.remember(&object, ObjectState::succeeded);
    Ok(Action::requeue(backoff::soonest([delay])))
}

/// Returns the back-off after a failed reconcile. Each object has its own.
pub(super) fn after_error(found: Arc<GuardedWorkflow>, error: &ReconcileError, context: Arc<Context>) -> Action {
    let Some(object) = object(&found) else { return Action::await_change() };
    let said = error.to_string();
    let (mut failures, mut should_log) = (0, false);
    context.remember(&object, |memory| (failures, should_log) = memory.failed(&said));
    if should_log {
        tracing::warn!(namespace = object.namespace, workflow = object.name, error = said, "not reconciled");
    } else {
        tracing::debug!(namespace = object.namespace, workflow = object.name, failures, error = said, "not reconciled");
    }
    Action::requeue(backoff::after(failures))
}

/// Runs the steps of a reconcile and returns the delay until the next one.
async fn pass(found: &GuardedWorkflow, object: &Object, context: &Context) -> Result<Option<Duration>, ReconcileError> {
    let workflow = match &found.0 {
        Ok(workflow) => workflow,
        Err(unreadable) if unreadable.metadata.deletion_timestamp.is_some() => {
            return cleanup::clean_up(found, None, object, context).await;
        }
        Err(unreadable) => {
            let generation = unreadable.metadata.generation.unwrap_or_default();
            reject(context, object, generation, Rejection::new(ConditionReason::InvalidSpec, unreadable.error.clone()));
            return write_status(context, object, generation, None, None).await;
        }
    };
    let before = workflow.status.as_ref();
    if workflow.metadata.deletion_timestamp.is_some() {
        return cleanup::clean_up(found, Some(workflow), object, context).await;
    }
    let generation = workflow.metadata.generation.unwrap_or_default();
    if workflow.spec.is_managed_by_other() {
        publish_unmanaged(context, object, workflow, generation).await?;
        return Ok(None);
    }
    if !workflow.finalizers().iter().any(|finalizer| finalizer == FINALIZER) {
        add_finalizer(context, object).await?;
    }
    let memory = context.recall(object, before);
    let again = apply_if_newer(context, object, workflow, generation, &memory).await?;
    let status = write_status(context, object, generation, before, None).await?;
    tracing::debug!(generation, "reconciled");
    let expiry = expire(context, object, &workflow.spec).await?;
    Ok([again, status, expiry].into_iter().flatten().min())
}

/// Applies the object's generation unless the engine has it. Returns a delay if something else must happen first.
async fn apply_if_newer(
    context: &Context,
    object: &Object,
    workflow: &Workflow,
    generation: i64,
    memory: &ObjectState,
) -> Result<Option<Duration>, ReconcileError> {
    let maps = context.config.sources.then(|| Api::<ConfigMap>::namespaced(context.client.clone(), &object.namespace));
    let spec = &workflow.spec;
    let has_sources = !spec.sources.is_empty();
    if let Some(accepted) = memory.accepted.as_ref().filter(|accepted| accepted.generation == generation) {
        let versions = match &maps {
            Some(maps) if has_sources => sources::versions(maps, spec).await?,
            _ => Vec::new(),
        };
        if versions == accepted.sources {
            return Ok(has_sources.then_some(SOURCES_INTERVAL));
        }
    }
    let is_final = |(refused, rejection): &(i64, Rejection)| *refused == generation && !rejection.may_pass();
    if memory.rejected.as_ref().is_some_and(is_final) {
        return Ok(None);
    }
    match accept(context, object, workflow, maps.as_ref()).await? {
        Ok(sources) => {
            let accepted = Some(AcceptedGeneration { generation, sources });
            context.remember(object, |memory| (memory.accepted, memory.rejected) = (accepted, None));
            Ok(has_sources.then_some(SOURCES_INTERVAL))
        }
        Err(rejection) => {
            let again = rejection.may_pass().then(|| backoff::after(memory.failures + 3));
            let should_log = memory.rejected.as_ref() != Some(&(generation, rejection.clone()));
            if should_log {
                publish_rejection(context, object, generation, &rejection).await?;
            }
            reject(context, object, generation, rejection);
            Ok(again)
        }
    }
}

fn reject(context: &Context, object: &Object, generation: i64, rejection: Rejection) {
    context.remember(object, |memory| memory.rejected = Some((generation, rejection)));
}

async fn publish_rejection(
    context: &Context,
    object: &Object,
    generation: i64,
    rejection: &Rejection,
) -> Result<(), ReconcileError> {
    let note = format!("{}: {}", rejection.reason, rejection.message);
    let key = format!("rejected-{generation}-{}", rejection.reason.as_str().to_lowercase());
    let event_note = EventNote { reason: EventReason::PlanRejected, kind: EventType::Warning, note: &note, key };
    Ok(events::publish_if_allowed(context, object, &event_note).await?)
}

/// Applies the document and returns the versions of its tables, or the reason for its rejection.
async fn accept(
    context: &Context,
    object: &Object,
    workflow: &Workflow,
    maps: Option<&Api<ConfigMap>>,
) -> Result<Result<Vec<String>, Rejection>, ReconcileError> {
    let size = serde_json::to_string(&workflow.spec).map_or(0, |text| text.len());
    if let Some(problem) = too_many_bytes(size) {
        return Ok(Err(Rejection::of_problems(&[problem])));
    }
    if let Some(name) = workflow.spec.slurm_cluster.as_deref().filter(|name| *name != LOCAL)
        && context.engine.clusters().await?.iter().all(|cluster| cluster.name != name)
    {
        let message = format!("there is no SlurmCluster '{name}'");
        return Ok(Err(Rejection::new(ConditionReason::ClusterNotFound, message)));
    }
    let (spec, versions) = match sources::read(maps, &workflow.spec).await? {
        Embedded::Whole(spec, versions) => (*spec, versions),
        Embedded::Refused(rejection) => return Ok(Err(rejection)),
    };
    replace_stale(context, object).await?;
    let owner = spec.user.clone().unwrap_or_else(|| object.namespace.clone());
    let annotation = workflow.annotations().get(WORKING_DIR).cloned();
    let request = ApplyRequest {
        document: document(object, workflow.labels(), spec),
        working_dir: annotation.unwrap_or_else(|| context.config.working_dir.clone()),
        dry_run: false,
        store_only: false,
    };
    match context.engine.apply(request, &owner, &Grant::Admin).await {
        Ok(applied) => {
            context.remember(object, |memory| memory.workflow = applied.id.map(WorkflowId));
            Ok(Ok(versions))
        }
        Err(error) if error.kind() == ErrorKind::Invalid => {
            let problems = &error.body.problems;
            let rejection = match problems.is_empty() {
                true => Rejection::new(ConditionReason::InvalidSpec, error.body.message.clone()),
                false => Rejection::of_problems(problems),
            };
            Ok(Err(rejection))
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns the document that the store keeps for an object. Its annotation distinguishes later objects of the same name.
fn document(object: &Object, labels: &BTreeMap<String, String>, spec: WorkflowSpec) -> WorkflowDocument {
    WorkflowDocument {
        api_version: API_VERSION.to_owned(),
        metadata: Metadata {
            name: object.name.clone(),
            namespace: Some(object.namespace.clone()),
            labels: labels.clone(),
            annotations: BTreeMap::from([(UID.to_owned(), object.uid.clone())]),
        },
        spec,
    }
}

/// Deletes the workflow of an earlier object of the same name.
async fn replace_stale(context: &Context, object: &Object) -> Result<(), ReconcileError> {
    let Some(stored) = context.stored(object).await? else { return Ok(()) };
    let uid = stored.document.and_then(|document| document.metadata.annotations.get(UID).cloned());
    if uid.is_some_and(|uid| uid != object.uid) {
        tracing::info!(
            namespace = object.namespace,
            workflow = object.name,
            "replacing an earlier workflow of this name"
        );
        context.engine.delete(WorkflowId(stored.id)).await?;
    }
    Ok(())
}

async fn add_finalizer(context: &Context, object: &Object) -> Result<(), ReconcileError> {
    let patch = json!({
        "apiVersion": API_VERSION,
        "kind": "Workflow",
        "metadata": {"name": object.name, "uid": object.uid, "finalizers": [FINALIZER]},
    });
    Ok(apply(context, object, &patch, false).await?)
}

/// Writes the one condition of an object that another controller manages, once.
async fn publish_unmanaged(
    context: &Context,
    object: &Object,
    workflow: &Workflow,
    generation: i64,
) -> Result<(), ReconcileError> {
    let stated = workflow.status.iter().flat_map(|status| &status.conditions);
    if stated.into_iter().any(|condition| condition.has_reason(&[ConditionReason::ManagedByOther])) {
        return Ok(());
    }
    let manager = workflow.spec.managed_by.as_deref().unwrap_or_default();
    let condition = unmanaged_status(generation, manager, &rfc3339(clock::now().wall_ms));
    let patch = json!({
        "apiVersion": API_VERSION,
        "kind": "Workflow",
        "metadata": {"name": object.name, "uid": object.uid},
        "status": {"conditions": [condition]},
    });
    Ok(apply(context, object, &patch, true).await?)
}

/// Deletes an object whose time to live is over, or returns the delay until then.
async fn expire(context: &Context, object: &Object, spec: &WorkflowSpec) -> Result<Option<Duration>, ReconcileError> {
    if spec.ttl_seconds_after_finished.is_none() {
        return Ok(None);
    }
    let summary = context.summary(object).await?;
    let completed = summary.and_then(|summary| seconds(summary.status.completion_time.as_deref()?));
    match lifetime(spec.ttl_seconds_after_finished, completed, clock::now().wall_ms / 1_000) {
        Lifetime::Unlimited => Ok(None),
        Lifetime::Ends { seconds } => Ok(Some(Duration::from_secs(seconds.unsigned_abs()))),
        Lifetime::Over => {
            let api: Api<Workflow> = Api::namespaced(context.client.clone(), &object.namespace);
            let preconditions = Preconditions { uid: Some(object.uid.clone()), resource_version: None };
            api.delete(&object.name, &DeleteParams::background().preconditions(preconditions)).await?;
            Ok(None)
        }
    }
}
