//! Failures that only a test inside the crate can cause: a full and a read-only disk.

#![allow(clippy::unwrap_used)]

use torc_core::rows::{Changes, EventRow};

use super::*;

fn events(sequences: std::ops::Range<i64>, message_bytes: usize) -> Changes {
    let event = |sequence| EventRow { sequence, message: "x".repeat(message_bytes), ..EventRow::default() };
    Changes { events: sequences.map(event).collect(), ..Changes::default() }
}

async fn set(store: &Store, pragma: &'static str) {
    let mut writer = store.writer().await;
    sqlx::query(pragma).execute(writer.connection().await.unwrap()).await.unwrap();
}

async fn stored(store: &Store) -> Vec<i64> {
    let page = store.events(&EventFilter::default()).await.unwrap();
    page.items.iter().map(|view| view.event.sequence).collect()
}

async fn new_store() -> (tempfile::TempDir, Store) {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("torc.db");
    let store = Store::open(OpenOptions::new(path.to_str().unwrap()).create(true)).await.unwrap();
    (folder, store)
}

#[tokio::test]
async fn a_full_disk_loses_nothing_and_is_told() {
    let (_folder, store) = new_store().await;
    store.commit(&events(1..3, 10)).await.unwrap();
    set(&store, "pragma max_page_count = 1").await;
    for _ in 0..2 {
        let error = store.commit(&events(3..300, 5_000)).await.unwrap_err();
        assert!(matches!(error, StoreError::DiskFull { .. }), "{error:?}");
        assert_eq!(stored(&store).await, [1, 2]);
    }
    set(&store, "pragma max_page_count = 1000000").await;
    store.probe().await.unwrap();
    store.commit(&events(3..5, 5_000)).await.unwrap();
    assert_eq!(stored(&store).await, [1, 2, 3, 4]);
}

#[tokio::test]
async fn a_store_that_cannot_be_written_to_still_answers() {
    let (_folder, store) = new_store().await;
    store.commit(&events(1..3, 10)).await.unwrap();
    set(&store, "pragma query_only = 1").await;
    assert!(matches!(store.probe().await, Err(StoreError::ReadOnly { .. })));
    assert!(matches!(store.commit(&events(3..4, 10)).await, Err(StoreError::ReadOnly { .. })));
    assert_eq!(stored(&store).await, [1, 2]);
    set(&store, "pragma query_only = 0").await;
    store.probe().await.unwrap();
}

#[tokio::test]
async fn readers_have_connections_of_their_own_unless_there_is_one() {
    for (exclusive, is_alone) in [(Some(true), true), (Some(false), false), (None, false)] {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("torc.db");
        let options = OpenOptions { exclusive, ..OpenOptions::new(path.to_str().unwrap()).create(true) };
        let store = Store::open(options).await.unwrap();
        assert_eq!(store.inner.readers.is_none(), is_alone, "{exclusive:?}");
    }
}
