//! Only what is old and no longer counts is forgotten.

use std::collections::BTreeMap;

use torc_api::slurm_stats::SlurmStats;
use torc_core::ids::{AllocationId, JobId, RunnerId, WorkflowId};
use torc_core::rows::{AllocationRow, Changes, ResultRow, RunnerRow, WorkflowRow};
use torc_store::{AllocationQuery, EventQuery, GcReport, ResultQuery, RunnerQuery, SlurmStatsQuery, Store};

use crate::samples::{event, failure, job, new_store, profile, result, runner, workflow};

fn with_logs(row: ResultRow, stdout: &str, stderr: &str) -> ResultRow {
    ResultRow { stdout: Some(stdout.to_owned()), stderr: Some(stderr.to_owned()), ..row }
}

fn allocation(id: i64, workflow: i64) -> AllocationRow {
    AllocationRow { id: AllocationId(id), workflow: WorkflowId(workflow), ..AllocationRow::default() }
}

async fn filled() -> (tempfile::TempDir, Store) {
    let (folder, store) = new_store().await;
    let left = |id, ended_ms| RunnerRow { ended_ms: Some(ended_ms), ..runner(id) };
    let changes = Changes {
        // The first is complete, the second is not.
        workflows: vec![WorkflowRow { completed_ms: Some(9_000), ..workflow(1) }, workflow(2)],
        profiles: vec![profile(1, 1), profile(2, 2)],
        jobs: vec![job(1, 1, 1), job(2, 2, 2), job(3, 1, 1), job(4, 1, 1)],
        removed_jobs: vec![JobId(3), JobId(4)],
        results: vec![
            with_logs(failure(1, 1, 1, 2_000), "/logs/1", "/logs/shared"),
            with_logs(failure(1, 1, 2, 8_000), "/logs/2", "/logs/2"),
            ResultRow { runner: Some(RunnerId(2)), ..with_logs(result(1, 1, 3), "/logs/3", "/logs/shared") },
            failure(2, 2, 1, 2_000),
            failure(2, 2, 2, 3_000),
            result(1, 4, 1),
        ],
        runners: vec![left(1, 2_000), left(2, 2_000), left(3, 8_000), runner(4)],
        events: vec![event(1, Some(1)), event(4, Some(1)), event(6, None)],
        ..Changes::default()
    };
    store.commit(&changes).await.unwrap();
    (folder, store)
}

async fn contents(store: &Store) -> (Vec<(i64, i32)>, Vec<i64>, Vec<i64>) {
    let results = store.results(&ResultQuery::default()).await.unwrap();
    let events = store.events(&EventQuery::default()).await.unwrap();
    let runners = store.runners(&RunnerQuery::default()).await.unwrap();
    (
        results.items.iter().map(|view| (view.result.job.0, view.result.attempt)).collect(),
        events.items.iter().map(|view| view.event.sequence).collect(),
        runners.items.iter().map(|row| row.id.0).collect(),
    )
}

#[tokio::test]
async fn what_the_accounting_said_goes_with_its_result() {
    let (_folder, store) = filled().await;
    let stats = |workflow, job, attempt| SlurmStats { workflow, job, run: 1, attempt, ..SlurmStats::default() };
    // The last one has no result: it may still come.
    let slurm_stats = vec![stats(1, 1, 1), stats(1, 1, 2), stats(2, 2, 1), stats(2, 2, 3)];
    store.commit(&Changes { slurm_stats, ..Changes::default() }).await.unwrap();
    store.gc(5_000, false).await.unwrap();
    let left = store.slurm_stats(&SlurmStatsQuery::default()).await.unwrap().items;
    assert_eq!(left, [stats(1, 1, 2), stats(2, 2, 1), stats(2, 2, 3)]);
    let deleted = Changes { deleted_workflows: vec![WorkflowId(2)], ..Changes::default() };
    store.commit(&deleted).await.unwrap();
    assert_eq!(store.slurm_stats(&SlurmStatsQuery::default()).await.unwrap().items, [stats(1, 1, 2)]);
}

#[tokio::test]
async fn allocations_go_when_nothing_names_them() {
    let (_folder, store) = filled().await;
    let over = |id: i64, number: &str, ended_ms: Option<i64>| AllocationRow {
        slurm_job_id: Some(number.to_owned()),
        ended_ms,
        ..allocation(id, 1)
    };
    let in_allocation = |id, number: &str, ended_ms| RunnerRow {
        slurm_job_id: Some(number.to_owned()),
        ended_ms: Some(ended_ms),
        ..runner(id)
    };
    let stats = SlurmStats {
        workflow: 1,
        job: 1,
        run: 1,
        attempt: 3,
        slurm_job_id: Some("14".to_owned()),
        ..SlurmStats::default()
    };
    let changes = Changes {
        allocations: vec![
            over(1, "11", Some(2_000)),
            over(2, "12", Some(8_000)),
            over(3, "13", None),
            over(4, "14", Some(2_000)),
            over(5, "15", Some(2_000)),
            AllocationRow { ended_ms: Some(2_000), ..allocation(6, 1) },
        ],
        // One that was in the first is forgotten with it; one that was in the fifth is younger.
        runners: vec![in_allocation(5, "11", 2_000), in_allocation(6, "15", 8_000)],
        slurm_stats: vec![stats],
        ..Changes::default()
    };
    store.commit(&changes).await.unwrap();
    let last = store.load().await.unwrap().last;
    let left = async || {
        let rows = store.allocations(&AllocationQuery::default()).await.unwrap();
        rows.items.iter().map(|row| row.id.0).collect::<Vec<i64>>()
    };
    let expected = BTreeMap::from([(WorkflowId(1), 2)]);
    assert_eq!(store.gc(5_000, true).await.unwrap().allocations, expected);
    assert_eq!(left().await, [1, 2, 3, 4, 5, 6]);
    assert_eq!(store.gc(5_000, false).await.unwrap().allocations, expected);
    assert_eq!(left().await, [2, 3, 4, 5]);
    let loaded = store.load().await.unwrap();
    assert_eq!((loaded.last, loaded.finished_allocations), (last, vec![(WorkflowId(1), 3)]));
}

#[tokio::test]
async fn a_dry_run_says_what_a_run_then_does() {
    let (_folder, store) = filled().await;
    let before = contents(&store).await;
    let log_files = vec!["/logs/1".to_owned()];
    let expected = GcReport { results: 1, events: 2, runners: 1, jobs: 1, log_files, ..GcReport::default() };
    assert_eq!(store.gc(5_000, true).await.unwrap(), expected);
    assert_eq!(contents(&store).await, before);
    let last = store.load().await.unwrap().last;

    assert_eq!(store.gc(5_000, false).await.unwrap(), expected);
    // Kept: the latest of each job, what is younger, and what retry budgets of an unfinished workflow count.
    let results = vec![(1, 2), (1, 3), (4, 1), (2, 1), (2, 2)];
    assert_eq!(contents(&store).await, (results, vec![6], vec![2, 3, 4]));
    assert_eq!(store.job_names(&[JobId(3), JobId(4)]).await.unwrap().len(), 1);
    assert_eq!(store.load().await.unwrap().last, last, "numbers outlive their rows");
    assert_eq!(store.gc(5_000, false).await.unwrap(), GcReport::default());
}
