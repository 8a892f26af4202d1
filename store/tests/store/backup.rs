//! A backup is a complete store and is recognized as one.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;

use torc_core::ids::JobId;
use torc_core::rows::Changes;
use torc_store::{BackupInfo, OpenOptions, Store, StoreError, verify};

use crate::samples::{job, known_schema, new_store, profile, result, run_sql, workflow};

async fn filled() -> (tempfile::TempDir, Store) {
    let (folder, store) = new_store().await;
    let changes = Changes {
        workflows: vec![workflow(1)],
        profiles: vec![profile(1, 1)],
        jobs: (1..=500).map(|id| job(id, 1, 1)).collect(),
        results: (1..=400).map(|id| result(1, id, 1)).collect(),
        // Only jobs that are part of a workflow are counted.
        removed_jobs: vec![JobId(1), JobId(2), JobId(499)],
        ..Changes::default()
    };
    store.commit(&changes).await.unwrap();
    let second = Changes { workflows: vec![workflow(2)], ..Changes::default() };
    store.commit(&second).await.unwrap();
    (folder, store)
}

#[tokio::test]
async fn a_backup_opens_as_the_same_store() {
    let (folder, store) = filled().await;
    let copy = folder.path().join("copy.db");
    store.backup(&copy).await.unwrap();
    assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
    let before = fs::read(&copy).unwrap();
    let info = verify(&copy).await.unwrap();
    assert_eq!(fs::read(&copy).unwrap(), before, "it is left as it is");
    assert_eq!(info, BackupInfo { schema: known_schema(), workflows: 2, jobs: 497, results: 400 });
    let expected = store.load().await.unwrap();
    let opened = Store::open(OpenOptions::new(copy.to_str().unwrap())).await.unwrap();
    assert_eq!(opened.load().await.unwrap(), expected);
}

#[tokio::test]
async fn an_existing_file_is_never_overwritten() {
    let (folder, store) = filled().await;
    let copy = folder.path().join("thesis.txt");
    fs::write(&copy, "precious").unwrap();
    let error = store.backup(&copy).await.unwrap_err();
    assert!(matches!(error, StoreError::Exists { .. }), "{error:?}");
    assert_eq!(fs::read_to_string(&copy).unwrap(), "precious");
}

#[tokio::test]
async fn what_is_no_backup_is_refused() {
    let (folder, store) = filled().await;
    let copy = folder.path().join("copy.db");
    store.backup(&copy).await.unwrap();
    let good = fs::read(&copy).unwrap();
    let mut damaged = good.clone();
    let middle = damaged.len() / 2;
    damaged[middle..middle + 4_096].fill(0xA5);
    let cut = good[..good.len() / 2].to_vec();
    for (what, bytes) in [("damaged", damaged), ("cut", cut)] {
        fs::write(&copy, bytes).unwrap();
        let error = verify(&copy).await.unwrap_err();
        assert!(matches!(error, StoreError::Corrupt { .. }), "{what}: {error:?}");
    }
    for (what, bytes) in [("text", b"apiVersion: torc.dev/v1alpha1\n".repeat(300)), ("empty", Vec::new())] {
        fs::write(&copy, bytes).unwrap();
        let error = verify(&copy).await.unwrap_err();
        assert!(matches!(error, StoreError::NotADatabase { .. }), "{what}: {error:?}");
    }
    let absent = verify(&folder.path().join("absent.db")).await.unwrap_err();
    assert!(matches!(absent, StoreError::NotFound { .. }), "{absent:?}");
}

#[tokio::test]
async fn a_backup_that_fails_leaves_no_file() {
    let (folder, store) = filled().await;
    let unnameable = folder.path().join(OsStr::from_bytes(b"copy-\xff.db"));
    let error = store.backup(&unnameable).await.unwrap_err();
    assert!(matches!(error, StoreError::Io { operation: "write a backup to", .. }), "{error:?}");
    assert!(!unnameable.exists(), "what could not be written is gone");
    let nowhere = folder.path().join("absent/copy.db");
    let error = store.backup(&nowhere).await.unwrap_err();
    assert!(matches!(&error, StoreError::NotFound { path } if *path == nowhere), "{error:?}");
}

#[tokio::test]
async fn a_backup_of_a_newer_version_is_refused() {
    let (folder, store) = filled().await;
    let copy = folder.path().join("copy.db");
    store.backup(&copy).await.unwrap();
    run_sql(&copy, "pragma user_version = 99").await;
    let error = verify(&copy).await.unwrap_err();
    assert!(matches!(error, StoreError::NewerSchema { found: 99, .. }), "{error:?}");
    run_sql(&copy, "pragma user_version = 1; pragma application_id = 7").await;
    let error = verify(&copy).await.unwrap_err();
    assert!(matches!(error, StoreError::NotADatabase { .. }), "{error:?}");
}
