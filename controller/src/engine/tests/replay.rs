//! Replays of results that the store holds. The engine's state only has the current attempt of a job.

use serde_json::{Value, json};

use crate::tests::{START_MS, TestServer, want};

/// Starts a server on which job `a` failed with 3 in attempt 1 and runs as attempt 2, and job `b` failed with 4 for good.
async fn retried() -> TestServer {
    let server = TestServer::start().await;
    let spec = json!({
        "failureHandlers": [{ "name": "again", "rules": [{ "exitCodes": [3], "maxRetries": 1 }] }],
        "jobs": [{ "name": "a", "command": "true", "failureHandler": "again" }, { "name": "b", "command": "true" }],
    });
    server.apply_spec("ada", "default", "w", spec).await;
    server.register("node-1", None).await;
    server.sync(1, json!({ "sequence": 1, "want": want(4) })).await;
    let ended = json!([finished([1, 1, 1, 1, 1], 3), finished([1, 2, 1, 1, 2], 4)]);
    server.sync(1, json!({ "sequence": 2, "acknowledged": 1, "finished": ended })).await;
    server.clock.advance(600_000);
    let again = server.sync(1, json!({ "sequence": 3, "acknowledged": 2, "want": want(4) })).await;
    assert_eq!((&again["leases"][0]["name"], &again["leases"][0]["key"]["attempt"]), (&json!("a"), &json!(2)));
    let running = json!([{ "key": again["leases"][0]["key"], "elapsedMs": 1 }]);
    server.sync(1, json!({ "sequence": 4, "acknowledged": 3, "running": running })).await;
    server
}

/// Returns a result. `key` is the workflow, the job, the run, the attempt and the lease.
fn finished(key: [i64; 5], code: i64) -> Value {
    let [workflow, job, run, attempt, lease_id] = key;
    let key = json!({ "workflow": workflow, "job": job, "run": run, "attempt": attempt, "leaseId": lease_id });
    json!({ "key": key, "returnCode": code, "durationMs": 5, "endedMsAgo": 0 })
}

/// Replays results of a run and returns the outcomes, in their order.
async fn replay(server: &TestServer, run: i32, results: &[([i64; 5], i64)]) -> Vec<(String, String)> {
    let written =
        |(key, code): &([i64; 5], i64)| json!({ "endedMs": START_MS + 700_000, "finished": finished(*key, *code) });
    let results: Vec<Value> = results.iter().map(written).collect();
    let path = format!("/v1/workflows/w/runs/{run}/results");
    let answer = server.ok("POST", &path, Some(json!({ "results": results }))).await;
    let replayed = answer["replayed"].as_array().unwrap();
    let keys: Vec<&Value> = results.iter().map(|result| &result["finished"]["key"]).collect();
    assert_eq!(replayed.iter().map(|one| &one["key"]).collect::<Vec<_>>(), keys, "answers are in the order of results");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    replayed.iter().map(|one| (text(&one["outcome"]), text(&one["reason"]))).collect()
}

fn known() -> (String, String) {
    ("alreadyKnown".to_owned(), String::new())
}

fn accepted() -> (String, String) {
    ("accepted".to_owned(), String::new())
}

fn rejected(reason: &str) -> (String, String) {
    ("rejected".to_owned(), reason.to_owned())
}

// J37
#[tokio::test]
async fn a_stored_result_of_an_earlier_attempt_is_known() {
    let server = retried().await;
    let newer = || rejected("a newer attempt has been started");
    let cases = [
        ([1, 1, 1, 1, 1], 3, known()),
        // A result differs if its code, attempt, job or workflow does.
        ([1, 1, 1, 1, 1], 5, newer()),
        ([9, 1, 1, 1, 1], 3, rejected("it belongs to run 1 of workflow 9")),
        ([1, 7, 1, 1, 1], 3, rejected("the workflow has no job 7")),
        ([1, 2, 1, 1, 2], 4, known()),
    ];
    for (key, code, expected) in cases {
        assert_eq!(replay(&server, 1, &[(key, code)]).await, [expected], "{key:?} with {code}");
    }
    let server = server.restart().await;
    assert_eq!(replay(&server, 1, &[([1, 1, 1, 1, 1], 3)]).await, [known()], "after a restart, too");
    // The same code in the second attempt is another result than in the first.
    let mixed = [([1, 1, 1, 2, 3], 3), ([1, 1, 1, 1, 1], 3), ([1, 1, 1, 1, 1], 5)];
    assert_eq!(replay(&server, 1, &mixed).await, [accepted(), known(), newer()]);
    assert_eq!(replay(&server, 1, &mixed[..2]).await, [known(), known()]);
    let results = server.ok("GET", "/v1/workflows/w/results", None).await;
    assert_eq!(results["items"].as_array().unwrap().len(), 3, "nothing is counted twice: {results}");
}

// J37
#[tokio::test]
async fn stored_results_of_a_superseded_run_are_known() {
    let server = retried().await;
    server.ok("POST", "/v1/workflows/w/retry", Some(json!({ "all": true }))).await;
    let superseded = || rejected("run 1 is superseded: the workflow is at run 2");
    assert_eq!(replay(&server, 1, &[([1, 2, 1, 1, 2], 4), ([1, 2, 1, 1, 2], 0)]).await, [known(), superseded()]);
    let leased = server.sync(1, json!({ "sequence": 5, "acknowledged": 4, "want": want(4) })).await;
    let of_b = leased["leases"].as_array().unwrap().iter().find(|lease| lease["name"] == "b").unwrap();
    assert_eq!((&of_b["key"]["run"], &of_b["key"]["job"]), (&json!(2), &json!(2)));
    let number = |field: &str| of_b["key"][field].as_i64().unwrap();
    let first = [([1, 2, 2, number("attempt"), number("leaseId")], 4)];
    assert_eq!(replay(&server, 2, &first).await, [accepted()], "the first run's result is not the second's");
    assert_eq!(replay(&server, 2, &first).await, [known()]);
}

#[tokio::test]
async fn attempts_are_explained_in_the_order_of_runs() {
    let server = retried().await;
    assert_eq!(replay(&server, 1, &[([1, 1, 1, 2, 3], 5)]).await, [accepted()]);
    server.ok("POST", "/v1/workflows/w/retry", Some(json!({ "all": true }))).await;
    let leased = server.sync(1, json!({ "sequence": 5, "acknowledged": 4, "want": want(4) })).await;
    let of_a = leased["leases"].as_array().unwrap().iter().find(|lease| lease["name"] == "a").unwrap();
    let ended = json!([{ "key": of_a["key"], "returnCode": 0, "durationMs": 5, "endedMsAgo": 0 }]);
    server.sync(1, json!({ "sequence": 6, "acknowledged": 5, "finished": ended })).await;
    let story = server.ok("GET", "/v1/workflows/w/jobs/a/explain", None).await;
    let numbers = |one: &Value| (one["runId"].as_i64().unwrap(), one["returnCode"].as_i64().unwrap());
    let attempts: Vec<_> = story["attempts"].as_array().unwrap().iter().map(numbers).collect();
    assert_eq!(attempts, [(1, 3), (1, 5), (2, 0)]);
    assert_eq!((&story["job"], &story["workflow"]), (&json!("a"), &json!("w")));
}
