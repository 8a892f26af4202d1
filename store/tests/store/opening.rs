//! Files that are opened or refused. Refused files stay unchanged.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tempfile::TempDir;
use torc_api::filter::{EventFilter, JobFilter, ResultFilter, RunnerFilter};
use torc_core::rows::Changes;
use torc_store::{OpenOptions, Store, StoreError};

use crate::samples::{event, job, known_schema, new_store, options, profile, result, run_sql, runner, workflow};

#[test]
fn paths_and_urls_name_the_same_file() {
    for (text, path) in [
        ("torc.db", "torc.db"),
        ("/var/lib/torc.db", "/var/lib/torc.db"),
        ("sqlite:torc.db", "torc.db"),
        ("sqlite:/var/lib/torc.db", "/var/lib/torc.db"),
        ("sqlite:///var/lib/torc.db", "/var/lib/torc.db"),
    ] {
        assert_eq!(OpenOptions::new(text).path, Path::new(path), "{text}");
    }
}

#[tokio::test]
async fn an_absent_file_is_created_only_on_request() {
    let folder = TempDir::new().unwrap();
    let refused = Store::open(options(&folder).create(false)).await;
    assert!(matches!(refused, Err(StoreError::NotFound { .. })), "{refused:?}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    let nowhere = OpenOptions::new(folder.path().join("absent/torc.db").to_str().unwrap()).create(true);
    assert!(matches!(Store::open(nowhere).await, Err(StoreError::NotFound { .. })));
}

#[tokio::test]
async fn every_file_belongs_to_its_owner_alone() {
    let (folder, store) = new_store().await;
    store.commit(&Changes { events: vec![event(1, None)], ..Changes::default() }).await.unwrap();
    let names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(names.len() >= 3, "{names:?}");
    for path in names {
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600, "{path:?}");
    }
}

#[tokio::test]
async fn a_newer_schema_is_refused_untouched() {
    let (folder, store) = new_store().await;
    let path = store.path().to_owned();
    store.close().await.unwrap();
    run_sql(&path, "pragma user_version = 99").await;
    let before = fs::read(&path).unwrap();
    let error = Store::open(options(&folder)).await.unwrap_err();
    let is_told = |known: i64| known == known_schema();
    assert!(matches!(error, StoreError::NewerSchema { found: 99, known, .. } if is_told(known)), "{error:?}");
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[tokio::test]
async fn other_files_are_refused_untouched() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("torc.db");
    fs::write(&path, "jobs: []\n".repeat(1_000)).unwrap();
    let text = fs::read(&path).unwrap();
    let error = Store::open(options(&folder)).await.unwrap_err();
    assert!(matches!(error, StoreError::NotADatabase { .. }), "{error:?}");
    assert_eq!(fs::read(&path).unwrap(), text);

    for sql in ["create table other (id integer)", "pragma application_id = 7", "create table _sqlx (id integer)"] {
        fs::remove_file(&path).unwrap();
        run_sql(&path, sql).await;
        let database = fs::read(&path).unwrap();
        let error = Store::open(options(&folder)).await.unwrap_err();
        assert!(matches!(error, StoreError::NotADatabase { .. }), "{sql}: {error:?}");
        assert_eq!(fs::read(&path).unwrap(), database, "{sql}");
    }
}

#[tokio::test]
async fn a_file_whose_creation_was_cut_short_is_finished() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("torc.db");
    fs::write(&path, "").unwrap();
    let store = Store::open(options(&folder)).await.unwrap();
    store.close().await.unwrap();
    fs::remove_file(&path).unwrap();
    run_sql(&path, "pragma journal_mode = wal").await;
    Store::open(options(&folder)).await.unwrap();
}

#[tokio::test]
async fn a_damaged_file_is_an_error() {
    let (folder, store) = new_store().await;
    let path = store.path().to_owned();
    let jobs = (1..2_000).map(|id| job(id, 1, 1)).collect();
    store.commit(&Changes { workflows: vec![workflow(1)], jobs, ..Changes::default() }).await.unwrap();
    store.close().await.unwrap();
    let mut bytes = fs::read(&path).unwrap();
    bytes[8_192..].fill(0xA5);
    fs::write(&path, bytes).unwrap();
    let loaded = match Store::open(options(&folder)).await {
        Ok(store) => store.load().await.map(drop),
        Err(error) => Err(error),
    };
    assert!(matches!(loaded, Err(StoreError::Corrupt { .. })), "{loaded:?}");
}

#[tokio::test]
async fn a_store_has_one_owner_at_a_time() {
    let (folder, store) = new_store().await;
    let second = Store::open(options(&folder)).await;
    assert!(matches!(second, Err(StoreError::Locked { .. })), "{second:?}");
    store.probe().await.unwrap();
    store.close().await.unwrap();
    Store::open(options(&folder)).await.unwrap();
}

#[tokio::test]
async fn a_read_only_file_is_refused() {
    let (folder, store) = new_store().await;
    let path = store.path().to_owned();
    store.close().await.unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
    // The test has no effect as root, who may write to any file.
    if fs::File::options().write(true).open(&path).is_ok() {
        return;
    }
    let changes = Changes { events: vec![event(1, None)], ..Changes::default() };
    let refused = match Store::open(options(&folder)).await {
        Ok(store) => store.commit(&changes).await,
        Err(error) => Err(error),
    };
    assert!(matches!(refused, Err(StoreError::ReadOnly { .. })), "{refused:?}");
}

#[tokio::test]
async fn everything_works_on_a_single_connection() {
    let folder = TempDir::new().unwrap();
    let store = Store::open(options(&folder).exclusive(true)).await.unwrap();
    let changes = Changes {
        workflows: vec![workflow(1)],
        profiles: vec![profile(1, 1)],
        jobs: vec![job(1, 1, 1)],
        results: vec![result(1, 1, 1)],
        runners: vec![runner(1)],
        events: vec![event(1, Some(1))],
        ..Changes::default()
    };
    store.commit(&changes).await.unwrap();
    assert!(!folder.path().join("torc.db-shm").exists(), "no shared memory");
    let (all_jobs, all_results) = (JobFilter::default(), ResultFilter::default());
    let all_events = EventFilter::default();
    let (jobs, results, events, runners) = tokio::join!(
        store.jobs(&all_jobs),
        store.results(&all_results),
        store.events(&all_events),
        store.runners(RunnerFilter { all: true }),
    );
    let found =
        (jobs.unwrap().items.len(), results.unwrap().items.len(), events.unwrap().items.len(), runners.unwrap().len());
    assert_eq!(found, (1, 1, 1, 1));
    store.backup(&folder.path().join("copy.db")).await.unwrap();
    store.close().await.unwrap();
    let store = Store::open(options(&folder)).await.unwrap();
    assert_eq!(store.load().await.unwrap().jobs, changes.jobs);
}

#[tokio::test]
async fn two_stores_have_different_keys_that_stay() {
    let (first_folder, first) = new_store().await;
    let (_folder, second) = new_store().await;
    let key = first.load().await.unwrap().identity;
    assert_ne!(key, second.load().await.unwrap().identity);
    assert!(key.len() == 8 && key.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')), "{key}");
    first.close().await.unwrap();
    let again = Store::open(options(&first_folder)).await.unwrap();
    assert_eq!(again.load().await.unwrap().identity, key);
}
