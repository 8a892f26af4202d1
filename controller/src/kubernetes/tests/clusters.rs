//! SlurmCluster objects are applied to the engine.

use super::super::clusters::{ClusterStates, poll_clusters};
use super::*;

fn cluster(name: &str, generation: i64, account: &str) -> DeserializeGuard<SlurmCluster> {
    serde_json::from_value(json!({
        "apiVersion": "torc.dev/v1alpha1", "kind": "SlurmCluster",
        "metadata": { "name": name, "uid": format!("uid-{name}"), "generation": generation },
        "spec": { "defaultAccount": account },
    }))
    .unwrap()
}

#[tokio::test]
async fn clusters_follow_their_objects() {
    let mut fixture = Fixture::new().await;
    let mut states = ClusterStates::default();
    let stored = async |fixture: &Fixture| {
        let page = fixture.server.ok("GET", "/v1/slurmclusters", None).await;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let one = |one: &Value| format!("{} {}", text(&one["name"]), text(&one["spec"]["defaultAccount"]));
        page["items"].as_array().unwrap().iter().map(one).collect::<Vec<_>>()
    };
    for one in [cluster("a", 1, "x"), cluster("b", 1, "y")] {
        fixture.clusters.apply_watcher_event(&Event::Apply(one));
    }
    poll_clusters(&fixture.context, &mut states).await.unwrap();
    assert_eq!(stored(&fixture).await, ["a x", "b y"]);
    fixture.clusters.apply_watcher_event(&Event::Apply(cluster("a", 1, "same generation")));
    fixture.clusters.apply_watcher_event(&Event::Apply(cluster("b", 2, "z")));
    poll_clusters(&fixture.context, &mut states).await.unwrap();
    assert_eq!(stored(&fixture).await, ["a x", "b z"]);
    fixture.clusters.apply_watcher_event(&Event::Delete(cluster("a", 1, "x")));
    poll_clusters(&fixture.context, &mut states).await.unwrap();
    assert_eq!(stored(&fixture).await, ["b z"]);
}
