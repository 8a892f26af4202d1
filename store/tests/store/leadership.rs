//! Leadership among several servers: only the current epoch may write.

use torc_api::remote::RemoteWorker;
use torc_core::ids::WorkflowId;
use torc_core::rows::Changes;
use torc_store::{Leader, OpenOptions, Store, StoreError, last_leader};

use crate::samples::{options, run_sql, workflow};

fn leading(folder: &tempfile::TempDir, epoch: i64) -> OpenOptions {
    OpenOptions { leader: Some(Leader { epoch, holder: format!("server-{epoch}") }), ..options(folder) }
}

fn change(id: i64) -> Changes {
    Changes { workflows: vec![workflow(id)], ..Changes::default() }
}

#[tokio::test]
async fn an_older_leader_cannot_write() {
    let folder = tempfile::tempdir().unwrap();
    let path = options(&folder).path;
    assert_eq!(last_leader(&path).await.unwrap(), Leader::default(), "there is no store yet");
    let old = Store::open(leading(&folder, 3)).await.unwrap();
    old.commit(&change(1)).await.unwrap();
    assert_eq!(last_leader(&path).await.unwrap(), Leader { epoch: 3, holder: "server-3".to_owned() });
    // There is no lock that keeps the next leader out: the first one may be frozen.
    let new = Store::open(leading(&folder, 4)).await.unwrap();
    assert_eq!(last_leader(&path).await.unwrap(), Leader { epoch: 4, holder: "server-4".to_owned() });
    let superseded = |result: Result<(), StoreError>| matches!(result, Err(StoreError::Superseded { epoch: 3, by: 4 }));
    assert!(superseded(old.commit(&change(2)).await));
    assert!(superseded(old.probe().await), "it does not recover");
    assert!(superseded(old.set_event_cursor(7).await));
    assert!(matches!(old.gc(0, false).await, Err(StoreError::Superseded { epoch: 3, by: 4 })));
    let worker = [RemoteWorker { address: "a".to_owned(), ..RemoteWorker::default() }];
    assert!(superseded(old.add_remote_workers(WorkflowId(1), &worker, 1).await));
    assert!(superseded(old.remove_remote_worker(WorkflowId(1), "a").await.map(drop)));
    assert_eq!(old.event_cursor().await.unwrap(), 0, "it may still read");
    new.commit(&change(3)).await.unwrap();
    let known: Vec<i64> = new.load().await.unwrap().workflows.iter().map(|row| row.id.0).collect();
    assert_eq!(known, [1, 3], "nothing of the older leader's was written");
}

#[tokio::test]
async fn a_number_leads_once() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(leading(&folder, 5)).await.unwrap();
    for epoch in [5, 4] {
        let refused = Store::open(leading(&folder, epoch)).await;
        assert!(matches!(refused, Err(StoreError::Superseded { by: 5, .. })), "{epoch}");
    }
    store.commit(&change(1)).await.unwrap();
    // A single server has no epoch.
    store.close().await.unwrap();
    Store::open(options(&folder)).await.unwrap().commit(&change(2)).await.unwrap();
}

#[tokio::test]
async fn what_was_told_is_remembered() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(options(&folder)).await.unwrap();
    assert_eq!(store.event_cursor().await.unwrap(), 0);
    store.set_event_cursor(12).await.unwrap();
    store.set_event_cursor(5).await.unwrap();
    assert_eq!(store.event_cursor().await.unwrap(), 12, "it never goes back");
}

/// A restored backup has a lower epoch, so the leader's own is no longer valid.
#[tokio::test]
async fn a_leader_whose_number_is_not_the_stores_cannot_write() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(leading(&folder, 6)).await.unwrap();
    run_sql(store.path(), "update leadership set epoch = 2").await;
    let refused = store.commit(&change(1)).await;
    assert!(matches!(refused, Err(StoreError::Superseded { epoch: 6, by: 2 })), "{refused:?}");
}

/// A refused write does not hold a lock that would delay the leader.
#[tokio::test]
async fn a_refused_write_leaves_the_store_to_others() {
    let folder = tempfile::tempdir().unwrap();
    let old = Store::open(leading(&folder, 1)).await.unwrap();
    let new = Store::open(leading(&folder, 2)).await.unwrap();
    old.commit(&change(1)).await.unwrap_err();
    run_sql(new.path(), "begin exclusive; rollback").await;
    assert!(!folder.path().join("torc.db-lock").exists(), "the number decides, and no lock does");
}
