//! The HTTP API over a real socket and a real store, with a simulated runner.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use reqwest::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;
use torc_controller::{Server, ServerConfig, tls};
use torc_core::tokens::TokenKey;

const TOKEN: &str = "a-secret-for-this-test";

struct ApiFixture {
    server: Server,
    client: reqwest::Client,
    folder: TempDir,
}

impl ApiFixture {
    async fn start() -> Self {
        Self::start_in(tempfile::tempdir().unwrap()).await
    }

    async fn start_in(folder: TempDir) -> Self {
        let config = ServerConfig {
            database: folder.path().join("torc.db"),
            bind: Some("127.0.0.1:0".parse().unwrap()),
            token: TOKEN.to_owned(),
            metrics_token: None,
            token_key: TokenKey::new(&[7; 32]).unwrap(),
            tls: None,
            pin: None,
            authority: None,
            runner_token_lifetime: Duration::from_secs(3_600),
            max_connections: 100,
            advertise: Arc::new(|bound| format!("http://{bound}")),
            max_jobs: 1_000,
            slurm: None,
            kubernetes: None,
        };
        let server = Server::start(config).await.unwrap();
        tls::install_cryptography();
        Self { server, client: reqwest::Client::new(), folder }
    }

    async fn restart(self) -> Self {
        self.server.shutdown().await;
        Self::start_in(self.folder).await
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.server.address().unwrap())
    }

    async fn get(&self, path: &str) -> (StatusCode, Value) {
        let response = self.client.get(self.url(path)).bearer_auth(TOKEN).send().await.unwrap();
        (response.status(), response.json().await.unwrap_or(Value::Null))
    }

    async fn post(&self, path: &str, body: Value) -> (StatusCode, Value) {
        let response = self.client.post(self.url(path)).bearer_auth(TOKEN).json(&body).send().await.unwrap();
        (response.status(), response.json().await.unwrap_or(Value::Null))
    }

    async fn apply(&self, name: &str, jobs: Value) -> (StatusCode, Value) {
        let document = json!({
            "apiVersion": "torc.dev/v1alpha1",
            "metadata": { "name": name },
            "spec": { "jobs": jobs },
        });
        self.post("/v1/workflows", json!({ "document": document, "workingDir": "/" })).await
    }

    async fn register(&self) -> i64 {
        let capacity = json!({ "cpus": 2, "memoryBytes": 1u64 << 30, "gpus": 0, "nodes": 1 });
        let request = json!({ "protocol": 1, "version": "test", "host": "here", "pid": 1, "capacity": capacity });
        let (status, answer) = self.post("/v1/runners", request).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        answer["runner"].as_i64().unwrap()
    }

    async fn sync(&self, runner: i64, request: Value) -> Value {
        let (status, answer) = self.post(&format!("/v1/runners/{runner}/sync"), request).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        answer
    }
}

fn want() -> Value {
    json!({ "free": { "cpus": 2, "memoryBytes": 1u64 << 30, "gpus": 0, "nodes": 1 }, "ahead": 0, "limit": 10 })
}

fn finished(lease: &Value, code: i32) -> Value {
    json!({ "key": lease["key"], "returnCode": code, "durationMs": 5, "endedMsAgo": 0 })
}

fn two_jobs() -> Value {
    json!([{ "name": "first", "command": "true" }, { "name": "second", "command": "true", "dependsOn": ["first"] }])
}

#[tokio::test]
async fn a_workflow_runs_to_its_end() {
    let fixture = ApiFixture::start().await;
    let (status, answer) = fixture.apply("two", two_jobs()).await;
    assert_eq!((status, &answer["outcome"]), (StatusCode::OK, &json!("created")), "{answer}");

    let runner = fixture.register().await;
    let first = fixture.sync(runner, json!({ "sequence": 1, "want": want() })).await;
    assert_eq!(first["leases"].as_array().unwrap().len(), 1);
    assert_eq!(first["leases"][0]["name"], "first");

    let report =
        json!({ "sequence": 2, "acknowledged": 1, "want": want(), "finished": [finished(&first["leases"][0], 0)] });
    let second = fixture.sync(runner, report).await;
    assert_eq!(
        second["leases"][0]["name"], "second",
        "a dependent is leased in the answer to the report of its parent"
    );

    let report =
        json!({ "sequence": 3, "acknowledged": 2, "want": want(), "finished": [finished(&second["leases"][0], 0)] });
    assert_eq!(fixture.sync(runner, report).await["directive"], "complete");

    let (_, workflow) = fixture.get("/v1/workflows/two").await;
    assert_eq!(workflow["status"]["progress"], "2/2");
    assert_eq!(
        workflow["status"]["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "Succeeded").unwrap()["status"],
        "True"
    );
    let (_, results) = fixture.get("/v1/workflows/1/results").await;
    let names: Vec<&str> = results["items"].as_array().unwrap().iter().map(|r| r["job"].as_str().unwrap()).collect();
    assert_eq!(names, ["first", "second"]);
    let (_, jobs) = fixture.get("/v1/workflows/two/jobs?status=completed&limit=1").await;
    assert_eq!(jobs["items"].as_array().unwrap().len(), 1);
    assert!(jobs["next"].is_string());
    let (_, job) = fixture.get("/v1/workflows/two/jobs/second").await;
    assert_eq!(job["dependsOn"], json!(["first"]));
}

#[tokio::test]
async fn requests_without_the_token_are_rejected() {
    let fixture = ApiFixture::start().await;
    for path in
        ["/v1/workflows", "/v1/version", "/v1/runners", "/v1/events", "/v1/watch", "/metrics", "/v1/openapi.json"]
    {
        for token in [None, Some(""), Some("wrong"), Some("a-secret-for-this-tes"), Some("a-secret-for-this-testX")] {
            let mut request = fixture.client.get(fixture.url(path));
            if let Some(token) = token {
                request = request.bearer_auth(token);
            }
            let response = request.send().await.unwrap();
            assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "{path} with {token:?}");
            let body: Value = response.json().await.unwrap();
            assert_eq!(body["code"], "Unauthorized");
        }
    }
    for path in ["/livez", "/readyz"] {
        assert_eq!(fixture.client.get(fixture.url(path)).send().await.unwrap().status(), StatusCode::OK);
    }
}

#[tokio::test]
async fn bad_requests_get_clear_errors() {
    let fixture = ApiFixture::start().await;
    let (status, body) = fixture.get("/v1/workflows/nothing").await;
    assert_eq!((status, &body["code"]), (StatusCode::NOT_FOUND, &json!("WorkflowNotFound")));
    let (status, body) = fixture.get("/v1/nothing").await;
    assert_eq!((status, &body["code"]), (StatusCode::NOT_FOUND, &json!("NotFound")));
    let (status, body) = fixture.post("/v1/workflows", json!({ "document": 3 })).await;
    assert_eq!((status, &body["code"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!("BadRequest")));
    let cycle = json!([
        { "name": "a", "command": "true", "dependsOn": ["b"] },
        { "name": "b", "command": "true", "dependsOn": ["a"] },
    ]);
    let (status, body) = fixture.apply("cycle", cycle).await;
    assert_eq!((status, &body["code"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!("InvalidDocument")), "{body}");
    assert!(body["problems"][0]["message"].as_str().unwrap().contains('a'));
    let too_many = json!([{ "name": "j_{i}", "command": "true", "parameters": { "i": "1:2000" } }]);
    assert_eq!(fixture.apply("many", too_many).await.0, StatusCode::UNPROCESSABLE_ENTITY);
    let (status, body) = fixture.post("/v1/runners/77/sync", json!({ "sequence": 1 })).await;
    assert_eq!((status, &body["code"]), (StatusCode::NOT_FOUND, &json!("RunnerNotFound")));
    let (status, _) = fixture.get("/v1/workflows?cursor=x").await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    let (_, list) = fixture.get("/v1/workflows").await;
    assert_eq!(list["items"], json!([]), "nothing of a refused document is kept");
}

#[tokio::test]
async fn a_waiting_runner_is_answered_when_there_is_work() {
    let fixture = ApiFixture::start().await;
    let runner = fixture.register().await;
    let waiting = fixture.sync(runner, json!({ "sequence": 1, "want": want(), "waitMs": 30_000 }));
    let applying = async {
        fixture.apply("late", json!([{ "name": "only", "command": "true" }])).await;
        std::future::pending::<()>().await;
    };
    let answer = tokio::select! {
        answer = waiting => answer,
        () = applying => unreachable!(),
        () = tokio::time::sleep(Duration::from_secs(20)) => panic!("no answer though there is work"),
    };
    assert_eq!(answer["leases"][0]["name"], "only");
}

#[tokio::test]
async fn a_newer_message_releases_the_one_that_waits() {
    let fixture = ApiFixture::start().await;
    let runner = fixture.register().await;
    let older = fixture.sync(runner, json!({ "sequence": 1, "want": want(), "waitMs": 30_000 }));
    let newer = async {
        // The older workflow must be there first, which only the server knows.
        loop {
            let (_, text) = fixture.get("/v1/runners").await;
            if text["items"][0]["lastContactTime"] != text["items"][0]["startTime"] {
                break;
            }
            tokio::task::yield_now().await;
        }
        fixture.sync(runner, json!({ "sequence": 2, "want": want(), "waitMs": 1 })).await
    };
    let both = async { tokio::join!(older, newer) };
    let (older, newer) =
        tokio::time::timeout(Duration::from_secs(20), both).await.expect("the older message was not released");
    assert_eq!((older["sequence"].as_u64(), newer["sequence"].as_u64()), (Some(1), Some(2)));
}

#[tokio::test]
async fn what_was_acknowledged_survives_a_restart() {
    let fixture = ApiFixture::start().await;
    fixture.apply("two", two_jobs()).await;
    let runner = fixture.register().await;
    let first = fixture.sync(runner, json!({ "sequence": 1, "want": want() })).await;
    let fixture = fixture.restart().await;

    let (_, job) = fixture.get("/v1/workflows/two/jobs/first").await;
    assert_eq!(job["status"], "leased");
    let report =
        json!({ "sequence": 2, "acknowledged": 1, "want": want(), "finished": [finished(&first["leases"][0], 0)] });
    let second = fixture.sync(runner, report.clone()).await;
    assert_eq!(second["leases"][0]["name"], "second");
    let fixture = fixture.restart().await;

    let again = fixture.sync(runner, report).await;
    assert_eq!(again["refused"], Value::Null, "a report that is repeated changes nothing and is no error");
    let (_, results) = fixture.get("/v1/workflows/two/results").await;
    assert_eq!(results["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_watch_goes_on_where_it_was() {
    let fixture = ApiFixture::start().await;
    fixture.apply("one", json!([{ "name": "only", "command": "true" }])).await;
    let (_, events) = fixture.get("/v1/events").await;
    assert_eq!(events["items"][0]["reason"], "WorkflowCreated");
    let last = events["items"].as_array().unwrap().last().unwrap()["sequence"].as_i64().unwrap();

    let request = fixture
        .client
        .get(fixture.url("/v1/watch?workflow=one"))
        .bearer_auth(TOKEN)
        .header("last-event-id", last.to_string());
    let mut stream = request.send().await.unwrap();
    fixture.post("/v1/workflows/one/suspend", json!({})).await;
    let mut text = String::new();
    let reading = async {
        while !(text.contains("WorkflowSuspended") && text.contains("event: status")) {
            text.push_str(&String::from_utf8_lossy(&stream.chunk().await.unwrap().expect("the stream goes on")));
        }
    };
    tokio::time::timeout(Duration::from_secs(20), reading).await.expect("the event did not arrive");
    assert!(!text.contains("WorkflowCreated"), "what was seen before does not come again: {text}");
}

#[tokio::test]
async fn verbs_change_what_is() {
    let fixture = ApiFixture::start().await;
    fixture.apply("two", two_jobs()).await;
    let runner = fixture.register().await;
    fixture.post("/v1/workflows/two/suspend", json!({})).await;
    assert_eq!(fixture.sync(runner, json!({ "sequence": 1, "want": want() })).await["leases"], Value::Null);
    fixture.post("/v1/workflows/two/resume", json!({})).await;
    assert_eq!(fixture.sync(runner, json!({ "sequence": 2, "want": want() })).await["leases"][0]["name"], "first");
    let (_, workflow) = fixture.post("/v1/workflows/two/cancel", json!({})).await;
    assert_eq!(workflow["status"]["jobs"]["canceled"], 2);
    let (_, affected) = fixture.post("/v1/workflows/two/retry", json!({})).await;
    assert_eq!(affected["jobs"], 2);
    let (status, body) = fixture.post("/v1/workflows/two/retry", json!({ "jobs": ["nothing"] })).await;
    assert_eq!((status, &body["code"]), (StatusCode::NOT_FOUND, &json!("JobNotFound")));
    let response = fixture.client.delete(fixture.url("/v1/workflows/two")).bearer_auth(TOKEN).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::NO_CONTENT);
    assert_eq!(fixture.get("/v1/workflows/two").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_dry_run_changes_nothing() {
    let fixture = ApiFixture::start().await;
    fixture.apply("two", two_jobs()).await;
    let document = json!({
        "apiVersion": "torc.dev/v1alpha1",
        "metadata": { "name": "two" },
        "spec": { "jobs": [{ "name": "first", "command": "false" }, { "name": "third", "command": "true" }] },
    });
    let (_, answer) =
        fixture.post("/v1/workflows", json!({ "document": document, "workingDir": "/", "dryRun": true })).await;
    assert_eq!(answer["outcome"], "configured");
    assert_eq!(answer["changes"]["changed"]["names"], json!(["first"]));
    assert_eq!(answer["changes"]["added"]["names"], json!(["third"]));
    assert_eq!(answer["changes"]["removed"]["names"], json!(["second"]));
    let (_, jobs) = fixture.get("/v1/workflows/two/jobs").await;
    assert_eq!(jobs["items"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn metrics_and_description_are_served() {
    let fixture = ApiFixture::start().await;
    fixture.apply("two", two_jobs()).await;
    let text =
        fixture.client.get(fixture.url("/metrics")).bearer_auth(TOKEN).send().await.unwrap().text().await.unwrap();
    assert!(text.contains("torc_jobs{state=\"ready\"} 1\n"), "{text}");
    assert!(text.contains("torc_commits_total 1\n"), "{text}");
    let (_, document) = fixture.get("/v1/openapi.json").await;
    assert!(document["paths"]["/v1/runners/{runner}/sync"]["post"].is_object());
    assert_eq!(document, torc_controller::openapi_document());
}

// S11, S12, S13, S14, S16, S17
#[tokio::test]
async fn accounting_is_stored_per_attempt_and_merged_into_results() {
    let fixture = ApiFixture::start().await;
    fixture.apply("w", json!([{ "name": "a", "command": "true" }, { "name": "b", "command": "true" }])).await;
    let runner = fixture.register().await;
    let leased = fixture.sync(runner, json!({ "sequence": 1, "want": want() })).await;
    let usage =
        json!({ "peakMemoryBytes": 100, "averageMemoryBytes": 90, "peakCpuPercent": 180.0, "averageCpuPercent": 7.0 });
    let keys: Vec<Value> = leased["leases"].as_array().unwrap().iter().map(|lease| lease["key"].clone()).collect();
    let finished =
        |key: &Value| json!({ "key": key, "returnCode": 0, "durationMs": 10_000, "endedMsAgo": 0, "usage": usage });
    // One record comes with its result, the other one later.
    let mut first = finished(&keys[0]);
    first["slurmStats"] =
        json!({ "workflow": 1, "job": 1, "run": 1, "attempt": 1, "maxRssBytes": 500, "aveCpuSeconds": 5.0 });
    let report = json!({ "sequence": 2, "acknowledged": 1, "finished": [first, finished(&keys[1])] });
    fixture.sync(runner, report).await;
    let late = json!({ "workflow": 1, "job": 2, "run": 1, "attempt": 1, "slurmJobId": "77", "maxRssBytes": 0, "aveCpuSeconds": 0.0 });
    let gone = json!({ "workflow": 9, "job": 2, "run": 1, "attempt": 1 });
    fixture.sync(runner, json!({ "sequence": 3, "acknowledged": 2, "slurmStats": [late, gone] })).await;

    let (_, results) = fixture.get("/v1/workflows/w/results").await;
    let shown = |at: usize| {
        let result = &results["items"][at];
        let fields = ["peakMemoryBytes", "averageMemoryBytes", "peakCpuPercent", "averageCpuPercent"];
        fields.map(|field| result[field].as_f64().unwrap())
    };
    assert_eq!(shown(0), [500.0, 90.0, 180.0, 50.0]);
    assert_eq!(shown(1), [100.0, 90.0, 180.0, 7.0], "zeros are not taken");

    // Records of users count as well, and there is one row for each attempt.
    let one = json!({ "workflow_id": 1, "job_id": 2, "run_id": 1, "attempt_id": 1, "slurm_job_id": "77", "max_rss_bytes": 700 });
    assert_eq!(fixture.post("/v1/slurm_stats", one).await.0, StatusCode::NO_CONTENT);
    let (_, all) = fixture.get("/v1/slurm_stats").await;
    assert_eq!(all["items"].as_array().unwrap().len(), 2, "{all}");
    let (_, results) = fixture.get("/v1/workflows/w/results?job=b").await;
    assert_eq!(results["items"][0]["peakMemoryBytes"], 700);
    let six = json!({ "maxRssBytes": 11, "maxVmSizeBytes": 12, "maxDiskReadBytes": 13, "maxDiskWriteBytes": 14,
        "aveCpuSeconds": 1.5, "nodeList": "n[1-2]" });
    let mut whole = json!({ "workflow": 1, "job": 1, "run": 1, "attempt": 1 });
    for (name, value) in six.as_object().unwrap() {
        whole[name] = value.clone();
    }
    assert_eq!(fixture.post("/v1/slurm_stats", json!({ "items": [whole] })).await.0, StatusCode::NO_CONTENT);
    let (_, kept) = fixture.get("/v1/slurm_stats?workflow_id=1&job_id=1").await;
    for (name, value) in six.as_object().unwrap() {
        assert_eq!(&kept["items"][0][name], value, "{name}: {kept}");
    }
    for (query, count) in [
        ("workflow_id=1", 2),
        ("workflow_id=w&job_id=b", 1),
        ("job_id=2", 1),
        ("workflow_id=1&run_id=1&attempt_id=1", 2),
        ("workflow_id=1&run_id=2", 0),
        ("workflow_id=1&attempt_id=2", 0),
        ("workflow_id=1&limit=1", 1),
    ] {
        let (status, found) = fixture.get(&format!("/v1/slurm_stats?{query}")).await;
        assert_eq!((status, found["items"].as_array().unwrap().len()), (StatusCode::OK, count), "{query}: {found}");
    }
    for (body, status) in [
        (json!({ "items": [{ "workflow": 1, "job": 1, "run": 1, "attempt": 0 }] }), StatusCode::UNPROCESSABLE_ENTITY),
        (json!({ "items": [{ "workflow": 1, "job": 1, "run": 2, "attempt": 1 }] }), StatusCode::UNPROCESSABLE_ENTITY),
        (json!({ "items": [{ "workflow": 1, "job": 7, "run": 1, "attempt": 1 }] }), StatusCode::NOT_FOUND),
        (json!({ "items": [{ "workflow": 9, "job": 1, "run": 1, "attempt": 1 }] }), StatusCode::NOT_FOUND),
    ] {
        let (found, answer) = fixture.post("/v1/slurm_stats", body).await;
        assert_eq!(found, status, "{answer}");
    }
    assert_eq!(fixture.get("/v1/slurm_stats?job_id=b").await.0, StatusCode::BAD_REQUEST);
    // Another workflow, whose job has two attempts: their records are not mixed up with the first workflow's.
    fixture.apply("v", json!([{ "name": "c", "command": "true" }])).await;
    let of = |attempt: i32| json!({ "workflow": 2, "job": 3, "run": 1, "attempt": attempt });
    assert_eq!(fixture.post("/v1/slurm_stats", json!({ "items": [of(1), of(2)] })).await.0, StatusCode::NO_CONTENT);
    let fixture = fixture.restart().await;
    for (query, count) in [("workflow_id=1", 2), ("workflow_id=2", 2), ("workflow_id=v&attempt_id=2", 1)] {
        let (_, found) = fixture.get(&format!("/v1/slurm_stats?{query}")).await;
        assert_eq!(found["items"].as_array().unwrap().len(), count, "{query}: {found}");
    }
}
