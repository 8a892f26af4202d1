//! The loops of the controller: they start, pause without leadership, continue after errors, and end on request.

use kube::runtime::reflector::Store;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::super::reconcile::reconcile;
use super::super::watch::Watches;
use super::super::{clusters, definitions, events, orphans, pools};
use super::*;

/// Waits until a condition holds, at most for a minute.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let end = tokio::time::Instant::now() + Duration::from_secs(60);
    while !is_so().await {
        assert!(tokio::time::Instant::now() < end, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn end(stop: &CancellationToken, task: JoinHandle<()>) {
    stop.cancel();
    tokio::time::timeout(Duration::from_secs(60), task).await.expect("it ends").expect("it does not panic");
}

/// Returns the context of another server with the same engine, but with its own cache and API server.
fn beside(
    fixture: &Fixture,
    client: kube::Client,
    leadership: Leadership,
    stores: Vec<Store<GuardedWorkflow>>,
) -> Arc<Context> {
    let context = &fixture.context;
    let (config, readiness, url) = (context.config.clone(), context.readiness.clone(), context.api_url.clone());
    let clusters = context.clusters.clone();
    Arc::new(Context::new(context.engine.clone(), None, client, leadership, config, readiness, url, stores, clusters))
}

/// Returns the context of a server that no longer leads.
fn deposed(fixture: &Fixture, api: &FakeApi) -> Arc<Context> {
    let leadership = Leadership::of_lease(0, CancellationToken::new());
    beside(fixture, api.client(), leadership, fixture.context.workflows.clone())
}

/// Returns a fixture with a workflow whose object is gone.
async fn with_orphan() -> Fixture {
    let mut fixture = Fixture::new().await;
    let found = fixture.list_object(workflow("gone", 1, jobs(&["a"])));
    reconcile(Arc::clone(&found), Arc::clone(&fixture.context)).await.unwrap();
    fixture.workflows.apply_watcher_event(&Event::Delete(Arc::unwrap_or_clone(found)));
    fixture
}

async fn is_canceled(fixture: &Fixture) -> bool {
    fixture.server.ok("GET", "/v1/workflows/gone?namespace=lab", None).await["canceled"] == true
}

#[tokio::test]
async fn orphans_are_detected_only_by_a_leader_with_a_full_list() {
    let (unlisted, led_by_others, leading) = (with_orphan().await, with_orphan().await, with_orphan().await);
    unlisted.context.readiness.lists();
    let stop = CancellationToken::new();
    let start = |context: &Arc<Context>| tokio::spawn(orphans::run(Arc::clone(context), stop.clone()));
    let tasks =
        [start(&unlisted.context), start(&deposed(&led_by_others, &led_by_others.api)), start(&leading.context)];
    until("the end of an orphan", async || is_canceled(&leading).await).await;
    assert!(!is_canceled(&unlisted).await, "its object may yet be listed");
    assert!(!is_canceled(&led_by_others).await, "another server leads");
    unlisted.context.readiness.listed();
    until("the next look", async || is_canceled(&unlisted).await).await;
    for task in tasks {
        end(&stop, task).await;
    }
}

#[tokio::test]
async fn pools_are_sized_by_the_server_that_leads() {
    let pool: pools::Pool =
        serde_json::from_value(json!({ "deployment": "p", "idle": 0, "max": 5, "limits": { "cpu": 2 } })).unwrap();
    let fixture = Fixture::with(|config| config.pools = vec![pool], Leadership::permanent()).await;
    fixture.server.apply("ada", "lab", "w", crate::tests::jobs(&["a", "b", "c"])).await;
    let other = FakeApi::default();
    let scale = json!({
        "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": { "name": "p" }, "spec": { "replicas": 1 },
    });
    for api in [&fixture.api, &other] {
        api.answers("GET", "/apis/apps/v1/namespaces/torc/deployments/p/scale", 200, scale.clone());
    }
    let stop = CancellationToken::new();
    let tasks = [deposed(&fixture, &other), Arc::clone(&fixture.context)]
        .map(|context| tokio::spawn(pools::run(context, stop.clone())));
    let mut calls = Vec::new();
    until("a pool of another size", async || {
        calls.extend(fixture.api.calls());
        calls.iter().any(|call| call.method == "PATCH")
    })
    .await;
    let patch = calls.iter().find(|call| call.method == "PATCH").map(|call| call.body.clone());
    assert_eq!(patch, Some(json!({ "spec": { "replicas": 2 } })));
    assert_eq!(other.lines(), Vec::<String>::new(), "another server leads");
    for task in tasks {
        end(&stop, task).await;
    }
}

#[tokio::test]
async fn definitions_are_compared_until_they_are_there() {
    let fixture = Fixture::new().await;
    let stop = CancellationToken::new();
    let task = tokio::spawn(definitions::run(Arc::clone(&fixture.context), stop.clone()));
    until("something is missing", async || fixture.context.readiness.missing().is_some()).await;
    let missing = fixture.context.readiness.missing().unwrap();
    assert!(missing.starts_with("definitions: ") && missing.contains("`torc crd install`"), "{missing}");
    assert!(!task.is_finished(), "it looks again");
    end(&stop, task).await;

    let mut schemas = serde_json::Map::new();
    for one in torc_api::definition::definitions() {
        let kind = one["spec"]["names"]["kind"].as_str().unwrap().to_owned();
        schemas.insert(
            format!("dev.torc.v1alpha1.{kind}"),
            one["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone(),
        );
    }
    fixture.api.answers("GET", "/openapi/v3/apis/torc.dev", 200, json!({ "components": { "schemas": schemas } }));
    definitions::run(Arc::clone(&fixture.context), CancellationToken::new()).await;
    assert_eq!(fixture.context.readiness.missing(), None, "and it ends by itself");
}

#[tokio::test]
async fn events_are_told_again_after_trouble() {
    let mut fixture = Fixture::new().await;
    let found = fixture.list_object(workflow("w", 1, jobs(&["a"])));
    reconcile(found, Arc::clone(&fixture.context)).await.unwrap();
    let mut refusals = 1;
    fixture.api.does(move |call| {
        let is_event = call.method == "POST" && call.path.contains("/events") && refusals > 0;
        is_event.then(|| {
            refusals -= 1;
            failure(503, "ServiceUnavailable", "not now")
        })
    });
    fixture.api.calls();
    let stop = CancellationToken::new();
    let task = tokio::spawn(events::run(Arc::clone(&fixture.context), stop.clone()));
    let told = async || fixture.server.engine.event_cursor().await.unwrap() > 0;
    until("an event", told).await;
    let posts = fixture.api.lines().iter().filter(|line| line.starts_with("POST")).count();
    assert_eq!(posts, 2, "one was refused");
    end(&stop, task).await;
}

/// Returns a list of objects like an API server.
fn list(kind: &str, items: Value) -> Value {
    json!({ "apiVersion": "torc.dev/v1alpha1", "kind": kind, "metadata": { "resourceVersion": "7" }, "items": items })
}

/// Answers lists. Watches fail, so that they do not restart at once.
fn lists(api: &FakeApi, path: &'static str, list: Value) {
    api.does(move |call| {
        let is_watch = call.path.contains("watch=");
        let answer = if is_watch { failure(500, "InternalError", "not now") } else { (200, list.clone()) };
        call.path.starts_with(path).then_some(answer)
    });
}

#[tokio::test]
async fn clusters_are_removed_only_after_a_list() {
    let path = "/apis/torc.dev/v1alpha1/slurmclusters";
    let fixture = Fixture::new().await;
    let Fixture { api, server, context, clusters, .. } = fixture;
    let old = json!({ "apiVersion": "torc.dev/v1alpha1", "metadata": { "name": "old" }, "spec": {} });
    context.engine.apply_cluster(serde_json::from_value(old).unwrap()).await.unwrap();
    let names = async || {
        let page = server.ok("GET", "/v1/slurmclusters", None).await;
        page["items"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let (code, body) = failure(403, "Forbidden", "no");
    api.answers("GET", path, code, body);
    let stop = CancellationToken::new();
    let task = tokio::spawn(clusters::run(Arc::clone(&context), clusters, stop.clone()));
    let mut seen = 0;
    until("two lists", async || {
        seen += api.calls().len();
        seen >= 2
    })
    .await;
    assert_eq!(names().await, ["old"], "nothing is known of what there is");
    let new = json!([{
        "apiVersion": "torc.dev/v1alpha1", "kind": "SlurmCluster",
        "metadata": { "name": "new", "uid": "u", "generation": 1 }, "spec": {},
    }]);
    lists(&api, path, list("SlurmClusterList", new));
    until("the listed cluster", async || names().await == ["new"]).await;
    end(&stop, task).await;
}

#[tokio::test]
async fn listed_workflows_are_reconciled() {
    let fixture = Fixture::new().await;
    let watches = Watches::new(&["lab".to_owned()]);
    let context = beside(&fixture, fixture.api.client(), Leadership::permanent(), watches.stores());
    context.readiness.lists();
    let items = json!([workflow("w", 1, jobs(&["a"]))]);
    lists(&fixture.api, "/apis/torc.dev/v1alpha1/namespaces/lab/workflows?", list("WorkflowList", items));
    let stop = CancellationToken::new();
    let tasks = watches.run(&context, &stop);
    assert_eq!(tasks.len(), 2, "one for the namespace, one for news");
    let total = async || {
        let found = fixture.server.send("GET", "/v1/workflows/w?namespace=lab", Some(crate::tests::ADMIN), None).await;
        found.body["status"]["jobs"]["total"] == 1
    };
    until("a stored workflow", total).await;
    assert!(context.readiness.has_listed());
    for task in tasks {
        end(&stop, task).await;
    }
}
