//! Workflows without an object.

use super::super::orphans::list_orphans;
use super::super::reconcile::reconcile;
use super::*;

#[tokio::test]
async fn a_workflow_whose_object_is_gone_is_cancelled() {
    let mut fixture = Fixture::new().await;
    for name in ["here", "gone"] {
        let found = fixture.list_object(workflow(name, 1, jobs(&["a"])));
        reconcile(found, Arc::clone(&fixture.context)).await.unwrap();
    }
    fixture.server.apply("ada", "lab", "plain", crate::tests::jobs(&["a"])).await;
    let canceled = async |fixture: &Fixture| {
        let page = fixture.server.ok("GET", "/v1/workflows", None).await;
        let gone = |one: &&Value| one["canceled"] == true;
        page["items"]
            .as_array()
            .unwrap()
            .iter()
            .filter(gone)
            .map(|one| one["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    list_orphans(&fixture.context).await.unwrap();
    assert_eq!(canceled(&fixture).await, Vec::<String>::new(), "both objects are there");
    let gone: GuardedWorkflow = serde_json::from_value(workflow("gone", 1, jobs(&["a"]))).unwrap();
    let uid = object_of(&gone);
    fixture.workflows.apply_watcher_event(&Event::Delete(gone));
    assert!(fixture.context.recall(&uid, None).workflow.is_some());
    list_orphans(&fixture.context).await.unwrap();
    assert_eq!(canceled(&fixture).await, ["gone"], "one that never was an object stays");
    assert!(fixture.context.recall(&uid, None).workflow.is_none(), "nothing is remembered of it");
}

#[tokio::test]
async fn a_later_object_of_the_name_does_not_keep_the_earlier_one() {
    let mut fixture = Fixture::new().await;
    let first = fixture.list_object(workflow("w", 1, jobs(&["a"])));
    reconcile(first, Arc::clone(&fixture.context)).await.unwrap();
    let mut later = workflow("w", 1, jobs(&["a"]));
    later["metadata"]["uid"] = json!("ffff");
    fixture.list_object(later);
    list_orphans(&fixture.context).await.unwrap();
    assert_eq!(fixture.server.ok("GET", "/v1/workflows/w?namespace=lab", None).await["canceled"], true);
}
