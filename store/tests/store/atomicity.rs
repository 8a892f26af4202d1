//! A group is written whole or not at all, and a failed group leaves the store usable.

use torc_api::filter::{JobFilter, ResultFilter};
use torc_api::state::JobState;
use torc_core::ids::JobId;
use torc_core::rows::{Changes, JobRow, ResultRow};
use torc_store::StoreError;

use crate::samples::{event, job, new_store, profile, result, runner, update, workflow};

#[tokio::test]
async fn a_broken_rule_rolls_everything_back() {
    let (_folder, store) = new_store().await;
    let before = Changes {
        workflows: vec![workflow(1)],
        profiles: vec![profile(1, 1)],
        jobs: vec![job(1, 1, 1)],
        events: vec![event(1, Some(1))],
        ..Changes::default()
    };
    store.commit(&before).await.unwrap();
    let expected = store.load().await.unwrap();

    let good = Changes {
        workflows: vec![workflow(2)],
        profiles: vec![profile(2, 2)],
        jobs: vec![job(2, 2, 2)],
        removed_jobs: vec![JobId(1)],
        job_updates: vec![update(1, JobState::Completed)],
        results: vec![result(1, 1, 1)],
        runners: vec![runner(1)],
        events: vec![event(2, Some(2))],
        ..Changes::default()
    };
    let same_event = Changes { events: vec![event(1, Some(2))], ..good.clone() };
    let same_name = JobRow { name: "job-2".to_owned(), ..job(3, 2, 2) };
    let same_name = Changes { jobs: vec![job(2, 2, 2), same_name], ..good.clone() };
    for bad in [same_event, same_name] {
        let error = store.commit(&bad).await.unwrap_err();
        assert!(matches!(error, StoreError::Constraint { .. }), "{error:?}");
        assert_eq!(store.load().await.unwrap(), expected);
    }
    store.commit(&good).await.unwrap();
    assert_ne!(store.load().await.unwrap(), expected);
}

#[tokio::test]
async fn a_result_is_never_overwritten() {
    let (_folder, store) = new_store().await;
    let first = Changes {
        workflows: vec![workflow(1)],
        profiles: vec![profile(1, 1)],
        jobs: vec![job(1, 1, 1)],
        results: vec![result(1, 1, 1)],
        ..Changes::default()
    };
    store.commit(&first).await.unwrap();
    let late = ResultRow { return_code: 9, ..result(1, 1, 1) };
    store.commit(&Changes { results: vec![late], ..Changes::default() }).await.unwrap();
    let page = store.results(&ResultFilter::default()).await.unwrap();
    assert_eq!(page.items.iter().map(|view| view.result.return_code).collect::<Vec<_>>(), [0]);
}

#[tokio::test]
async fn a_commit_that_was_given_up_leaves_nothing_behind() {
    let (_folder, store) = new_store().await;
    let rows = |first: i64| Changes {
        jobs: (first..first + 2_000).map(|id| job(id, 1, 1)).collect(),
        workflows: vec![workflow(1)],
        ..Changes::default()
    };
    // Polled once and dropped: the transaction has begun and is not ended.
    let changes = rows(1);
    {
        let mut commit = Box::pin(store.commit(&changes));
        let polled = futures::poll!(commit.as_mut());
        assert!(polled.is_pending());
    }
    store.commit(&rows(10_000)).await.unwrap();
    let ids: Vec<i64> = store.load().await.unwrap().jobs.iter().map(|job| job.id.0).collect();
    assert_eq!(ids, (10_000..12_000).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_closed_store_says_so() {
    let (_folder, store) = new_store().await;
    let clone = store.clone();
    store.close().await.unwrap();
    let changes = Changes { events: vec![event(1, None)], ..Changes::default() };
    assert!(matches!(clone.commit(&changes).await, Err(StoreError::Closed { .. })));
    assert!(matches!(clone.jobs(&JobFilter::default()).await, Err(StoreError::Closed { .. })));
}
