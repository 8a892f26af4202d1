//! Reconciles of one object: documents applied, statuses written, and delays.

use kube::runtime::controller::Action;
use tokio_util::sync::CancellationToken;

use super::super::reconcile::{after_error, reconcile};
use super::super::ttl::seconds;
use super::*;

const W: &str = "/apis/torc.dev/v1alpha1/namespaces/lab/workflows/w";

async fn pass(fixture: &Fixture, found: &Arc<GuardedWorkflow>) -> Action {
    reconcile(Arc::clone(found), Arc::clone(&fixture.context)).await.unwrap()
}

fn again(seconds: u64) -> Action {
    Action::requeue(Duration::from_secs(seconds))
}

/// Returns the last written status.
fn status(calls: &[Call]) -> Value {
    calls.iter().rev().find(|call| call.path.contains("/status")).unwrap().body["status"].clone()
}

#[tokio::test]
async fn an_object_is_applied_and_told_how_it_is() {
    let mut fixture = Fixture::new().await;
    let mut object = workflow("w", 4, jobs(&["a"]));
    object["metadata"]["annotations"] = json!({ "torc.dev/working-dir": "/own-dir" });
    let found = fixture.list_object(object);
    assert_eq!(pass(&fixture, &found).await, again(300));
    let calls = fixture.api.calls();
    let lines: Vec<String> = calls.iter().map(|call| format!("{} {}", call.method, call.path)).collect();
    assert_eq!(lines, [format!("PATCH {W}/status?&force=true&fieldManager=torc-controller")]);
    assert_eq!(calls[0].body["metadata"], json!({ "name": "w", "uid": "1a2b-w" }), "never another object of the name");
    let said = status(&calls);
    assert_eq!((&said["observedGeneration"], &said["apiURL"]), (&json!(4), &json!("https://api")));
    assert_eq!(Fixture::conditions(&said)[0], "Accepted=True/Planned");
    let stored = fixture.server.ok("GET", "/v1/workflows/w?namespace=lab", None).await;
    assert_eq!((&stored["owner"], &stored["workingDir"]), (&json!("lab"), &json!("/own-dir")));
    let metadata = &stored["document"]["metadata"];
    assert_eq!(metadata["annotations"], json!({ "torc.dev/uid": "1a2b-w" }));
    assert_eq!(metadata["labels"], json!({ "team": "blue" }));
    assert!(fixture.server.metrics.render(&[], 0).contains("torc_kubernetes_status_writes_total 1\n"));
    assert_eq!(pass(&fixture, &found).await, again(300));
    assert_eq!(fixture.api.lines(), Vec::<String>::new(), "there is nothing new to say");
}

#[tokio::test]
async fn an_owner_that_is_named_owns_and_the_usual_folder_counts() {
    let mut fixture = Fixture::new().await;
    let mut spec = jobs(&["a"]);
    spec["user"] = json!("ada");
    let found = fixture.list_object(workflow("w", 1, spec));
    pass(&fixture, &found).await;
    let stored = fixture.server.ok("GET", "/v1/workflows/w?namespace=lab", None).await;
    assert_eq!((&stored["owner"], &stored["workingDir"]), (&json!("ada"), &json!("/default-dir")));
}

#[tokio::test]
async fn an_edit_is_applied_and_an_old_generation_is_not() {
    let mut fixture = Fixture::new().await;
    let names = async |fixture: &Fixture| {
        let page = fixture.server.ok("GET", "/v1/workflows/w/jobs?namespace=lab", None).await;
        page["items"].as_array().unwrap().iter().map(|job| job["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let found = fixture.list_object(workflow("w", 1, jobs(&["a"])));
    pass(&fixture, &found).await;
    let same = fixture.list_object(workflow("w", 1, jobs(&["b"])));
    pass(&fixture, &same).await;
    assert_eq!(names(&fixture).await, ["a"], "a generation is applied once");
    let edited = fixture.list_object(workflow("w", 2, jobs(&["b"])));
    pass(&fixture, &edited).await;
    assert_eq!(names(&fixture).await, ["b"]);
}

#[tokio::test]
async fn a_refused_edit_is_told_once_and_leaves_the_old_plan() {
    let mut fixture = Fixture::new().await;
    let found = fixture.list_object(workflow("w", 1, jobs(&["a"])));
    pass(&fixture, &found).await;
    fixture.api.calls();
    let circle = json!({ "jobs": [{ "name": "a", "command": "true", "dependsOn": ["a"] }] });
    let found = fixture.list_object(workflow("w", 2, circle));
    pass(&fixture, &found).await;
    let calls = fixture.api.calls();
    let told = calls.iter().find(|call| call.method == "POST").unwrap();
    assert_eq!(told.path.split('?').next(), Some("/apis/events.k8s.io/v1/namespaces/lab/events"));
    assert_eq!((&told.body["reason"], &told.body["type"]), (&json!("PlanRejected"), &json!("Warning")));
    assert_eq!(told.body["metadata"]["name"], "w.1a2b.rejected-2-cyclefound");
    assert!(told.body["note"].as_str().unwrap().starts_with("CycleFound: "), "{told:?}");
    let said = status(&calls);
    assert_eq!(Fixture::conditions(&said)[0], "Accepted=False/CycleFound");
    assert_eq!(said["observedGeneration"], 2);
    pass(&fixture, &found).await;
    assert_eq!(fixture.api.lines(), Vec::<String>::new(), "it is told once, and not tried again");
    assert_eq!(fixture.server.ok("GET", "/v1/workflows/w?namespace=lab", None).await["generation"], 1);
}

#[tokio::test]
async fn an_unknown_cluster_is_waited_for() {
    let mut fixture = Fixture::new().await;
    let mut spec = jobs(&["a"]);
    spec["slurmCluster"] = json!("far");
    let found = fixture.list_object(workflow("w", 1, spec));
    assert_eq!(pass(&fixture, &found).await, again(4), "it may come");
    let said = status(&fixture.api.calls());
    assert_eq!(Fixture::conditions(&said)[0], "Accepted=False/ClusterNotFound");
    let cluster = json!({ "apiVersion": "torc.dev/v1alpha1", "metadata": { "name": "far" }, "spec": {} });
    fixture.server.ok("POST", "/v1/slurmclusters", Some(cluster)).await;
    assert_eq!(pass(&fixture, &found).await, again(300));
    assert_eq!(Fixture::conditions(&status(&fixture.api.calls()))[0], "Accepted=True/Planned");
}

#[tokio::test]
async fn the_finalizer_is_added_where_it_is_missing() {
    let mut fixture = Fixture::new().await;
    let mut object = workflow("w", 1, jobs(&["a"]));
    object["metadata"]["finalizers"] = json!(["other"]);
    let found = fixture.list_object(object);
    pass(&fixture, &found).await;
    let calls = fixture.api.calls();
    assert_eq!((calls[0].method.as_str(), calls[0].path.split('?').next().unwrap()), ("PATCH", W));
    let metadata = json!({ "name": "w", "uid": "1a2b-w", "finalizers": ["torc.dev/cleanup"] });
    assert_eq!(calls[0].body["metadata"], metadata);
}

#[tokio::test]
async fn nothing_is_done_without_leadership() {
    let mut fixture = Fixture::with(|_| {}, Leadership::of_lease(0, CancellationToken::new())).await;
    let found = fixture.list_object(workflow("w", 1, jobs(&["a"])));
    assert_eq!(pass(&fixture, &found).await, again(2));
    assert!(fixture.api.lines().is_empty());
    let workflows = fixture.server.ok("GET", "/v1/workflows", None).await;
    assert_eq!(workflows["items"], json!([]));
}

#[tokio::test]
async fn what_another_controller_manages_is_left_to_it() {
    let mut fixture = Fixture::new().await;
    let mut spec = jobs(&["a"]);
    spec["managedBy"] = json!("example.com/other");
    let mut object = workflow("w", 5, spec);
    let found = fixture.list_object(object.clone());
    assert_eq!(pass(&fixture, &found).await, again(300));
    let said = status(&fixture.api.calls());
    assert_eq!(Fixture::conditions(&said), ["Suspended=True/ManagedByOther"]);
    assert_eq!(fixture.server.ok("GET", "/v1/workflows", None).await["items"], json!([]));
    object["status"] = said;
    let found = fixture.list_object(object);
    pass(&fixture, &found).await;
    assert!(fixture.api.lines().is_empty(), "that is said once");
}

#[tokio::test]
async fn an_earlier_object_of_the_same_name_is_replaced() {
    let mut fixture = Fixture::new().await;
    let first = fixture.list_object(workflow("w", 1, jobs(&["a"])));
    pass(&fixture, &first).await;
    let mut second = workflow("w", 1, jobs(&["a"]));
    second["metadata"]["uid"] = json!("9f9f-later");
    let second = fixture.list_object(second);
    pass(&fixture, &second).await;
    let stored = fixture.server.ok("GET", "/v1/workflows/w?namespace=lab", None).await;
    assert_eq!(
        (&stored["id"], &stored["document"]["metadata"]["annotations"]["torc.dev/uid"]),
        (&json!(2), &json!("9f9f-later"))
    );
    // A workflow that was applied without a cluster has no uid, and now belongs to the object.
    fixture.server.apply("ada", "lab", "plain", crate::tests::jobs(&["a"])).await;
    let plain = fixture.list_object(workflow("plain", 1, jobs(&["a"])));
    pass(&fixture, &plain).await;
    assert_eq!(fixture.server.ok("GET", "/v1/workflows/plain?namespace=lab", None).await["id"], 3);
}

#[tokio::test]
async fn an_object_that_cannot_be_read_says_so() {
    let mut fixture = Fixture::new().await;
    let found = fixture.list_object(workflow("w", 7, json!({ "jobs": 3 })));
    assert!(found.0.is_err());
    pass(&fixture, &found).await;
    let said = status(&fixture.api.calls());
    assert_eq!(
        (Fixture::conditions(&said)[0].as_str(), &said["observedGeneration"]),
        ("Accepted=False/InvalidSpec", &json!(7))
    );
}

/// Ends every job of `lab/w`.
async fn end_jobs(fixture: &Fixture) {
    let runner = fixture.server.register("node", None).await;
    let leased = fixture.server.sync(runner, json!({ "sequence": 1, "want": crate::tests::want(4) })).await;
    let end = |lease: &Value| json!({ "key": lease["key"], "returnCode": 0, "durationMs": 1, "endedMsAgo": 0 });
    let finished: Vec<Value> = leased["leases"].as_array().unwrap().iter().map(end).collect();
    fixture.server.sync(runner, json!({ "sequence": 2, "acknowledged": 1, "finished": finished })).await;
}

#[tokio::test]
async fn a_finished_object_is_deleted_when_its_time_is_over() {
    for (ttl, deleted) in [(None, false), (Some(100), false), (Some(0), true)] {
        let mut fixture = Fixture::new().await;
        let mut spec = jobs(&["a"]);
        if let Some(ttl) = ttl {
            spec["ttlSecondsAfterFinished"] = json!(ttl);
        }
        let found = fixture.list_object(workflow("w", 1, spec));
        assert_eq!(pass(&fixture, &found).await, again(300), "it has not ended");
        end_jobs(&fixture).await;
        fixture.api.calls();
        let action = pass(&fixture, &found).await;
        let calls = fixture.api.calls();
        let gone = calls.iter().find(|call| call.method == "DELETE");
        assert_eq!(gone.is_some(), deleted, "{ttl:?}");
        if let Some(gone) = gone {
            assert_eq!(gone.path.split('?').next(), Some(W));
            assert_eq!(gone.body["preconditions"]["uid"], "1a2b-w");
        }
        if ttl == Some(100) {
            // The engine's clock is fixed in this test, and the real one is not.
            assert!(
                (40..=100).map(again).any(|in_time| in_time == action),
                "it is looked at again in time: {action:?}"
            );
        }
    }
}

#[tokio::test]
async fn passes_that_fail_are_repeated_after_longer_pauses() {
    let mut fixture = Fixture::new().await;
    let (found, other) =
        (fixture.list_object(workflow("w", 1, jobs(&["a"]))), fixture.list_object(workflow("v", 1, jobs(&["a"]))));
    let (code, body) = failure(500, "InternalError", "no");
    fixture.api.answers("PATCH", "/apis/torc.dev/v1alpha1/namespaces/lab/workflows/w/status", code, body);
    for expected in [1, 2, 4, 8] {
        let trouble = reconcile(Arc::clone(&found), Arc::clone(&fixture.context)).await.unwrap_err();
        assert_eq!(
            after_error(Arc::clone(&found), &trouble, Arc::clone(&fixture.context)),
            again(expected),
            "{trouble}"
        );
    }
    assert_eq!(pass(&fixture, &other).await, again(300), "each object waits for itself");
    fixture.api.does(|call| call.path.contains("/workflows/w/status").then(|| (200, call.body.clone())));
    assert_eq!(pass(&fixture, &found).await, again(300));
    assert_eq!(fixture.context.recall(&object_of(&found), None).failures, 0, "the next failure is the first one");
}

#[tokio::test]
async fn tables_come_from_config_maps_and_are_looked_at_every_minute() {
    let mut fixture = Fixture::with(|config| config.sources = true, Leadership::permanent()).await;
    let versions = Arc::new(Mutex::new(("1", "lr\n0.1\n")));
    let served = Arc::clone(&versions);
    fixture.api.does(move |call| {
        let (version, text) = *served.lock().unwrap();
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "tables", "resourceVersion": version },
            "data": { "sweep": text },
        });
        (call.path.split('?').next() == Some("/api/v1/namespaces/lab/configmaps/tables")).then_some((200, map))
    });
    let spec = json!({
        "sources": [{ "name": "sweep.csv", "configMapName": "tables", "key": "sweep" }],
        "jobs": [{ "name": "j_{lr}", "command": "true", "parametersFile": "sweep.csv" }],
    });
    let found = fixture.list_object(workflow("w", 1, spec));
    let total = async |fixture: &Fixture| {
        fixture.server.ok("GET", "/v1/workflows/w?namespace=lab", None).await["status"]["jobs"]["total"]
            .as_i64()
            .unwrap()
    };
    assert_eq!(pass(&fixture, &found).await, again(60));
    assert_eq!(total(&fixture).await, 1);
    *versions.lock().unwrap() = ("1", "lr\n0.1\n0.2\n");
    pass(&fixture, &found).await;
    assert_eq!(total(&fixture).await, 1, "it is the same version");
    *versions.lock().unwrap() = ("2", "lr\n0.1\n0.2\n");
    pass(&fixture, &found).await;
    assert_eq!(total(&fixture).await, 2);
}

#[test]
fn times_of_a_status_are_read_in_seconds() {
    assert_eq!(seconds("2026-01-01T00:00:01.900Z"), Some(1_767_225_601));
    assert_eq!(seconds("yesterday"), None);
}

#[tokio::test]
async fn a_workflow_of_another_object_is_not_this_ones() {
    let mut fixture = Fixture::new().await;
    let found = fixture.list_object(workflow("w", 1, jobs(&["a"])));
    pass(&fixture, &found).await;
    let own = object_of(&found);
    let other = Object { uid: "ffff".to_owned(), ..own.clone() };
    fixture.context.forget(&own);
    assert_eq!(
        fixture.context.summary(&own).await.unwrap().map(|one| one.id),
        Some(1),
        "it is found by its annotation"
    );
    assert!(fixture.context.summary(&other).await.unwrap().is_none());
    let elsewhere = Object { namespace: "other".to_owned(), ..own };
    fixture.context.forget(&elsewhere);
    assert!(fixture.context.summary(&elsewhere).await.unwrap().is_none());
}

#[tokio::test]
async fn a_document_that_is_too_large_is_refused() {
    let mut fixture = Fixture::new().await;
    let mut spec = jobs(&["a"]);
    spec["description"] = json!("x".repeat(2 << 20));
    let found = fixture.list_object(workflow("w", 1, spec));
    pass(&fixture, &found).await;
    assert_eq!(Fixture::conditions(&status(&fixture.api.calls()))[0], "Accepted=False/TooLarge");
}
