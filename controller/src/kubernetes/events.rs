//! Publishes the engine's events as Kubernetes Events, which `kubectl describe` shows.
//!
//! The name of an Event contains the sequence number of the engine's event, so publishing it twice is detected.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event as KubernetesEvent;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, PostParams};
use kube::core::Status;
use tokio_util::sync::CancellationToken;
use torc_api::API_VERSION;
use torc_api::api::Event;
use torc_api::event_reason::EventReason;
use torc_api::filter::EventFilter;

use super::backoff;
use super::context::{Context, Object};
use super::log_once::{LogOnce, explained};
use super::rejection::cut;

/// Maximum size of a note that an API server accepts.
const MAX_NOTE_BYTES: usize = 1_024;
/// Maximum delay before an Event is published again after an error.
const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// Number of events that one query reads.
const PAGE: u32 = 500;

/// The type of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventType {
    Normal,
    Warning,
}

/// Returns the reason and the type of the Kubernetes Event that publishes an event of the engine, if one does.
pub(crate) const fn kubernetes_reason(reason: EventReason) -> Option<(EventReason, EventType)> {
    Some(match reason {
        EventReason::WorkflowCreated | EventReason::WorkflowConfigured => {
            (EventReason::PlanAccepted, EventType::Normal)
        }
        EventReason::AllocationSubmitted
        | EventReason::AllocationStarted
        | EventReason::AllocationEnded
        | EventReason::RecoveryStarted
        | EventReason::WorkflowFinished => (reason, EventType::Normal),
        EventReason::OrphansReclaimed
        | EventReason::RecoveryExhausted
        | EventReason::RecoveryLimitReached
        | EventReason::WorkflowFailed => (reason, EventType::Warning),
        _ => return None,
    })
}

/// An Event about an object.
pub(super) struct EventNote<'a> {
    pub reason: EventReason,
    pub kind: EventType,
    pub note: &'a str,
    /// Distinguishes this Event from all others of the object.
    pub key: String,
}

/// Publishes an Event, unless it is already published.
async fn publish(client: &Client, instance: &str, object: &Object, event_note: &EventNote<'_>) -> kube::Result<()> {
    let events: Api<KubernetesEvent> = Api::namespaced(client.clone(), &object.namespace);
    let event = event(instance, object, event_note);
    match events.create(&PostParams::default(), &event).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if already_published(&status) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The cause in an error when the namespace is being deleted.
const NAMESPACE_TERMINATING: &str = "NamespaceTerminating";

/// Returns whether the Event exists already, or cannot be created because its namespace is being deleted.
fn already_published(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 409 || causes.into_iter().any(|cause| cause.reason == NAMESPACE_TERMINATING)
}

/// Publishes an Event if the RBAC rules allow it: reconciliation does not depend on this permission.
pub(super) async fn publish_if_allowed(
    context: &Context,
    object: &Object,
    event_note: &EventNote<'_>,
) -> kube::Result<()> {
    match publish(&context.client, &context.config.identity, object, event_note).await {
        Err(error @ kube::Error::Api(_)) if is_forbidden(&error) => {
            let (namespace, name, reason) = (&object.namespace, &object.name, event_note.reason.as_str());
            tracing::warn!(namespace, workflow = name, reason, error = explained(&error), "event was not published");
            Ok(())
        }
        published => published,
    }
}

fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_forbidden())
}

fn event(instance: &str, object: &Object, event_note: &EventNote<'_>) -> KubernetesEvent {
    let of_object = object.uid.split('-').next().unwrap_or_default();
    KubernetesEvent {
        metadata: ObjectMeta {
            name: Some(format!("{}.{of_object}.{}", object.name, event_note.key)),
            namespace: Some(object.namespace.clone()),
            ..ObjectMeta::default()
        },
        action: Some("Reconcile".to_owned()),
        event_time: Some(MicroTime(Timestamp::now())),
        note: Some(cut(event_note.note, MAX_NOTE_BYTES)),
        reason: Some(event_note.reason.to_string()),
        regarding: Some(ObjectReference {
            api_version: Some(API_VERSION.to_owned()),
            kind: Some("Workflow".to_owned()),
            name: Some(object.name.clone()),
            namespace: Some(object.namespace.clone()),
            uid: Some(object.uid.clone()),
            ..ObjectReference::default()
        }),
        reporting_controller: Some(super::FIELD_MANAGER.to_owned()),
        reporting_instance: Some(cut(instance, 128)),
        type_: Some(match event_note.kind {
            EventType::Normal => "Normal".to_owned(),
            EventType::Warning => "Warning".to_owned(),
        }),
        ..KubernetesEvent::default()
    }
}

/// Publishes the engine's events, until `stop`.
pub(super) async fn run(context: std::sync::Arc<Context>, stop: CancellationToken) {
    let mut log_once = LogOnce::default();
    let mut failures = 0_u32;
    loop {
        match publish_new_events(&context).await {
            Ok(()) => {
                log_once.reset();
                failures = 0;
            }
            Err(said) => {
                if log_once.should_log(&said) {
                    tracing::warn!(error = said, "events were not published");
                }
                failures = failures.saturating_add(1);
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(backoff::after(failures).min(MAX_BACKOFF)) => {}
        }
    }
}

/// Publishes all events since the last call.
pub(super) async fn publish_new_events(context: &Context) -> Result<(), String> {
    let mut cursor = context.engine.event_cursor().await.map_err(|error| error.to_string())?;
    loop {
        let query = EventFilter { after: Some(cursor), limit: Some(PAGE), ..EventFilter::default() };
        let page = context.engine.events(&query).await.map_err(|error| error.to_string())?;
        let Some(last) = page.items.last().map(|event| event.sequence) else { return Ok(()) };
        for event in &page.items {
            if !publish_one(context, event).await? {
                return note(context, event.sequence - 1, cursor).await;
            }
        }
        note(context, last, cursor).await?;
        cursor = last;
    }
}

async fn note(context: &Context, sequence: i64, before: i64) -> Result<(), String> {
    if sequence <= before {
        return Ok(());
    }
    context.engine.set_event_cursor(sequence).await.map_err(|error| error.to_string())
}

/// Publishes one event. Returns false if its object is not known yet: the first reconcile of the object adds it.
async fn publish_one(context: &Context, event: &Event) -> Result<bool, String> {
    // A reason of a later version has no Event.
    let published = event.reason.parse().ok().and_then(kubernetes_reason);
    let (Some((reason, kind)), Some(workflow)) = (published, event.workflow_id) else { return Ok(true) };
    let Some(object) = context.object_of(workflow).await else { return Ok(context.has_listed_all()) };
    if !context.leadership.is_held() {
        return Ok(false);
    }
    let event_note = EventNote { reason, kind, note: &event.message, key: format!("{:x}", event.sequence) };
    publish(&context.client, &context.config.identity, &object, &event_note)
        .await
        .map_err(|error| explained(&error))?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use strum::IntoEnumIterator as _;

    use super::*;

    #[test]
    fn existing_events_and_deleted_namespaces_are_no_errors() {
        let status = |code, causes: &[&str]| -> Status {
            let causes: Vec<_> = causes.iter().map(|reason| serde_json::json!({ "reason": reason })).collect();
            let details = serde_json::from_value(serde_json::json!({ "causes": causes })).ok();
            Status { code, details, ..Status::default() }
        };
        assert!(already_published(&status(409, &[])));
        assert!(already_published(&status(403, &["NamespaceTerminating"])));
        assert!(!already_published(&status(403, &[])), "that is a missing right");
        assert!(!already_published(&status(500, &["UnexpectedServerResponse"])));
    }

    #[test]
    fn what_is_told_twice_has_the_same_name() {
        let object = Object { namespace: "lab".to_owned(), name: "sweep".to_owned(), uid: "1a2b-3c".to_owned() };
        let event_note = |key: &str| EventNote {
            reason: EventReason::PlanAccepted,
            kind: EventType::Normal,
            note: "n",
            key: key.to_owned(),
        };
        let name = |key: &str| event("pod", &object, &event_note(key)).metadata.name;
        assert_eq!(name("ff"), Some("sweep.1a2b.ff".to_owned()));
        assert_ne!(name("ff"), name("100"));
        let told = event("pod", &object, &EventNote { kind: EventType::Warning, ..event_note("1") });
        assert_eq!((told.type_.as_deref(), told.note.as_deref()), (Some("Warning"), Some("n")));
        assert_eq!(event("pod", &object, &event_note("1")).type_.as_deref(), Some("Normal"));
        let regarding = told.regarding.unwrap_or_default();
        assert_eq!((regarding.kind.as_deref(), regarding.uid.as_deref()), (Some("Workflow"), Some("1a2b-3c")));
        let long = "x".repeat(5_000);
        let note = event("pod", &object, &EventNote { note: &long, ..event_note("1") }).note;
        assert!(note.is_some_and(|note| note.len() <= MAX_NOTE_BYTES));
    }

    #[test]
    fn some_events_of_the_engine_are_published() {
        use EventType::{Normal, Warning};
        let published = EventReason::iter().filter_map(|reason| Some((reason, kubernetes_reason(reason)?)));
        let expected = [
            (EventReason::WorkflowCreated, (EventReason::PlanAccepted, Normal)),
            (EventReason::WorkflowConfigured, (EventReason::PlanAccepted, Normal)),
            (EventReason::WorkflowFinished, (EventReason::WorkflowFinished, Normal)),
            (EventReason::WorkflowFailed, (EventReason::WorkflowFailed, Warning)),
            (EventReason::RecoveryStarted, (EventReason::RecoveryStarted, Normal)),
            (EventReason::RecoveryLimitReached, (EventReason::RecoveryLimitReached, Warning)),
            (EventReason::RecoveryExhausted, (EventReason::RecoveryExhausted, Warning)),
            (EventReason::AllocationSubmitted, (EventReason::AllocationSubmitted, Normal)),
            (EventReason::AllocationStarted, (EventReason::AllocationStarted, Normal)),
            (EventReason::AllocationEnded, (EventReason::AllocationEnded, Normal)),
            (EventReason::OrphansReclaimed, (EventReason::OrphansReclaimed, Warning)),
        ];
        assert_eq!(published.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn an_event_has_every_field_that_an_api_server_wants() {
        let object = Object { namespace: "lab".to_owned(), name: "sweep".to_owned(), uid: "1a2b-3c".to_owned() };
        let event_note =
            EventNote { reason: EventReason::WorkflowFailed, kind: EventType::Normal, note: "n", key: "k".to_owned() };
        let event = event(&"p".repeat(200), &object, &event_note);
        let regarding = event.regarding.unwrap_or_default();
        assert_eq!(event.metadata.namespace.as_deref(), Some("lab"));
        assert_eq!((event.reason.as_deref(), event.action.as_deref()), (Some("WorkflowFailed"), Some("Reconcile")));
        assert_eq!((regarding.name.as_deref(), regarding.namespace.as_deref()), (Some("sweep"), Some("lab")));
        assert_eq!(regarding.api_version.as_deref(), Some("torc.dev/v1alpha1"));
        assert_eq!(event.reporting_controller.as_deref(), Some("torc-controller"));
        assert!(event.reporting_instance.is_some_and(|instance| instance.len() == 128) && event.event_time.is_some());
    }
}
