//! Lists: filters, and pages that are complete and never repeat while rows are written.

use std::collections::BTreeSet;

use torc_api::filter::{EventFilter, JobFilter, ResultFilter, RunnerFilter};
use torc_api::state::JobState;
use torc_core::ids::{JobId, RunnerId};
use torc_core::rows::{Changes, EventRow, ResultRow, RunnerRow};
use torc_store::{Store, StoreError};

use crate::samples::{event, failure, job, new_store, profile, result, runner, update, workflow};

async fn filled() -> (tempfile::TempDir, Store) {
    let (folder, store) = new_store().await;
    let changes = Changes {
        workflows: vec![workflow(1), workflow(2)],
        profiles: vec![profile(1, 1), profile(2, 2)],
        jobs: vec![job(1, 1, 1), job(2, 1, 1), job(3, 2, 2), job(10, 1, 1), job(11, 1, 1)],
        job_updates: vec![update(2, JobState::Failed), update(3, JobState::Failed), update(10, JobState::Running)],
        removed_jobs: vec![JobId(11)],
        results: vec![
            failure(1, 2, 1, 5_000),
            failure(1, 2, 2, 6_000),
            ResultRow { run: 2, ..result(1, 2, 1) },
            ResultRow { state: JobState::Canceled, ..failure(2, 3, 1, 7_000) },
            ResultRow { runner: Some(RunnerId(1)), ..result(1, 11, 1) },
        ],
        runners: vec![runner(1), RunnerRow { ended_ms: Some(9_000), ..runner(2) }],
        events: vec![
            EventRow {
                jobs: vec![(JobId(3), 1, JobState::Failed), (JobId(99), 1, JobState::Ready)],
                ..event(1, Some(2))
            },
            event(2, Some(1)),
            event(3, None),
        ],
        ..Changes::default()
    };
    store.commit(&changes).await.unwrap();
    (folder, store)
}

#[tokio::test]
async fn jobs_are_filtered() {
    let (_folder, store) = filled().await;
    let all = JobFilter::default();
    let cases = [
        (all.clone(), vec![1, 2, 3, 10]),
        (JobFilter { workflow: Some(1), ..all.clone() }, vec![1, 2, 10]),
        (JobFilter { status: vec![JobState::Failed, JobState::Running], ..all.clone() }, vec![2, 3, 10]),
        (JobFilter { workflow: Some(2), status: vec![JobState::Running], ..all.clone() }, vec![]),
        (JobFilter { name: Some("job-1".to_owned()), ..all.clone() }, vec![1]),
        (JobFilter { contains: Some("b-1".to_owned()), ..all.clone() }, vec![1, 10]),
        (JobFilter { contains: Some("%".to_owned()), ..all.clone() }, vec![]),
        (JobFilter { contains: Some("B-1".to_owned()), ..all.clone() }, vec![]),
        (JobFilter { cursor: Some("2".to_owned()), ..all }, vec![3, 10]),
    ];
    for (query, expected) in cases {
        let page = store.jobs(&query).await.unwrap();
        let found: Vec<i64> = page.items.iter().map(|view| view.job.id.0).collect();
        assert_eq!(found, expected, "{query:?}");
        assert_eq!(page.next, None);
    }
}

#[tokio::test]
async fn results_are_filtered() {
    let (_folder, store) = filled().await;
    let all = ResultFilter::default();
    let cases = [
        (all.clone(), vec![(2, 1, 1), (2, 1, 2), (2, 2, 1), (11, 1, 1), (3, 1, 1)]),
        (ResultFilter { workflow: Some(2), ..all.clone() }, vec![(3, 1, 1)]),
        (ResultFilter { job: Some(2), ..all.clone() }, vec![(2, 1, 1), (2, 1, 2), (2, 2, 1)]),
        (ResultFilter { run: Some(2), ..all.clone() }, vec![(2, 2, 1)]),
        (ResultFilter { failed: true, ..all.clone() }, vec![(2, 1, 1), (2, 1, 2)]),
        (ResultFilter { return_code: Some(1), ..all.clone() }, vec![(2, 1, 1), (2, 1, 2), (3, 1, 1)]),
        (ResultFilter { latest: true, ..all.clone() }, vec![(2, 2, 1), (11, 1, 1), (3, 1, 1)]),
        (ResultFilter { latest: true, failed: true, ..all.clone() }, vec![]),
        (ResultFilter { status: vec![JobState::Canceled], ..all.clone() }, vec![(3, 1, 1)]),
        (ResultFilter { cursor: Some("1.2.1.2".to_owned()), ..all }, vec![(2, 2, 1), (11, 1, 1), (3, 1, 1)]),
    ];
    for (query, expected) in cases {
        let page = store.results(&query).await.unwrap();
        let found: Vec<(i64, i32, i32)> =
            page.items.iter().map(|view| (view.result.job.0, view.result.run, view.result.attempt)).collect();
        assert_eq!(found, expected, "{query:?}");
    }
    let removed = store.results(&ResultFilter { job: Some(11), ..ResultFilter::default() }).await.unwrap();
    let view = removed.items.first().unwrap();
    assert_eq!((view.workflow_name.as_str(), view.job_name.as_str()), ("workflow-1", "job-11"));
    assert_eq!(view.host.as_deref(), Some("node1"));
}

#[tokio::test]
async fn events_and_runners_are_filtered() {
    let (_folder, store) = filled().await;
    for (workflow, after, expected) in [(None, 0, vec![1, 2, 3]), (None, 1, vec![2, 3]), (Some(1), 0, vec![2])] {
        let query = EventFilter { workflow, after: Some(after), ..EventFilter::default() };
        let page = store.events(&query).await.unwrap();
        assert_eq!(page.items.iter().map(|view| view.event.sequence).collect::<Vec<_>>(), expected, "{query:?}");
    }
    let first = store.events(&EventFilter { limit: Some(1), ..EventFilter::default() }).await.unwrap();
    assert_eq!(first.next.as_deref(), Some("1"));
    let view = first.items.first().unwrap();
    assert_eq!(view.workflow_name.as_deref(), Some("workflow-2"));
    assert_eq!(view.job_names, ["job-3", ""]);
    for (all, expected) in [(true, vec![1, 2]), (false, vec![1])] {
        let runners = store.runners(RunnerFilter { all }).await.unwrap();
        assert_eq!(runners.iter().map(|row| row.id.0).collect::<Vec<_>>(), expected);
    }
}

#[tokio::test]
async fn foreign_cursors_are_refused() {
    let (_folder, store) = filled().await;
    for cursor in ["", "x", "1.2", "1.2.3.4.5", "1.2.3.x", "99999999999999999999"] {
        let query = ResultFilter { cursor: Some(cursor.to_owned()), ..ResultFilter::default() };
        assert!(matches!(store.results(&query).await, Err(StoreError::InvalidCursor { .. })), "{cursor}");
    }
    let query = JobFilter { cursor: Some("1.2".to_owned()), ..JobFilter::default() };
    assert!(matches!(store.jobs(&query).await, Err(StoreError::InvalidCursor { .. })));
}

/// Results of even jobs exist before. Those of odd jobs arrive between the pages, on both sides of the cursor.
#[tokio::test]
async fn pages_are_complete_and_never_repeat_while_rows_arrive() {
    let (_folder, store) = new_store().await;
    let jobs = (1..=400).map(|id| job(id, 1, 1)).collect();
    let results = (1..=200).map(|n| result(1, 2 * n, 1)).collect();
    let first =
        Changes { workflows: vec![workflow(1)], profiles: vec![profile(1, 1)], jobs, results, ..Changes::default() };
    store.commit(&first).await.unwrap();
    let mut seen: Vec<i64> = Vec::new();
    let mut query = ResultFilter { workflow: Some(1), limit: Some(7), ..ResultFilter::default() };
    for round in 0.. {
        let page = store.results(&query).await.unwrap();
        assert!(page.items.len() <= 7);
        seen.extend(page.items.iter().map(|view| view.result.job.0));
        let late = [round * 2 + 1, 399 - round * 2].map(|id| result(1, id, 1)).to_vec();
        store.commit(&Changes { results: late, ..Changes::default() }).await.unwrap();
        query.cursor = page.next;
        if query.cursor.is_none() {
            break;
        }
    }
    assert!(seen.is_sorted_by(|a, b| a < b), "in order, none twice: {seen:?}");
    let seen: BTreeSet<i64> = seen.into_iter().collect();
    assert!((1..=200).all(|n| seen.contains(&(2 * n))), "all that were there before");
}
