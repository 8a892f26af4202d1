//! The writer: checks for silent runners, long polls, and failures of the store.

use std::time::Duration;

use serde_json::{Value, json};
use torc_core::rows::{Changes, EventRow};
use torc_store::{Leader, OpenOptions, Store};

use crate::engine::writer::{PROBE, TICK_INTERVAL};
use crate::tests::{ADMIN, TestServer, VirtualClock, jobs, want};

/// Timeout that is long enough for a busy machine.
const LIMIT: Duration = Duration::from_secs(20);

/// Waits for an event of this reason.
async fn event(events: &mut tokio::sync::broadcast::Receiver<std::sync::Arc<Vec<torc_api::api::Event>>>, reason: &str) {
    let found = async { while !events.recv().await.unwrap().iter().any(|event| event.reason == reason) {} };
    tokio::time::timeout(LIMIT, found).await.unwrap_or_else(|_| panic!("there is no {reason}"));
}

// P08
#[tokio::test]
async fn jobs_of_a_silent_runner_are_ready_again_by_themselves() {
    let server = TestServer::start().await;
    server.apply("ada", "default", "w", jobs(&["j"])).await;
    let runner = server.register("node-1", None).await;
    let leased = server.sync(runner, json!({ "sequence": 1, "want": want(1) })).await;
    let lease_ms = leased["leaseMs"].as_u64().unwrap();
    assert_eq!((lease_ms, server.job_state("w", "j").await.as_str()), (120_000, "leased"));
    server.clock.advance(lease_ms);
    assert_eq!(server.job_state("w", "j").await, "leased", "questions do not look for silent runners");
    let mut events = server.engine.subscribe();
    server.clock.advance(1);
    event(&mut events, "RunnerSilent").await;
    assert_eq!(server.job_state("w", "j").await, "ready");
}

// P08
#[test]
fn silent_runners_are_looked_for_every_second() {
    assert!(
        TICK_INTERVAL <= Duration::from_secs(1),
        "a lease is over at most a second before its job is ready: {TICK_INTERVAL:?}"
    );
    assert!(TICK_INTERVAL >= Duration::from_millis(100), "an idle server does next to nothing: {TICK_INTERVAL:?}");
    assert!((Duration::from_secs(1)..=Duration::from_secs(5)).contains(&PROBE), "{PROBE:?}");
}

/// Starts a sync and returns when it waits in the writer, which is when its message is the newest of the runner.
async fn waiting(server: &TestServer, runner: i64, sequence: u64) -> tokio::task::JoinHandle<(u16, Value)> {
    let app = server.app.clone();
    let body = json!({ "sequence": sequence, "want": want(1), "waitMs": 30_000 });
    let request = axum::http::Request::post(format!("/v1/runners/{runner}/sync"))
        .header("authorization", format!("Bearer {ADMIN}"))
        .header("content-type", "application/json")
        .body(axum::body::Body::from(body.to_string()))
        .unwrap();
    let before = server.metrics.render(&[], 0);
    let task = tokio::spawn(async move {
        let response = tower::ServiceExt::oneshot(app, request).await.unwrap();
        let status = response.status().as_u16();
        let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, serde_json::from_slice(&body).unwrap())
    });
    let syncs = |text: &str| text.lines().find(|line| line.starts_with("torc_syncs_total")).unwrap().to_owned();
    let arrived = async {
        while syncs(&server.metrics.render(&[], 0)) == syncs(&before) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LIMIT, arrived).await.expect("the message has arrived");
    task
}

async fn answer(task: tokio::task::JoinHandle<(u16, Value)>) -> (u16, Value) {
    tokio::time::timeout(LIMIT, task).await.expect("the runner is answered").unwrap()
}

#[tokio::test]
async fn work_is_given_to_one_of_those_that_wait() {
    let server = TestServer::start().await;
    let (first, second) = (server.register("node-1", None).await, server.register("node-2", None).await);
    let first = waiting(&server, first, 7).await;
    let second = waiting(&server, second, 8).await;
    server.apply("ada", "default", "w", jobs(&["j"])).await;
    let mut second = Some(second);
    let (status, body) = answer(first).await;
    assert_eq!((status, &body["sequence"], &body["leases"][0]["name"]), (200, &json!(7), &json!("j")));
    let token = body["jobTokens"][0]["token"].as_str().unwrap();
    assert_eq!(body["jobTokens"].as_array().unwrap().len(), 1);
    assert_eq!(token, server.issuer.for_jobs(torc_core::ids::WorkflowId(1)), "its jobs can talk to the server");
    assert!(!second.as_ref().unwrap().is_finished(), "there is no more work");
    server.stop.waiting.cancel();
    let (status, body) = answer(second.take().unwrap()).await;
    assert_eq!(
        (status, &body["sequence"], body.get("leases")),
        (200, &json!(8), None),
        "no runner waits for a server that ends"
    );
}

#[tokio::test]
async fn leases_come_with_a_token_for_each_workflow() {
    let server = TestServer::start().await;
    for (name, names) in [("w", ["a", "b"]), ("v", ["c", "d"])] {
        server.apply("ada", "default", name, jobs(&names)).await;
    }
    let runner = server.register("node-1", None).await;
    let leased = server.sync(runner, json!({ "sequence": 1, "want": want(4) })).await;
    assert_eq!(leased["leases"].as_array().unwrap().len(), 4);
    let token = |id| json!({ "workflow": id, "token": server.issuer.for_jobs(torc_core::ids::WorkflowId(id)) });
    assert_eq!(leased["jobTokens"], json!([token(1), token(2)]));
    assert_ne!(token(1)["token"], token(2)["token"]);
}

/// Makes the next commit fail: the store gets an event with the number that the commit will use.
async fn break_next_commit(server: &TestServer) {
    let events = server.ok("GET", "/v1/events", None).await;
    let last = events["items"].as_array().unwrap().last().unwrap()["sequence"].as_i64().unwrap();
    let row = EventRow { sequence: last + 1, reason: "Foreign".to_owned(), ..EventRow::default() };
    server.store.commit(&Changes { events: vec![row], ..Changes::default() }).await.unwrap();
}

#[tokio::test]
async fn what_could_not_be_written_is_refused_and_never_happened() {
    let server = TestServer::start().await;
    server.apply("ada", "default", "w", jobs(&["j"])).await;
    let session = json!({
        "protocol": 1, "version": "t", "host": "h", "pid": 1, "scope": "session",
        "capacity": { "cpus": 1, "memoryBytes": 1 << 30, "gpus": 0, "nodes": 1 },
    });
    let runner = server.ok("POST", "/v1/runners", Some(session)).await["runner"].as_i64().unwrap();
    server.ok("POST", "/v1/workflows/w/suspend", None).await;
    let waiting = waiting(&server, runner, 1).await;
    break_next_commit(&server).await;
    let reply = server.send("POST", "/v1/workflows/w/resume", Some(ADMIN), None).await;
    assert_eq!((reply.status.as_u16(), &reply.body["code"]), (503, &json!("StoreUnavailable")), "{}", reply.text);
    let (status, body) = answer(waiting).await;
    assert_eq!((status, &body["code"]), (503, &json!("StoreUnavailable")), "a waiting request gets the error");
    let workflow = server.ok("GET", "/v1/workflows/w", None).await;
    assert_eq!(workflow["suspended"], true, "questions are answered with what is durable");
    assert!(server.metrics.render(&[], 0).contains("torc_write_failures_total 1\n"));
    // The store can be written again, which the writer must find out.
    let resumed = async {
        while !server.send("POST", "/v1/workflows/w/resume", Some(ADMIN), None).await.status.is_success() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LIMIT, resumed).await.expect("the writer goes on");
    let leased = server.sync(runner, json!({ "sequence": 2, "want": want(1) })).await;
    assert_eq!(leased["leases"][0]["name"], "j", "what this process was asked to run is remembered: {leased}");
}

#[tokio::test]
async fn a_superseded_server_answers_nothing_more() {
    let folder = tempfile::tempdir().unwrap();
    let leader = |epoch| Some(Leader { epoch, holder: format!("holder-{epoch}") });
    let options = |epoch| OpenOptions {
        path: folder.path().join("torc.db"),
        create: true,
        leader: leader(epoch),
        ..OpenOptions::default()
    };
    let (first, second) = (options(1), options(2));
    let store = Store::open(first).await.unwrap();
    let server = TestServer::start_on(store, folder, VirtualClock::default()).await;
    server.apply("ada", "default", "w", jobs(&["j"])).await;
    assert!(!server.stop.superseded.is_cancelled());
    let other = Store::open(second).await.unwrap();
    let reply = server.send("POST", "/v1/workflows/w/suspend", Some(ADMIN), None).await;
    assert_eq!(reply.status.as_u16(), 503, "{}", reply.text);
    assert!(server.stop.superseded.is_cancelled(), "the process is told to end");
    for (method, path) in [("GET", "/v1/workflows/w"), ("POST", "/v1/workflows/w/cancel")] {
        assert_eq!(server.send(method, path, Some(ADMIN), None).await.status.as_u16(), 503, "{method} {path}");
    }
    other.close().await.unwrap();
}

#[tokio::test]
async fn the_queue_is_done_before_the_writer_ends() {
    let server = TestServer::start().await;
    server.apply("ada", "default", "w", jobs(&["j"])).await;
    let engine = server.engine.clone();
    server.stop.queue.cancel();
    tokio::time::timeout(LIMIT, server.writer).await.expect("the writer ends").unwrap();
    let error = engine.find("default", "w").await.unwrap_err();
    assert_eq!(error.body.code, torc_api::error_code::ErrorCode::Stopped);
}
