//! Commands of the HTTP API and their effects on the engine's state.

use serde_json::{Value, json};

use crate::tests::{TestServer, jobs, want};

async fn ended() -> TestServer {
    let server = TestServer::start().await;
    let spec = json!({
        "resourceRequirements": [
            { "name": "small", "numCpus": 1, "memory": "100m", "runtime": "PT10M" },
            { "name": "long", "numCpus": 1, "memory": "10m", "runtime": "PT20M" },
        ],
        "jobs": [
            { "name": "good", "command": "true" },
            { "name": "oom", "command": "true", "resourceRequirements": "small" },
            { "name": "late", "command": "true", "resourceRequirements": "long" },
            { "name": "odd", "command": "true" },
            { "name": "after", "command": "true", "dependsOn": ["odd"] },
        ],
    });
    server.apply_spec("ada", "default", "w", spec).await;
    let runner = server.register("node-1", None).await;
    let leased = server.sync(runner, json!({ "sequence": 1, "want": want(4) })).await;
    let end = |lease: &Value| {
        let (code, cause) = match lease["name"].as_str().unwrap() {
            "good" => (0, Value::Null),
            "oom" => (137, json!("OutOfMemory")),
            "late" => (152, json!("Timeout")),
            _ => (1, json!("ExitCode")),
        };
        let mut ended = json!({ "key": lease["key"], "returnCode": code, "durationMs": 5, "endedMsAgo": 0 });
        if !cause.is_null() {
            ended["cause"] = cause;
        }
        ended
    };
    let finished: Vec<Value> = leased["leases"].as_array().unwrap().iter().map(end).collect();
    assert_eq!(finished.len(), 4, "{leased}");
    server.sync(runner, json!({ "sequence": 2, "acknowledged": 1, "finished": finished })).await;
    server
}

#[tokio::test]
async fn retry_takes_all_the_named_or_the_failed_jobs() {
    let server = ended().await;
    for (request, expected) in [
        (json!({}), vec!["after", "late", "odd", "oom"]),
        (json!({ "all": true }), vec!["after", "good", "late", "odd", "oom"]),
        (json!({ "all": true, "jobs": ["good"] }), vec!["after", "good", "late", "odd", "oom"]),
        (json!({ "jobs": ["good"] }), vec!["good"]),
        (json!({ "jobs": ["odd"] }), vec!["after", "odd"]),
        (json!({ "changed": true }), vec![]),
    ] {
        let mut request = request;
        request["dryRun"] = json!(true);
        let affected = server.ok("POST", "/v1/workflows/w/retry", Some(request.clone())).await;
        let mut names: Vec<&str> = affected["names"]
            .as_array()
            .map(|names| names.iter().map(|name| name.as_str().unwrap()).collect())
            .unwrap_or_default();
        names.sort_unstable();
        assert_eq!(
            (names.clone(), affected["jobs"].as_u64()),
            (expected.clone(), Some(expected.len() as u64)),
            "{request}"
        );
    }
    let before = server.ok("GET", "/v1/workflows/w", None).await["status"]["jobs"].clone();
    assert_eq!(
        (&before["completed"], &before["failed"]),
        (&json!(1), &json!(2)),
        "a dry run changes nothing: {before}"
    );
    let affected = server.ok("POST", "/v1/workflows/w/retry", Some(json!({ "jobs": ["oom"] }))).await;
    assert_eq!(affected["jobs"], 1);
    assert_eq!(server.job_state("w", "oom").await, "ready");
    assert_eq!(server.job_state("w", "odd").await, "failed");
}

/// Returns the requirements that `recover` would raise, by job.
async fn raised(server: &TestServer, request: Value) -> Vec<(String, Vec<String>)> {
    let mut request = request;
    request["dryRun"] = json!(true);
    let report = server.ok("POST", "/v1/workflows/w/recover", Some(request)).await;
    let one = |job: &Value| {
        let texts = job["raised"].as_array().cloned().unwrap_or_default();
        let texts = texts.iter().map(|text| text.as_str().unwrap().to_owned()).collect();
        (format!("{} {}", job["job"].as_str().unwrap(), job["decision"].as_str().unwrap()), texts)
    };
    let mut jobs: Vec<_> = report["jobs"].as_array().unwrap().iter().map(one).collect();
    jobs.sort();
    jobs
}

#[tokio::test]
async fn recover_raises_each_resource_by_its_own_percentage() {
    let server = ended().await;
    for (request, memory, runtime) in [
        (json!({}), "memory from 100 MiB to 150 MiB", "runtime from 20m to 30m"),
        (
            json!({ "memoryPercent": 250, "runtimePercent": 300 }),
            "memory from 100 MiB to 250 MiB",
            "runtime from 20m to 1h",
        ),
        (
            json!({ "memoryPercent": 300, "runtimePercent": 250 }),
            "memory from 100 MiB to 300 MiB",
            "runtime from 20m to 50m",
        ),
    ] {
        let expected = [
            ("late Retry".to_owned(), vec![runtime.to_owned()]),
            ("odd Leave".to_owned(), vec![]),
            ("oom Retry".to_owned(), vec![memory.to_owned()]),
        ];
        assert_eq!(raised(&server, request.clone()).await, expected, "{request}");
    }
    let least = raised(&server, json!({ "memoryPercent": 100, "runtimePercent": 100 })).await;
    assert_eq!(
        raised(&server, json!({ "memoryPercent": 99, "runtimePercent": 3 })).await,
        least,
        "nothing is made smaller"
    );
}

#[tokio::test]
async fn unknown_failures_are_recovered_only_when_asked_for() {
    let server = ended().await;
    let decision = async |request: Value| {
        let found = raised(&server, request).await;
        found.into_iter().map(|(job, _)| job).find(|job| job.starts_with("odd")).unwrap()
    };
    assert_ne!(decision(json!({})).await, decision(json!({ "retryUnknown": true })).await);
}

#[tokio::test]
async fn a_preview_says_what_an_apply_would_do() {
    let server = TestServer::start().await;
    let apply = async |names: &[&str], dry_run: bool| {
        let document = crate::tests::document("default", "w", json!({ "jobs": jobs(names) }));
        server
            .ok("POST", "/v1/workflows", Some(json!({ "document": document, "workingDir": "/", "dryRun": dry_run })))
            .await
    };
    let outcome = |answer: &Value| (answer["outcome"].as_str().unwrap().to_owned(), answer["id"].as_i64());
    assert_eq!(outcome(&apply(&["a"], true).await), ("created".to_owned(), None));
    assert_eq!(outcome(&apply(&["a"], false).await), ("created".to_owned(), Some(1)));
    assert_eq!(outcome(&apply(&["a"], true).await), ("unchanged".to_owned(), Some(1)));
    assert_eq!(outcome(&apply(&["a"], false).await), ("unchanged".to_owned(), Some(1)));
    assert_eq!(outcome(&apply(&["b"], true).await), ("configured".to_owned(), Some(1)));
    assert_eq!(outcome(&apply(&["b"], false).await), ("configured".to_owned(), Some(1)));
    let shown = server.ok("GET", "/v1/workflows/w", None).await;
    assert_eq!((&shown["workingDir"], &shown["owner"]), (&json!("/"), &json!("root")));
    assert_eq!(shown["document"]["spec"]["jobs"][0]["name"], "b");
}

#[tokio::test]
async fn a_document_with_too_many_jobs_is_refused() {
    let server = TestServer::start().await;
    for (count, expected) in [(1_000, 200), (1_001, 422)] {
        let family = json!([{ "name": "j_{i}", "command": "true", "parameters": { "i": format!("1:{count}") } }]);
        let document = crate::tests::document("default", "w", json!({ "jobs": family }));
        let body = json!({ "document": document, "workingDir": "/", "dryRun": true });
        let reply = server.send("POST", "/v1/workflows", Some(crate::tests::ADMIN), Some(body)).await;
        assert_eq!(reply.status.as_u16(), expected, "{count} jobs: {}", reply.text);
    }
}

#[tokio::test]
async fn user_data_is_shown_as_it_was_written() {
    let server = TestServer::start().await;
    let spec = json!({
        "userData": [{ "name": "lr", "data": 1 }, { "name": "note", "data": "x", "isEphemeral": true }],
        "jobs": jobs(&["j"]),
    });
    server.apply_spec("ada", "default", "w", spec).await;
    server.clock.advance(5_000);
    server.ok("PUT", "/v1/workflows/w/user-data/lr", Some(json!({ "data": 2, "job": "j" }))).await;
    let time = torc_core::time::rfc3339(crate::tests::START_MS + 5_000);
    let lr = server.ok("GET", "/v1/workflows/w/user-data/lr", None).await;
    let expected = json!({
        "name": "lr", "data": 2, "inDocument": true, "written": true, "writtenBy": "j", "changeTime": time,
    });
    assert_eq!(lr, expected);
    let all = server.ok("GET", "/v1/workflows/w/user-data", None).await;
    let flags = |one: &Value| (one["name"].clone(), one["isEphemeral"] == true, one["written"] == true);
    let shown: Vec<_> = all["items"].as_array().unwrap().iter().map(flags).collect();
    assert_eq!(shown, [(json!("lr"), false, true), (json!("note"), true, false)]);
    server.ok("DELETE", "/v1/workflows/w/user-data/lr", None).await;
    let lr = server.ok("GET", "/v1/workflows/w/user-data/lr", None).await;
    assert_eq!((&lr["data"], lr["written"] == true), (&json!(1), false), "the document's value is left");
}

#[tokio::test]
async fn machines_over_ssh_are_kept_per_workflow() {
    let server = TestServer::start().await;
    for name in ["w", "v"] {
        server.apply("ada", "default", name, jobs(&["j"])).await;
    }
    let workers = json!({ "workers": [{ "address": "ada@h1:22", "folder": "/f" }, { "address": "h2" }] });
    let listed = server.ok("POST", "/v1/workflows/w/remote-workers", Some(workers)).await;
    let addresses = |page: &Value| -> Vec<String> {
        page["items"].as_array().unwrap().iter().map(|one| one["address"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(addresses(&listed), ["ada@h1:22", "h2"]);
    assert_eq!(listed["items"][0]["folder"], "/f");
    assert_eq!(addresses(&server.ok("GET", "/v1/workflows/v/remote-workers", None).await), Vec::<String>::new());
    server.ok("DELETE", "/v1/workflows/w/remote-workers/h2", None).await;
    assert_eq!(addresses(&server.ok("GET", "/v1/workflows/w/remote-workers", None).await), ["ada@h1:22"]);
}

#[tokio::test]
async fn old_events_are_forgotten() {
    let server = ended().await;
    let events = async || server.ok("GET", "/v1/events", None).await["items"].as_array().unwrap().len();
    let all = events().await;
    // The server of the test starts at a fixed time, but the age is measured with the real clock.
    let age = (crate::clock::now().wall_ms - crate::tests::START_MS) / 1_000;
    for (older_than, dry_run, gone, left) in
        [(age + 600, false, 0, all), (age - 600, true, all, all), (age - 600, false, all, 0)]
    {
        let request = json!({ "olderThanSeconds": older_than, "dryRun": dry_run });
        let answer = server.ok("POST", "/v1/gc", Some(request.clone())).await;
        assert_eq!((answer["events"].as_u64(), events().await), (Some(gone as u64), left), "{request}: {answer}");
    }
}

#[tokio::test]
async fn the_account_is_that_of_the_request_or_the_document() {
    for (asked, expected) in [(None, "of-document"), (Some("of-request"), "of-request")] {
        let server = TestServer::start().await;
        let spec = json!({
            "slurmSchedulers": [{ "name": "s", "account": "of-document" }],
            "resourceRequirements": [{ "name": "r", "numCpus": 2, "memory": "1g", "runtime": "PT10M" }],
            "jobs": [{ "name": "j", "command": "true", "resourceRequirements": "r" }],
        });
        server.apply_spec("ada", "default", "w", spec).await;
        let partition = json!({ "name": "short", "cpusPerNode": 8, "memoryMb": 16_000, "maxWalltime": "PT1H" });
        let mut request = json!({ "submit": true, "partitions": [partition] });
        if let Some(asked) = asked {
            request["account"] = json!(asked);
        }
        let report = server.ok("POST", "/v1/workflows/w/regenerate", Some(request)).await;
        assert_eq!(report["allocations"].as_array().unwrap().len(), 1, "{report}");
        let name = report["schedulers"][0]["name"].as_str().unwrap();
        assert!(name.contains("regen_20") && name.contains('T'), "{name}");
        let allocations = server.ok("GET", "/v1/allocations", None).await;
        assert_eq!(allocations["items"][0]["account"].as_str(), Some(expected), "{allocations}");
    }
}

#[tokio::test]
async fn what_is_removed_is_answered_without_content() {
    let server = TestServer::start().await;
    server.apply("ada", "default", "w", jobs(&["j"])).await;
    let workers = json!({ "workers": [{ "address": "h1" }] });
    server.ok("POST", "/v1/workflows/w/remote-workers", Some(workers)).await;
    let cluster = json!({ "apiVersion": "torc.dev/v1alpha1", "metadata": { "name": "c" }, "spec": {} });
    server.ok("POST", "/v1/slurmclusters", Some(cluster)).await;
    for path in ["/v1/workflows/w/remote-workers/h1", "/v1/slurmclusters/c", "/v1/workflows/w"] {
        let reply = server.send("DELETE", path, Some(crate::tests::ADMIN), None).await;
        assert_eq!((reply.status.as_u16(), reply.text.as_str()), (204, ""), "{path}");
        let again = server.send("DELETE", path, Some(crate::tests::ADMIN), None).await;
        assert_eq!(again.status.as_u16(), 404, "{path}");
    }
}

#[tokio::test]
async fn data_that_changes_under_a_completed_job_makes_it_stale() {
    let server = TestServer::start().await;
    let spec = json!({
        "userData": [{ "name": "lr", "data": 1 }, { "name": "later" }],
        "jobs": [
            { "name": "reader", "command": "true", "inputUserData": ["lr"] },
            { "name": "waiter", "command": "true", "inputUserData": ["later"] },
        ],
    });
    server.apply_spec("ada", "default", "w", spec).await;
    let runner = server.register("n", None).await;
    let leased = server.sync(runner, json!({ "sequence": 1, "want": want(1) })).await;
    assert_eq!(leased["leases"][0]["name"], "reader", "{leased}");
    let ended = json!([{ "key": leased["leases"][0]["key"], "returnCode": 0, "durationMs": 1, "endedMsAgo": 0 }]);
    server.sync(runner, json!({ "sequence": 2, "acknowledged": 1, "finished": ended })).await;
    let missing = json!([{ "job": "waiter", "data": "later" }]);
    let before = server.ok("GET", "/v1/workflows/w/staleness", None).await;
    assert_eq!((&before["changedData"], &before["missingData"]), (&json!([]), &missing));
    let written = server.ok("PUT", "/v1/workflows/w/user-data/lr", Some(json!({ "data": 2 }))).await;
    assert_eq!((&written["changed"], &written["staleJobs"]), (&json!(true), &json!(1)), "{written}");
    let after = server.ok("GET", "/v1/workflows/w/staleness", None).await;
    assert_eq!(after["changedData"], json!([{ "job": "reader", "data": "lr" }]));
}

#[tokio::test]
async fn a_running_job_adds_jobs_that_depend_on_others() {
    let server = TestServer::start().await;
    server.apply("ada", "default", "w", jobs(&["maker", "other"])).await;
    let runner = server.register("n", None).await;
    let leased = server.sync(runner, json!({ "sequence": 1, "want": want(1) })).await;
    let lease = &leased["leases"][0];
    let running = json!([{ "key": lease["key"], "elapsedMs": 1 }]);
    server.sync(runner, json!({ "sequence": 2, "acknowledged": 1, "running": running })).await;
    let (maker, other) = if lease["name"] == "maker" { ("maker", "other") } else { ("other", "maker") };
    let new = json!([
        { "name": "a", "command": "true", "dependsOn": [other] },
        { "name": "b", "command": "true", "dependsOn": ["a"] },
    ]);
    let request = json!({ "lineage": "l", "jobs": new, "runId": 1, "attempt": 1 });
    let answer = server.ok("POST", &format!("/v1/workflows/w/jobs/{maker}/spawn"), Some(request)).await;
    assert_eq!((&answer["jobs"], &answer["lineage"]), (&json!(2), &json!("l")), "{answer}");
    for (name, depends_on) in [("a", ["maker", "other"]), ("b", ["a", maker])] {
        let job = server.ok("GET", &format!("/v1/workflows/w/jobs/{name}"), None).await;
        // The new jobs wait for a job depending on the spawning one, too.
        assert_eq!((&job["dependsOn"], &job["waitingFor"]), (&json!(depends_on), &json!(2)), "{job}");
        assert_eq!((&job["origin"], &job["lineage"]), (&json!("spawn"), &json!("l")));
    }
    let total = server.ok("GET", "/v1/workflows/w", None).await["status"]["jobs"]["total"].clone();
    assert_eq!(total, 4, "those that are referred to are not made again");
}

#[tokio::test]
async fn requirements_are_made_smaller_unless_that_is_not_wanted() {
    let server = TestServer::start().await;
    let spec = json!({
        "resourceRequirements": [{ "name": "r", "numCpus": 1, "memory": "800m", "runtime": "PT2H" }],
        "jobs": [{ "name": "j", "command": "true", "resourceRequirements": "r" }],
    });
    server.apply_spec("ada", "default", "w", spec).await;
    let runner = server.register("n", None).await;
    let leased = server.sync(runner, json!({ "sequence": 1, "want": want(1) })).await;
    let mut ended =
        json!({ "key": leased["leases"][0]["key"], "returnCode": 0, "durationMs": 60_000, "endedMsAgo": 0 });
    ended["usage"] = json!({ "peakMemoryBytes": 1 << 20, "peakCpuPercent": 50.0, "averageCpuPercent": 50.0 });
    server.sync(runner, json!({ "sequence": 2, "acknowledged": 1, "finished": [ended] })).await;
    let corrections = async |no_downsize: bool, dry_run: bool| {
        let request = json!({ "noDownsize": no_downsize, "dryRun": dry_run });
        let report = server.ok("POST", "/v1/workflows/w/correct-resources", Some(request)).await;
        report["corrections"].as_array().unwrap().len()
    };
    assert_eq!((corrections(true, true).await, corrections(false, true).await), (0, 1));
    assert_eq!((corrections(true, false).await, corrections(false, false).await), (0, 1));
}
