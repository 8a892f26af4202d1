//! Runner pools are scaled when the work requires it.

use std::collections::HashMap;
use std::time::Instant;

use super::super::pools::{Pool, adjust};
use super::*;

fn pool(kind: &str, name: &str) -> Pool {
    serde_json::from_value(json!({ kind: name, "idle": 0, "max": 5, "coolDownSeconds": 0, "limits": { "cpu": 2 } }))
        .unwrap()
}

fn scale(replicas: i64) -> Value {
    json!({ "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": { "name": "p" }, "spec": { "replicas": replicas } })
}

async fn sized(kind: &str, plural: &'static str, replicas: i64, names: &[&str]) -> Vec<Call> {
    let fixture = Fixture::new().await;
    if !names.is_empty() {
        fixture.server.apply("ada", "lab", "w", crate::tests::jobs(names)).await;
    }
    fixture.api.answers("GET", plural, 200, scale(replicas));
    let mut quiet = HashMap::from([("p".to_owned(), Instant::now())]);
    adjust(&fixture.context, &pool(kind, "p"), &mut quiet).await.unwrap();
    fixture.api.calls()
}

#[tokio::test]
async fn a_pool_is_scaled_to_the_work() {
    for (kind, plural) in [
        ("deployment", "/apis/apps/v1/namespaces/torc/deployments/p/scale"),
        ("statefulSet", "/apis/apps/v1/namespaces/torc/statefulsets/p/scale"),
    ] {
        let calls = sized(kind, plural, 1, &["a", "b", "c"]).await;
        let lines: Vec<String> =
            calls.iter().map(|call| format!("{} {}", call.method, call.path.split('?').next().unwrap())).collect();
        assert_eq!(lines, [format!("GET {plural}"), format!("PATCH {plural}")]);
        assert_eq!(calls[1].body, json!({ "spec": { "replicas": 2 } }));
        assert_eq!(sized(kind, plural, 2, &["a", "b", "c"]).await.len(), 1, "it has its size");
        let calls = sized(kind, plural, 3, &[]).await;
        assert_eq!(calls[1].body, json!({ "spec": { "replicas": 0 } }), "nothing is left to do");
    }
}

#[tokio::test]
async fn a_pool_is_quiet_since_its_last_runner_had_work() {
    let fixture = Fixture::new().await;
    fixture.server.apply("ada", "lab", "w", crate::tests::jobs(&["a"])).await;
    fixture.api.answers("GET", "/apis/apps/v1", 200, scale(3));
    let runner = fixture.server.register("p-7d9-x", None).await;
    let pool = Pool { cool_down_seconds: 1_000, ..pool("deployment", "p") };
    let mut quiet = HashMap::new();
    adjust(&fixture.context, &pool, &mut quiet).await.unwrap();
    assert!(quiet.contains_key("p"), "none of its runners has work");
    let leased = fixture.server.sync(runner, json!({ "sequence": 1, "want": crate::tests::want(1) })).await;
    assert_eq!(leased["leases"].as_array().unwrap().len(), 1);
    adjust(&fixture.context, &pool, &mut quiet).await.unwrap();
    assert!(quiet.is_empty(), "one waits in a runner's queue");
    assert!(fixture.api.lines().iter().all(|line| line.starts_with("GET")), "the pause is not over");
}
