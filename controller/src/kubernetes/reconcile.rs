//! One pass for one object: its document is what the engine should have, the engine's status is what it should say.
//!
//! The document goes through the same `apply` as `torc apply` without a cluster. What is decided is in the pure modules beside
//! this one; here are the calls.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Preconditions};
use kube::runtime::controller::Action;
use serde_json::json;
use torc_api::error_code::ErrorKind;
use torc_api::API_VERSION;
use torc_api::api::ApplyRequest;
use torc_api::cluster::LOCAL;
use torc_api::document::{Metadata, WorkflowDocument};
use torc_api::size::too_many_bytes;
use torc_api::token::Grant;
use torc_api::workflow::{Workflow, WorkflowSpec};
use torc_core::ids::WorkflowId;
use torc_core::time::rfc3339;
use tracing::Instrument as _;

use super::desk::{Accepted, Desk, Guarded, Memory, Object, object};
use super::events::{self, Kind, Tale};
use super::lifetime::{Lifetime, lifetime, seconds};
use super::rejection::{Reason, Rejection};
use super::sources::{self, Embedded};
use super::status::left_to_other;
use super::status_writer::{NOT_LEADING_INTERVAL, Trouble, apply, write_status};
use super::{FINALIZER, UID, WORKING_DIR, backoff, cleanup};
use crate::clock;
use crate::metrics::Reconciler;

/// Tables in ConfigMaps are looked at so often.
const SOURCES_AGE: Duration = Duration::from_secs(60);

/// One pass.
pub(super) async fn reconcile(found: Arc<Guarded>, desk: Arc<Desk>) -> Result<Action, Trouble> {
    let Some(object) = object(&found) else { return Ok(Action::await_change()) };
    if !desk.leadership.is_held() {
        return Ok(Action::requeue(NOT_LEADING_INTERVAL));
    }
    let span = tracing::info_span!("reconcile", namespace = object.namespace, workflow = object.name);
    let start = Instant::now();
    let passed = pass(&found, &object, &desk).instrument(span).await;
    desk.engine.metrics().reconciled(Reconciler::Workflow, start.elapsed());
    let wish = passed?;
    desk.remember(&object, Memory::succeeded);
    Ok(Action::requeue(backoff::soonest([wish])))
}

/// After a pass that was cut short: each object waits for itself, twice as long every time.
pub(super) fn after_trouble(found: Arc<Guarded>, trouble: &Trouble, desk: Arc<Desk>) -> Action {
    let Some(object) = object(&found) else { return Action::await_change() };
    let said = trouble.to_string();
    let (mut failures, mut is_news) = (0, false);
    desk.remember(&object, |memory| (failures, is_news) = memory.failed(&said));
    if is_news {
        tracing::warn!(namespace = object.namespace, workflow = object.name, error = said, "not reconciled");
    } else {
        tracing::debug!(namespace = object.namespace, workflow = object.name, failures, error = said, "not reconciled");
    }
    Action::requeue(backoff::after(failures))
}

/// When to look again.
async fn pass(found: &Guarded, object: &Object, desk: &Desk) -> Result<Option<Duration>, Trouble> {
    let workflow = match &found.0 {
        Ok(workflow) => workflow,
        Err(unreadable) if unreadable.metadata.deletion_timestamp.is_some() => {
            return cleanup::clean_up(found, None, object, desk).await;
        }
        Err(unreadable) => {
            let generation = unreadable.metadata.generation.unwrap_or_default();
            reject(desk, object, generation, Rejection::new(Reason::InvalidSpec, unreadable.error.clone()));
            return write_status(desk, object, generation, None, None).await;
        }
    };
    let before = workflow.status.as_ref();
    if workflow.metadata.deletion_timestamp.is_some() {
        return cleanup::clean_up(found, Some(workflow), object, desk).await;
    }
    let generation = workflow.metadata.generation.unwrap_or_default();
    if workflow.spec.is_managed_by_other() {
        leave_to_other(desk, object, workflow, generation).await?;
        return Ok(None);
    }
    if !workflow.finalizers().iter().any(|finalizer| finalizer == FINALIZER) {
        add_finalizer(desk, object).await?;
    }
    let memory = desk.recall(object, before);
    let again = bring_up_to_date(desk, object, workflow, generation, &memory).await?;
    let status = write_status(desk, object, generation, before, None).await?;
    let expiry = expire(desk, object, &workflow.spec).await?;
    Ok([again, status, expiry].into_iter().flatten().min())
}

/// Gives the engine what the object says, if it has not got it. When to try again, if something else has to happen first.
async fn bring_up_to_date(
    desk: &Desk,
    object: &Object,
    workflow: &Workflow,
    generation: i64,
    memory: &Memory,
) -> Result<Option<Duration>, Trouble> {
    let maps = desk.config.sources.then(|| Api::<ConfigMap>::namespaced(desk.client.clone(), &object.namespace));
    let spec = &workflow.spec;
    let has_sources = !spec.sources.is_empty();
    if let Some(accepted) = memory.accepted.as_ref().filter(|accepted| accepted.generation == generation) {
        let versions = match &maps {
            Some(maps) if has_sources => sources::versions(maps, spec).await?,
            _ => Vec::new(),
        };
        if versions == accepted.sources {
            return Ok(has_sources.then_some(SOURCES_AGE));
        }
    }
    let is_final = |(refused, rejection): &(i64, Rejection)| *refused == generation && !rejection.reason.may_pass();
    if memory.rejected.as_ref().is_some_and(is_final) {
        return Ok(None);
    }
    match accept(desk, object, workflow, maps.as_ref()).await? {
        Ok(sources) => {
            let accepted = Some(Accepted { generation, sources });
            desk.remember(object, |memory| (memory.accepted, memory.rejected) = (accepted, None));
            Ok(has_sources.then_some(SOURCES_AGE))
        }
        Err(rejection) => {
            let again = rejection.reason.may_pass().then(|| backoff::after(memory.failures + 3));
            let is_news = memory.rejected.as_ref() != Some(&(generation, rejection.clone()));
            if is_news {
                tell_rejection(desk, object, generation, &rejection).await?;
            }
            reject(desk, object, generation, rejection);
            Ok(again)
        }
    }
}

fn reject(desk: &Desk, object: &Object, generation: i64, rejection: Rejection) {
    desk.remember(object, |memory| memory.rejected = Some((generation, rejection)));
}

async fn tell_rejection(desk: &Desk, object: &Object, generation: i64, rejection: &Rejection) -> Result<(), Trouble> {
    let note = format!("{}: {}", rejection.reason.name(), rejection.message);
    let key = format!("rejected-{generation}-{}", rejection.reason.name().to_lowercase());
    let tale = Tale { reason: "PlanRejected", kind: Kind::Warning, note: &note, key };
    Ok(events::tell_if_allowed(desk, object, &tale).await?)
}

/// Applies the document; the versions of its tables, or why it is not accepted.
async fn accept(
    desk: &Desk,
    object: &Object,
    workflow: &Workflow,
    maps: Option<&Api<ConfigMap>>,
) -> Result<Result<Vec<String>, Rejection>, Trouble> {
    let size = serde_json::to_string(&workflow.spec).map_or(0, |text| text.len());
    if let Some(problem) = too_many_bytes(size) {
        return Ok(Err(Rejection::of_problems(&[problem])));
    }
    if let Some(name) = workflow.spec.slurm_cluster.as_deref().filter(|name| *name != LOCAL)
        && desk.engine.clusters().await?.iter().all(|cluster| cluster.name != name)
    {
        let message = format!("there is no SlurmCluster '{name}'");
        return Ok(Err(Rejection::new(Reason::ClusterNotFound, message)));
    }
    let (spec, versions) = match sources::read(maps, &workflow.spec).await? {
        Embedded::Whole(spec, versions) => (*spec, versions),
        Embedded::Refused(rejection) => return Ok(Err(rejection)),
    };
    make_room(desk, object).await?;
    let owner = spec.user.clone().unwrap_or_else(|| object.namespace.clone());
    let annotation = workflow.annotations().get(WORKING_DIR).cloned();
    let request = ApplyRequest {
        document: document(object, workflow.labels(), spec),
        working_dir: annotation.unwrap_or_else(|| desk.config.working_dir.clone()),
        dry_run: false,
        store_only: false,
    };
    match desk.engine.apply(request, &owner, &Grant::Admin).await {
        Ok(applied) => {
            desk.remember(object, |memory| memory.workflow = applied.id.map(WorkflowId));
            Ok(Ok(versions))
        }
        Err(error) if error.kind() == ErrorKind::Invalid => {
            let problems = &error.body.problems;
            let rejection = match problems.is_empty() {
                true => Rejection::new(Reason::InvalidSpec, error.body.message.clone()),
                false => Rejection::of_problems(problems),
            };
            Ok(Err(rejection))
        }
        Err(error) => Err(error.into()),
    }
}

/// The document that stands for an object in the store. Its annotation tells an object from a later one of the same name.
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

/// What is left of an earlier object of the same name goes.
async fn make_room(desk: &Desk, object: &Object) -> Result<(), Trouble> {
    let Some(stored) = desk.stored(object).await? else { return Ok(()) };
    let uid = stored.document.and_then(|document| document.metadata.annotations.get(UID).cloned());
    if uid.is_some_and(|uid| uid != object.uid) {
        tracing::info!(
            namespace = object.namespace,
            workflow = object.name,
            "replacing an earlier workflow of this name"
        );
        desk.engine.delete(WorkflowId(stored.id)).await?;
    }
    Ok(())
}

async fn add_finalizer(desk: &Desk, object: &Object) -> Result<(), Trouble> {
    let patch = json!({
        "apiVersion": API_VERSION,
        "kind": "Workflow",
        "metadata": {"name": object.name, "uid": object.uid, "finalizers": [FINALIZER]},
    });
    Ok(apply(desk, object, &patch, false).await?)
}

/// Says once that it is left alone; everything else in its status is the other controller's.
async fn leave_to_other(desk: &Desk, object: &Object, workflow: &Workflow, generation: i64) -> Result<(), Trouble> {
    let stated = workflow.status.iter().flat_map(|status| &status.conditions);
    if stated.into_iter().any(|condition| condition.reason == "ManagedByOther") {
        return Ok(());
    }
    let manager = workflow.spec.managed_by.as_deref().unwrap_or_default();
    let condition = left_to_other(generation, manager, &rfc3339(clock::now().wall_ms));
    let patch = json!({
        "apiVersion": API_VERSION,
        "kind": "Workflow",
        "metadata": {"name": object.name, "uid": object.uid},
        "status": {"conditions": [condition]},
    });
    Ok(apply(desk, object, &patch, true).await?)
}

/// Deletes an object whose time is over; when that will be.
async fn expire(desk: &Desk, object: &Object, spec: &WorkflowSpec) -> Result<Option<Duration>, Trouble> {
    if spec.ttl_seconds_after_finished.is_none() {
        return Ok(None);
    }
    let summary = desk.summary(object).await?;
    let completed = summary.and_then(|summary| seconds(summary.status.completion_time.as_deref()?));
    match lifetime(spec.ttl_seconds_after_finished, completed, clock::now().wall_ms / 1_000) {
        Lifetime::Unlimited => Ok(None),
        Lifetime::Ends { seconds } => Ok(Some(Duration::from_secs(seconds.unsigned_abs()))),
        Lifetime::Over => {
            let api: Api<Workflow> = Api::namespaced(desk.client.clone(), &object.namespace);
            let preconditions = Preconditions { uid: Some(object.uid.clone()), resource_version: None };
            api.delete(&object.name, &DeleteParams::background().preconditions(preconditions)).await?;
            Ok(None)
        }
    }
}
