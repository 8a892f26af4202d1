//! Remote workers of a workflow.

use torc_api::remote::RemoteWorker;
use torc_core::ids::WorkflowId;
use torc_core::rows::Changes;
use torc_store::Store;

use crate::samples::{new_store, workflow};

fn worker(address: &str, folder: Option<&str>) -> RemoteWorker {
    RemoteWorker { address: address.to_owned(), folder: folder.map(str::to_owned), ..RemoteWorker::default() }
}

/// A worker in a list: address, folder, time of addition.
type ExpectedWorker = (&'static str, Option<&'static str>, &'static str);

async fn check(store: &Store, id: i64, expected: &[ExpectedWorker]) {
    let found = store.remote_workers(WorkflowId(id)).await.unwrap();
    let expected: Vec<RemoteWorker> = expected
        .iter()
        .map(|(address, folder, time)| RemoteWorker {
            creation_time: Some((*time).to_owned()),
            ..worker(address, *folder)
        })
        .collect();
    assert_eq!(found, expected, "workers of workflow {id}");
}

const FIRST: &str = "1970-01-01T00:00:01.000Z";
const SECOND: &str = "1970-01-01T00:00:02.000Z";

// J04
#[tokio::test]
async fn workers_are_listed_by_time_and_address() {
    let (_folder, store) = new_store().await;
    store.commit(&Changes { workflows: vec![workflow(1), workflow(2)], ..Changes::default() }).await.unwrap();
    let add = async |id, workers: &[RemoteWorker], now_ms| {
        store.add_remote_workers(WorkflowId(id), workers, now_ms).await.unwrap();
    };
    add(1, &[worker("a", None)], 2_000).await;
    add(1, &[worker("c", Some("/c")), worker("b", None)], 1_000).await;
    add(2, &[worker("a", Some("/other"))], 1_000).await;
    check(&store, 1, &[("b", None, FIRST), ("c", Some("/c"), FIRST), ("a", None, SECOND)]).await;
    check(&store, 2, &[("a", Some("/other"), FIRST)]).await;

    // An existing worker keeps its time, and its folder unless another is given.
    add(1, &[worker("a", Some("/a")), worker("b", Some("/b")), worker("c", None)], 9_000).await;
    check(&store, 1, &[("b", Some("/b"), FIRST), ("c", Some("/c"), FIRST), ("a", Some("/a"), SECOND)]).await;
    check(&store, 2, &[("a", Some("/other"), FIRST)]).await;
}

// J04
#[tokio::test]
async fn a_worker_keeps_its_program_until_another_is_named() {
    let (_folder, store) = new_store().await;
    store.commit(&Changes { workflows: vec![workflow(1)], ..Changes::default() }).await.unwrap();
    let with_program =
        |program: Option<&str>| RemoteWorker { remote_torc: program.map(str::to_owned), ..worker("a", Some("/a")) };
    for (program, expected) in [(None, None), (Some("/1"), Some("/1")), (None, Some("/1")), (Some("/2"), Some("/2"))] {
        store.add_remote_workers(WorkflowId(1), &[with_program(program)], 1_000).await.unwrap();
        let found = store.remote_workers(WorkflowId(1)).await.unwrap();
        assert_eq!(found[0].remote_torc.as_deref(), expected, "after {program:?}");
    }
}

// J04
#[tokio::test]
async fn a_worker_is_removed_from_its_own_workflow_only() {
    let (_folder, store) = new_store().await;
    store.commit(&Changes { workflows: vec![workflow(1), workflow(2)], ..Changes::default() }).await.unwrap();
    for id in [1, 2] {
        store.add_remote_workers(WorkflowId(id), &[worker("a", None), worker("b", None)], 1_000).await.unwrap();
    }
    assert!(store.remove_remote_worker(WorkflowId(1), "a").await.unwrap(), "it was there");
    assert!(!store.remove_remote_worker(WorkflowId(1), "a").await.unwrap(), "it is gone");
    assert!(!store.remove_remote_worker(WorkflowId(3), "a").await.unwrap(), "there is no such workflow");
    check(&store, 1, &[("b", None, FIRST)]).await;
    check(&store, 2, &[("a", None, FIRST), ("b", None, FIRST)]).await;
}

// J04
#[tokio::test]
async fn workers_go_with_their_workflow_and_no_other_gets_any() {
    let (_folder, store) = new_store().await;
    store.commit(&Changes { workflows: vec![workflow(1), workflow(2)], ..Changes::default() }).await.unwrap();
    for id in [1, 2, 3] {
        store.add_remote_workers(WorkflowId(id), &[worker("a", None)], 1_000).await.unwrap();
    }
    check(&store, 3, &[]).await;
    let deleted = Changes { deleted_workflows: vec![WorkflowId(1)], ..Changes::default() };
    store.commit(&deleted).await.unwrap();
    store.commit(&Changes { workflows: vec![workflow(1), workflow(3)], ..Changes::default() }).await.unwrap();
    check(&store, 1, &[]).await;
    check(&store, 2, &[("a", None, FIRST)]).await;
    check(&store, 3, &[]).await;
}
