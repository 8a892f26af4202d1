//! Lists: the rows that each kind of caller sees, and the filters.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use torc_api::slurm::SlurmState;
use torc_core::engine::Observation;
use torc_core::ids::{AllocationId, WorkflowId};
use torc_core::planning::orphans::SlurmObservation;
use torc_core::rows::AllocationRow;

use super::{callers, two_workflows};
use crate::tests::{TestServer, jobs, want};

/// Starts a server with three workflows: those of [`two_workflows`] and number 3 of ada in `lab`. Each has an allocation and
/// accounting.
async fn three_workflows() -> TestServer {
    let server = two_workflows().await;
    assert_eq!(server.apply("ada", "lab", "third", jobs(&["three"])).await, 3);
    server.register("node-3", Some("lab/third")).await;
    server.register("node-4", None).await;
    for id in 1..=3 {
        let row = AllocationRow { cluster: "local".to_owned(), nodes: 1, seconds: 60, ..AllocationRow::default() };
        server.engine.record_submissions(WorkflowId(id), vec![row], Vec::new(), Vec::new()).await.unwrap();
        let stats = json!({ "items": [{ "workflow": id, "job": id, "run": 1, "attempt": 1 }] });
        server.ok("POST", "/v1/slurm_stats", Some(stats)).await;
    }
    server
}

fn numbers(page: &Value, field: &str) -> BTreeSet<i64> {
    page["items"].as_array().unwrap().iter().filter_map(|item| item[field].as_i64()).collect()
}

#[tokio::test]
async fn each_caller_sees_what_it_deals_with_and_nothing_else() {
    let server = three_workflows().await;
    // The visible workflows and runners. Runner 4 serves all workflows.
    let seen: [(&str, &[i64], &[i64]); 11] = [
        ("administrator", &[1, 2, 3], &[1, 2, 3, 4]),
        ("owner ada", &[1, 3], &[1, 3]),
        ("owner bob", &[2], &[2]),
        ("viewer of default", &[1], &[1, 4]),
        ("editor of default", &[1], &[1, 4]),
        ("viewer of lab", &[2, 3], &[2, 3, 4]),
        ("editor of lab", &[2, 3], &[2, 3, 4]),
        ("runner of workflow 1", &[1], &[1]),
        ("runner of workflow 2", &[2], &[2]),
        ("job of workflow 1", &[1], &[1]),
        ("pool", &[1, 2, 3], &[1, 2, 3]),
    ];
    let mut checked = 0;
    for (name, token) in callers(&server) {
        let Some((_, workflows, runners)) = seen.iter().find(|(of, ..)| *of == name) else { continue };
        let workflows: BTreeSet<i64> = workflows.iter().copied().collect();
        for (path, field) in [
            ("/v1/workflows", "id"),
            ("/v1/events", "workflowId"),
            ("/v1/allocations", "workflowId"),
            ("/v1/slurm_stats", "workflow"),
        ] {
            let reply = server.send("GET", path, token.as_deref(), None).await;
            assert_eq!(numbers(&reply.body, field), workflows, "{path} of {name}: {}", reply.text);
        }
        let reply = server.send("GET", "/v1/runners", token.as_deref(), None).await;
        assert_eq!(numbers(&reply.body, "id"), runners.iter().copied().collect(), "runners of {name}");
        checked += 1;
    }
    assert_eq!(checked, seen.len());
}

#[tokio::test]
async fn workflows_come_in_pages_and_by_namespace() {
    let server = three_workflows().await;
    for (query, items, next) in [
        ("", vec![1, 2, 3], None),
        ("?limit=3", vec![1, 2, 3], None),
        ("?limit=2", vec![1, 2], Some("2")),
        ("?limit=0", vec![1], Some("1")),
        ("?limit=2&cursor=2", vec![3], None),
        ("?cursor=1", vec![2, 3], None),
        ("?namespace=lab", vec![2, 3], None),
        ("?namespace=lab&limit=1", vec![2], Some("2")),
        ("?namespace=default", vec![1], None),
        ("?namespace=absent", vec![], None),
    ] {
        let page = server.ok("GET", &format!("/v1/workflows{query}"), None).await;
        assert_eq!(numbers(&page, "id"), items.into_iter().collect(), "{query}");
        assert_eq!(page["next"].as_str(), next, "{query}");
    }
}

/// Starts a server with a workflow whose jobs have ended in different ways: `a` after two attempts, the first of which failed.
async fn ended() -> TestServer {
    let server = TestServer::start().await;
    let handler = json!([{ "name": "again", "rules": [{ "exitCodes": [3], "maxRetries": 1 }] }]);
    let spec = json!({
        "failureHandlers": handler,
        "jobs": [
            { "name": "alpha", "command": "true", "failureHandler": "again" },
            { "name": "beta", "command": "true" },
            { "name": "gamma", "command": "true", "dependsOn": ["beta"] },
        ],
    });
    server.apply_spec("ada", "default", "w", spec).await;
    let runner = server.register("node-1", None).await;
    let leased = server.sync(runner, json!({ "sequence": 1, "want": want(4) })).await;
    let end =
        |lease: &Value, code: i64| json!({ "key": lease["key"], "returnCode": code, "durationMs": 5, "endedMsAgo": 0 });
    let leases = leased["leases"].as_array().unwrap();
    assert_eq!(leases.len(), 2, "{leased}");
    assert_eq!(leases[0]["name"], "beta", "a job waits for it");
    let finished = json!([end(&leases[0], 4), end(&leases[1], 3)]);
    server.sync(runner, json!({ "sequence": 2, "acknowledged": 1, "finished": finished })).await;
    server.clock.advance(600_000);
    let again = server.sync(runner, json!({ "sequence": 3, "acknowledged": 2, "want": want(4) })).await;
    assert_eq!(again["leases"][0]["key"]["attempt"], 2, "{again}");
    let finished = json!([end(&again["leases"][0], 0)]);
    server.sync(runner, json!({ "sequence": 4, "acknowledged": 3, "finished": finished })).await;
    server
}

fn names(page: &Value, field: &str) -> Vec<String> {
    page["items"].as_array().unwrap().iter().map(|item| item[field].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn jobs_are_found_by_state_and_name() {
    let server = ended().await;
    for (query, expected) in [
        ("", vec!["alpha", "beta", "gamma"]),
        ("?status=completed", vec!["alpha"]),
        ("?status=failed", vec!["beta"]),
        ("?status=completed,%20failed", vec!["alpha", "beta"]),
        ("?name=beta", vec!["beta"]),
        ("?name=bet", vec![]),
        ("?contains=bet", vec!["beta"]),
        ("?contains=a&limit=2", vec!["alpha", "beta"]),
    ] {
        let page = server.ok("GET", &format!("/v1/workflows/w/jobs{query}"), None).await;
        assert_eq!(names(&page, "name"), expected, "{query}");
    }
    let page = server.ok("GET", "/v1/workflows/w/jobs?limit=2", None).await;
    let next = page["next"].as_str().unwrap();
    let rest = server.ok("GET", &format!("/v1/workflows/w/jobs?limit=2&cursor={next}"), None).await;
    assert_eq!(names(&rest, "name"), ["gamma"]);
}

#[tokio::test]
async fn results_are_found_by_job_run_state_and_code() {
    let server = ended().await;
    let all = ["alpha 1 3", "beta 1 4", "alpha 2 0"];
    for (query, expected) in [
        ("", all.to_vec()),
        ("?job=alpha", vec!["alpha 1 3", "alpha 2 0"]),
        ("?job=2", vec!["beta 1 4"]),
        ("?run=1", all.to_vec()),
        ("?run=2", vec![]),
        ("?status=completed", vec!["alpha 2 0"]),
        ("?failed=true", vec!["alpha 1 3", "beta 1 4"]),
        ("?failed=false", all.to_vec()),
        ("?returnCode=4", vec!["beta 1 4"]),
        ("?latest=true", vec!["beta 1 4", "alpha 2 0"]),
        ("?latest=true&failed=true", vec!["beta 1 4"]),
    ] {
        let page = server.ok("GET", &format!("/v1/workflows/w/results{query}"), None).await;
        let found: BTreeSet<String> = page["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| format!("{} {} {}", one["job"].as_str().unwrap(), one["attempt"], one["returnCode"]))
            .collect();
        assert_eq!(found, expected.iter().map(|&text| text.to_owned()).collect(), "{query}");
    }
    let page = server.ok("GET", "/v1/workflows/w/results?limit=2", None).await;
    assert_eq!(page["items"].as_array().unwrap().len(), 2);
    let next = page["next"].as_str().unwrap();
    let rest = server.ok("GET", &format!("/v1/workflows/w/results?limit=2&cursor={next}"), None).await;
    assert_eq!(rest["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn events_go_on_after_a_number() {
    let server = two_workflows().await;
    let all = server.ok("GET", "/v1/events", None).await;
    let all: Vec<i64> = all["items"].as_array().unwrap().iter().map(|one| one["sequence"].as_i64().unwrap()).collect();
    assert!(all.len() > 2, "{all:?}");
    for (query, expected) in [
        ("?after=0".to_owned(), &all[..]),
        (format!("?after={}", all[0]), &all[1..]),
        ("?limit=1".to_owned(), &all[..1]),
    ] {
        let page = server.ok("GET", &format!("/v1/events{query}"), None).await;
        let found: Vec<i64> = numbers(&page, "sequence").into_iter().collect();
        assert_eq!(found, expected, "{query}");
    }
    let of_bob = server.ok("GET", "/v1/events?workflow=sweep&namespace=lab", None).await;
    assert_eq!(numbers(&of_bob, "workflowId"), BTreeSet::from([2]));
}

#[tokio::test]
async fn runners_that_have_left_are_shown_when_asked_for() {
    let server = two_workflows().await;
    server.sync(1, json!({ "sequence": 1, "leaving": true })).await;
    for (query, expected) in [("", vec![(2, "active")]), ("?all=true", vec![(1, "gone"), (2, "active")])] {
        let page = server.ok("GET", &format!("/v1/runners{query}"), None).await;
        let found: Vec<(i64, &str)> = page["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| (one["id"].as_i64().unwrap(), one["status"].as_str().unwrap()))
            .collect();
        assert_eq!(found, expected, "{query}");
    }
}

#[tokio::test]
async fn allocations_are_found_by_workflow_and_life() {
    let server = three_workflows().await;
    let key = (WorkflowId(2), AllocationId(2));
    assert!(server.engine.allocation_submitted(key, "77".to_owned()).await.unwrap());
    let ended =
        Observation { observation: SlurmObservation::Recorded(SlurmState::Completed), ..Observation::unanswered(key) };
    server.engine.observe_allocations(vec![ended]).await.unwrap();
    for (query, expected) in [
        ("", vec![1, 2, 3]),
        ("?workflow=third&namespace=lab", vec![3]),
        ("?workflow=2", vec![2]),
        ("?limit=1", vec![1]),
        ("?live=false", vec![1, 2, 3]),
    ] {
        let page = server.ok("GET", &format!("/v1/allocations{query}"), None).await;
        assert_eq!(numbers(&page, "workflowId"), expected.into_iter().collect(), "{query}");
    }
    let live = server.ok("GET", "/v1/allocations?live=true", None).await;
    let workflow = &live["items"].as_array().unwrap().iter().map(|one| one["workflow"].clone()).collect::<Vec<_>>();
    assert_eq!(*workflow, [json!("sweep"), json!("third")], "the second one is over");
}

#[tokio::test]
async fn metrics_of_a_server_count_its_jobs_and_runners() {
    let server = ended().await;
    let text = server.send("GET", "/metrics", Some(crate::tests::METRICS), None).await;
    assert_eq!(text.headers["content-type"], crate::metrics::CONTENT_TYPE);
    for line in [
        "torc_syncs_total 4",
        "torc_reports_total 3",
        "torc_results_total 3",
        "torc_runners 1",
        "torc_jobs{state=\"completed\"} 1",
        "torc_jobs{state=\"failed\"} 1",
    ] {
        assert!(text.text.lines().any(|found| found == line), "{line} is not in\n{}", text.text);
    }
}

#[tokio::test]
async fn a_cluster_is_found_by_its_name() {
    let server = TestServer::start().await;
    for name in ["b", "a", "c"] {
        let document = json!({
            "apiVersion": "torc.dev/v1alpha1", "metadata": { "name": name }, "spec": { "defaultAccount": format!("of-{name}") },
        });
        server.ok("POST", "/v1/slurmclusters", Some(document)).await;
    }
    for name in ["a", "b", "c"] {
        let found = server.ok("GET", &format!("/v1/slurmclusters/{name}"), None).await;
        assert_eq!((&found["name"], &found["spec"]["defaultAccount"]), (&json!(name), &json!(format!("of-{name}"))));
        assert_eq!(found["generation"], 1);
    }
    server.ok("DELETE", "/v1/slurmclusters/b", None).await;
    let all = server.ok("GET", "/v1/slurmclusters", None).await;
    assert_eq!(names(&all, "name"), ["a", "c"]);
}

#[tokio::test]
async fn a_workflow_belongs_to_the_caller_that_created_it() {
    let server = TestServer::start().await;
    let grant = torc_api::token::Grant::Owner { user: "ada".to_owned() };
    let ada = server.token(grant, None);
    let body = |name: &str| json!({ "workingDir": "/w", "document": crate::tests::document("default", name, json!({ "jobs": jobs(&["j"]) })) });
    for (token, name, owner) in
        [(ada.as_str(), "hers", "ada"), (crate::tests::ADMIN, "its", "root"), (crate::tests::ADMIN, "hers", "ada")]
    {
        let reply = server.send("POST", "/v1/workflows", Some(token), Some(body(name))).await;
        assert!(reply.status.is_success(), "{}", reply.text);
        let shown = server.ok("GET", &format!("/v1/workflows/{name}"), None).await;
        assert_eq!(shown["owner"], owner, "{name}");
    }
}
