#![allow(clippy::unwrap_used)]

use serde_json::json;

use super::*;
use crate::tests::{TestServer, jobs};

async fn watcher(
    server: &TestServer,
    grant: Grant,
    workflow: Option<i64>,
    last: i64,
) -> (WatchStream, mpsc::Receiver<SseEvent>) {
    let (sender, receiver) = mpsc::channel(BUFFERED_MESSAGES);
    let theirs = server.engine.theirs(&grant).await.unwrap();
    let (engine, workflow) = (server.engine.clone(), workflow.map(WorkflowId));
    (WatchStream { engine, workflow, grant, theirs, last, last_status: None, sender }, receiver)
}

fn event(sequence: i64, workflow: Option<i64>) -> Event {
    serde_json::from_value(json!({
        "sequence": sequence, "time": "", "workflow": "w", "workflowId": workflow, "reason": "Why", "message": "",
    }))
    .unwrap()
}

/// Returns the messages that were sent, as text.
fn sent(receiver: &mut mpsc::Receiver<SseEvent>) -> Vec<String> {
    let mut texts = Vec::new();
    while let Ok(event) = receiver.try_recv() {
        texts.push(format!("{event:?}"));
    }
    texts
}

async fn two() -> TestServer {
    let server = TestServer::start().await;
    server.apply("ada", "default", "one", jobs(&["j"])).await;
    server.apply("bob", "default", "two", jobs(&["j"])).await;
    server
}

#[tokio::test]
async fn each_event_is_sent_once_and_in_order() {
    let server = two().await;
    let (mut watch, mut receiver) = watcher(&server, Grant::Admin, None, 5).await;
    for (sequence, expected) in [(4, 0), (5, 0), (6, 1), (6, 0), (8, 1), (7, 0)] {
        assert!(watch.send_event(&event(sequence, Some(1))).await.is_ok());
        let sent = sent(&mut receiver);
        assert_eq!(sent.len(), expected, "event {sequence}: {sent:?}");
    }
    assert_eq!(watch.last, 8);
}

#[tokio::test]
async fn only_the_watched_workflow_and_what_is_theirs_is_sent() {
    let server = two().await;
    let ada = || Grant::Owner { user: "ada".to_owned() };
    for (grant, workflow, of, expected) in [
        (Grant::Admin, None, Some(1), 1),
        (Grant::Admin, None, None, 1),
        (Grant::Admin, Some(1), Some(1), 1),
        (Grant::Admin, Some(1), Some(2), 0),
        (Grant::Admin, Some(1), None, 0),
        (ada(), None, Some(1), 1),
        (ada(), None, Some(2), 0),
        (ada(), None, None, 0),
        (Grant::Pool, None, Some(2), 1),
    ] {
        let (mut watch, mut receiver) = watcher(&server, grant.clone(), workflow, 0).await;
        assert!(watch.send_event(&event(9, of)).await.is_ok());
        assert_eq!(sent(&mut receiver).len(), expected, "{grant:?} watches {workflow:?}, event of {of:?}");
    }
}

#[tokio::test]
async fn a_status_is_sent_when_it_has_changed() {
    let server = two().await;
    let ada = Grant::Owner { user: "ada".to_owned() };
    let (mut all, mut of_all) = watcher(&server, Grant::Admin, None, 0).await;
    let (mut own, mut of_own) = watcher(&server, ada, None, 0).await;
    let (mut one, mut of_one) = watcher(&server, Grant::Admin, Some(2), 0).await;
    for (change, expected) in [(None, [2, 1, 1]), (None, [0, 0, 0]), (Some("one"), [2, 1, 0]), (Some("two"), [2, 0, 1])]
    {
        if let Some(name) = change {
            server.ok("POST", &format!("/v1/workflows/{name}/suspend"), None).await;
        }
        for watch in [&mut all, &mut own, &mut one] {
            assert!(watch.send_status().await.is_ok());
        }
        let counts = [&mut of_all, &mut of_own, &mut of_one].map(|receiver| sent(receiver).len());
        assert_eq!(counts, expected, "after a change of {change:?}");
    }
}

#[tokio::test]
async fn a_workflow_that_is_new_is_theirs_from_its_first_event() {
    let server = two().await;
    let ada = Grant::Owner { user: "ada".to_owned() };
    let (mut watch, mut receiver) = watcher(&server, ada, None, 0).await;
    let id = server.apply("ada", "default", "third", jobs(&["j"])).await;
    assert!(watch.forward(Ok(Arc::new(vec![event(50, Some(id))]))).await.is_ok());
    assert_eq!(sent(&mut receiver).len(), 1);
    // A stream that has lagged reads from the store.
    watch.last = 0;
    assert!(watch.forward(Err(broadcast::error::RecvError::Lagged(3))).await.is_ok());
    let events = server.ok("GET", "/v1/events", None).await;
    let of_ada = events["items"].as_array().unwrap().iter().filter(|one| one["workflow"] != "two").count();
    assert_eq!(sent(&mut receiver).len(), of_ada);
    assert!(watch.forward(Err(broadcast::error::RecvError::Closed)).await.is_err());
    assert!(STATUS_DELAYS.1 <= Duration::from_secs(1), "a status is at most a second old");
}
