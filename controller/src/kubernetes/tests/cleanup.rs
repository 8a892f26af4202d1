//! Deletion of an object: its allocations and jobs end first, and the store keeps or deletes its workflow.

use super::super::reconcile::reconcile;
use super::*;

/// Returns an object that was deleted this number of seconds ago.
fn deleted(seconds_ago: i64, spec: Value) -> Value {
    let mut object = workflow("w", 1, spec);
    let time = torc_core::time::rfc3339(crate::clock::now().wall_ms - seconds_ago * 1_000);
    object["metadata"]["deletionTimestamp"] = json!(format!("{}Z", &time[..19]));
    object["metadata"]["finalizers"] = json!(["first", "torc.dev/cleanup"]);
    object
}

async fn pass(fixture: &Fixture, found: &Arc<GuardedWorkflow>) -> kube::runtime::controller::Action {
    reconcile(Arc::clone(found), Arc::clone(&fixture.context)).await.unwrap()
}

fn released(calls: &[Call]) -> Option<&Call> {
    calls.iter().find(|call| call.method == "PATCH" && !call.path.contains("/status"))
}

async fn is_stored(fixture: &Fixture) -> bool {
    fixture.server.engine.find("lab", "w").await.is_ok()
}

/// Returns a fixture whose object has one job that runs.
async fn running(ttl: Option<i64>) -> (Fixture, Value, i64, Value) {
    let mut fixture = Fixture::new().await;
    let mut spec = jobs(&["a"]);
    if let Some(ttl) = ttl {
        spec["ttlSecondsAfterFinished"] = json!(ttl);
    }
    let found = fixture.list_object(workflow("w", 1, spec.clone()));
    pass(&fixture, &found).await;
    let runner = fixture.server.register("node", None).await;
    let leased = fixture.server.sync(runner, json!({ "sequence": 1, "want": crate::tests::want(1) })).await;
    let key = leased["leases"][0]["key"].clone();
    fixture
        .server
        .sync(runner, json!({ "sequence": 2, "acknowledged": 1, "running": [{ "key": key, "elapsedMs": 1 }] }))
        .await;
    fixture.api.calls();
    (fixture, spec, runner, key)
}

#[tokio::test]
async fn an_object_goes_when_its_jobs_have_ended() {
    let (mut fixture, spec, runner, key) = running(None).await;
    let found = fixture.list_object(deleted(5, spec));
    let again = kube::runtime::controller::Action::requeue(Duration::from_secs(2));
    assert_eq!(pass(&fixture, &found).await, again, "a job still runs");
    assert!(released(&fixture.api.calls()).is_none());
    let stored = fixture.server.ok("GET", "/v1/workflows/w?namespace=lab", None).await;
    assert_eq!(stored["canceled"], true);
    let ended = json!([{ "key": key, "returnCode": 143, "cause": "Canceled", "durationMs": 1, "endedMsAgo": 0 }]);
    fixture.server.sync(runner, json!({ "sequence": 3, "acknowledged": 2, "finished": ended })).await;
    pass(&fixture, &found).await;
    let calls = fixture.api.calls();
    let path = "/metadata/finalizers/1";
    let patch = json!([
        { "op": "test", "path": path, "value": "torc.dev/cleanup" },
        { "op": "test", "path": "/metadata/uid", "value": "1a2b-w" },
        { "op": "remove", "path": path },
    ]);
    assert_eq!(released(&calls).map(|call| &call.body), Some(&patch));
    assert!(!is_stored(&fixture).await, "a deleted object leaves no record");
}

#[tokio::test]
async fn an_object_that_lingers_says_what_it_waits_for() {
    for (seconds_ago, told) in [(10, false), (33, true)] {
        let (mut fixture, spec, ..) = running(None).await;
        let found = fixture.list_object(deleted(seconds_ago, spec));
        pass(&fixture, &found).await;
        let calls = fixture.api.calls();
        let said = calls.iter().find(|call| call.path.contains("/status"));
        let stalled = said.is_some_and(|call| {
            Fixture::conditions(&call.body["status"]).contains(&"Stalled=True/SlurmUnreachable".to_owned())
        });
        assert_eq!(stalled, told, "{seconds_ago} s after the deletion");
    }
}

#[tokio::test]
async fn an_object_is_given_up_after_the_timeout() {
    for (seconds_ago, given_up) in [(500, false), (600, true)] {
        let (mut fixture, spec, ..) = running(None).await;
        let found = fixture.list_object(deleted(seconds_ago, spec));
        pass(&fixture, &found).await;
        let calls = fixture.api.calls();
        assert_eq!(released(&calls).is_some(), given_up, "{seconds_ago} s after the deletion");
        let told = calls.iter().find(|call| call.method == "POST");
        assert_eq!(told.is_some(), given_up);
        if let Some(told) = told {
            assert_eq!((&told.body["reason"], &told.body["type"]), (&json!("CleanupGivenUp"), &json!("Warning")));
            let note = told.body["note"].as_str().unwrap();
            assert!(
                note.starts_with("0 allocations and 1 job may still be there after 60") && note.ends_with("torc-wf1-*"),
                "{note}"
            );
        }
    }
}

#[tokio::test]
async fn what_ended_by_its_time_stays_in_the_store() {
    for (ttl, is_kept) in [(Some(0), true), (Some(1_000), false), (None, false)] {
        let (mut fixture, spec, runner, key) = running(ttl).await;
        let ended = json!([{ "key": key, "returnCode": 0, "durationMs": 1, "endedMsAgo": 0 }]);
        fixture.server.sync(runner, json!({ "sequence": 3, "acknowledged": 2, "finished": ended })).await;
        let found = fixture.list_object(deleted(-5, spec));
        pass(&fixture, &found).await;
        assert!(released(&fixture.api.calls()).is_some(), "{ttl:?}");
        assert_eq!(is_stored(&fixture).await, is_kept, "{ttl:?}");
    }
}

#[tokio::test]
async fn an_object_without_a_workflow_or_a_finalizer_just_goes() {
    let mut fixture = Fixture::new().await;
    let found = fixture.list_object(deleted(1, jobs(&["a"])));
    pass(&fixture, &found).await;
    assert!(released(&fixture.api.calls()).is_some(), "the engine knows nothing of it");
    let mut object = deleted(1, jobs(&["a"]));
    object["metadata"]["finalizers"] = json!(["first"]);
    let found = fixture.list_object(object);
    pass(&fixture, &found).await;
    assert!(fixture.api.lines().is_empty(), "it is not ours to release");
    // The finalizer of a missing object need not be removed.
    let (code, body) = failure(404, "NotFound", "gone");
    fixture.api.answers("PATCH", "/apis/torc.dev", code, body);
    let found = fixture.list_object(deleted(1, jobs(&["a"])));
    pass(&fixture, &found).await;
}

#[tokio::test]
async fn an_object_that_cannot_be_read_goes_all_the_same() {
    let mut fixture = Fixture::new().await;
    let found = fixture.list_object(deleted(1, json!({ "jobs": 3 })));
    assert!(found.0.is_err());
    pass(&fixture, &found).await;
    assert!(released(&fixture.api.calls()).is_some());
}

#[tokio::test]
async fn allocations_are_waited_for_as_jobs_are() {
    for (seconds_ago, given_up) in [(5, false), (601, true)] {
        let mut fixture = Fixture::new().await;
        let found = fixture.list_object(workflow("w", 1, jobs(&["a"])));
        pass(&fixture, &found).await;
        let row = torc_core::rows::AllocationRow { cluster: "local".to_owned(), nodes: 1, ..Default::default() };
        let (id, rows) = (torc_core::ids::WorkflowId(1), vec![row.clone(), row]);
        fixture.server.engine.record_submissions(id, rows, Vec::new(), Vec::new()).await.unwrap();
        fixture.api.calls();
        let found = fixture.list_object(deleted(seconds_ago, jobs(&["a"])));
        pass(&fixture, &found).await;
        let calls = fixture.api.calls();
        assert_eq!(released(&calls).is_some(), given_up, "{seconds_ago} s after the deletion");
        if let Some(told) = calls.iter().find(|call| call.method == "POST") {
            let note = told.body["note"].as_str().unwrap();
            assert!(note.starts_with("2 allocations and 0 jobs may still be there"), "{note}");
        }
    }
}
