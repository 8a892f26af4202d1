//! Events of the engine are published as Events of their objects.

use tokio_util::sync::CancellationToken;

use super::super::events::publish_new_events;
use super::super::reconcile::reconcile;
use super::*;

fn published(calls: &[Call]) -> Vec<(String, String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let events = calls.iter().filter(|call| call.method == "POST" && call.path.contains("/events"));
    events
        .map(|call| (text(&call.body["reason"]), text(&call.body["type"]), text(&call.body["metadata"]["name"])))
        .collect()
}

#[tokio::test]
async fn each_event_is_told_once_of_its_object() {
    let mut fixture = Fixture::new().await;
    fixture.context.readiness.lists();
    let found = fixture.list_object(workflow("w", 1, jobs(&["a"])));
    fixture.server.apply("ada", "lab", "plain", crate::tests::jobs(&["a"])).await;
    reconcile(found, Arc::clone(&fixture.context)).await.unwrap();
    fixture.api.calls();
    publish_new_events(&fixture.context).await.unwrap();
    assert_eq!(
        fixture.server.engine.event_cursor().await.unwrap(),
        0,
        "whose the first one is will be known when all are listed"
    );
    fixture.context.readiness.listed();
    publish_new_events(&fixture.context).await.unwrap();
    let events = fixture.server.ok("GET", "/v1/events", None).await;
    let created = events["items"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["workflow"] == "w" && one["reason"] == "WorkflowCreated");
    let sequence = created.unwrap()["sequence"].as_i64().unwrap();
    let name = format!("w.1a2b.{sequence:x}");
    assert_eq!(published(&fixture.api.calls()), [("PlanAccepted".to_owned(), "Normal".to_owned(), name)]);
    let last = events["items"].as_array().unwrap().last().unwrap()["sequence"].as_i64().unwrap();
    assert_eq!(fixture.server.engine.event_cursor().await.unwrap(), last);
    publish_new_events(&fixture.context).await.unwrap();
    assert!(fixture.api.lines().is_empty());
}

#[tokio::test]
async fn an_event_that_was_not_told_is_told_the_next_time() {
    let mut fixture = Fixture::new().await;
    let found = fixture.list_object(workflow("w", 1, jobs(&["a"])));
    reconcile(found, Arc::clone(&fixture.context)).await.unwrap();
    let (code, body) = failure(500, "InternalError", "no");
    fixture.api.answers("POST", "/apis/events.k8s.io", code, body);
    assert!(publish_new_events(&fixture.context).await.is_err());
    assert_eq!(fixture.server.engine.event_cursor().await.unwrap(), 0);
    let (code, body) = failure(409, "AlreadyExists", "it exists");
    fixture.api.answers("POST", "/apis/events.k8s.io", code, body);
    publish_new_events(&fixture.context).await.unwrap();
    assert!(fixture.server.engine.event_cursor().await.unwrap() > 0, "an Event that exists counts as published");
}

#[tokio::test]
async fn nothing_is_told_without_leadership() {
    let mut fixture = Fixture::with(|_| {}, Leadership::of_lease(0, CancellationToken::new())).await;
    fixture.list_object(workflow("w", 1, jobs(&["a"])));
    fixture.server.apply("ada", "lab", "w", crate::tests::jobs(&["a"])).await;
    publish_new_events(&fixture.context).await.unwrap();
    assert!(fixture.api.lines().is_empty());
    assert_eq!(fixture.server.engine.event_cursor().await.unwrap(), 0);
}
