//! Garbage collection only deletes old rows that no longer count.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use torc_api::filter::{AllocationFilter, EventFilter, ResultFilter, RunnerFilter, SlurmStatsFilter};
use torc_api::slurm_stats::SlurmStats;
use torc_core::ids::{AllocationId, JobId, RunnerId, WorkflowId};
use torc_core::rows::{AllocationRow, Changes, EventRow, JobRow, ResultRow, RunnerRow, WorkflowRow};
use torc_core::testing::Database;
use torc_store::{GcReport, Store};

use crate::generators::{TIMES, groups};
use crate::samples::{event, failure, job, new_store, profile, result, runner, workflow};
use crate::tables::{self, Beside};

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
        // The first workflow is complete, the second is not.
        workflows: vec![WorkflowRow { completed_ms: Some(9_000), ..workflow(1) }, workflow(2)],
        profiles: vec![profile(1, 1), profile(2, 2)],
        jobs: vec![job(1, 1, 1), job(2, 2, 2), job(3, 1, 1), job(4, 1, 1)],
        removed_jobs: vec![JobId(3), JobId(4)],
        results: vec![
            with_logs(failure(1, 1, 1, 2_000), "/logs/1", "/logs/shared"),
            with_logs(failure(1, 1, 2, 8_000), "/logs/2", "/logs/2"),
            ResultRow { runner: Some(RunnerId(2)), ..with_logs(result(1, 1, 3), "/logs/3", "/logs/shared") },
            ResultRow { run: 0, ..with_logs(failure(1, 1, 9, 2_000), "/logs/shared", "/logs/0.err") },
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
    let results = store.results(&ResultFilter::default()).await.unwrap();
    let events = store.events(&EventFilter::default()).await.unwrap();
    let runners = store.runners(RunnerFilter { all: true }).await.unwrap();
    (
        results.items.iter().map(|view| (view.result.job.0, view.result.attempt)).collect(),
        events.items.iter().map(|view| view.event.sequence).collect(),
        runners.iter().map(|row| row.id.0).collect(),
    )
}

#[tokio::test]
async fn what_the_accounting_said_goes_with_its_result() {
    let (_folder, store) = filled().await;
    let stats = |workflow, job, attempt| SlurmStats { workflow, job, run: 1, attempt, ..SlurmStats::default() };
    // The last attempt has no result yet.
    let slurm_stats = vec![stats(1, 1, 1), stats(1, 1, 2), stats(2, 2, 1), stats(2, 2, 3)];
    store.commit(&Changes { slurm_stats, ..Changes::default() }).await.unwrap();
    store.gc(5_000, false).await.unwrap();
    let left = store.slurm_stats(&SlurmStatsFilter::default()).await.unwrap().items;
    assert_eq!(left, [stats(1, 1, 2), stats(2, 2, 1), stats(2, 2, 3)]);
    let deleted = Changes { deleted_workflows: vec![WorkflowId(2)], ..Changes::default() };
    store.commit(&deleted).await.unwrap();
    assert_eq!(store.slurm_stats(&SlurmStatsFilter::default()).await.unwrap().items, [stats(1, 1, 2)]);
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
        // The runner of the first allocation is deleted with it; that of the fifth is younger.
        runners: vec![in_allocation(5, "11", 2_000), in_allocation(6, "15", 8_000)],
        slurm_stats: vec![stats],
        ..Changes::default()
    };
    store.commit(&changes).await.unwrap();
    let last = store.load().await.unwrap().last;
    let left = async || {
        let rows = store.allocations(&AllocationFilter::default()).await.unwrap();
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
    let log_files = vec!["/logs/0.err".to_owned(), "/logs/1".to_owned()];
    let expected = GcReport { results: 2, events: 2, runners: 1, jobs: 1, log_files, ..GcReport::default() };
    assert_eq!(store.gc(5_000, true).await.unwrap(), expected);
    assert_eq!(contents(&store).await, before);
    let last = store.load().await.unwrap().last;

    assert_eq!(store.gc(5_000, false).await.unwrap(), expected);
    // The latest result of each job, younger results, and results that count for the retry budgets of an unfinished workflow.
    let results = vec![(1, 2), (1, 3), (4, 1), (2, 1), (2, 2)];
    assert_eq!(contents(&store).await, (results, vec![6], vec![2, 3, 4]));
    assert_eq!(store.job_names(&[JobId(3), JobId(4)]).await.unwrap().len(), 1);
    assert_eq!(store.load().await.unwrap().last, last, "numbers outlive their rows");
    assert_eq!(store.gc(5_000, false).await.unwrap(), GcReport::default());
}

#[tokio::test]
async fn what_ended_at_that_very_moment_stays() {
    let (_folder, store) = filled().await;
    let over = AllocationRow { ended_ms: Some(2_000), ..allocation(1, 1) };
    let at = event(7, None);
    let changes =
        Changes { allocations: vec![over], events: vec![EventRow { time_ms: 2_000, ..at }], ..Changes::default() };
    store.commit(&changes).await.unwrap();
    // The first event is older, and removed jobs without results have no age.
    let younger = GcReport { events: 1, jobs: 1, ..GcReport::default() };
    assert_eq!(store.gc(2_000, true).await.unwrap(), younger);
    let older = GcReport {
        results: 2,
        events: 2,
        runners: 1,
        allocations: BTreeMap::from([(WorkflowId(1), 1)]),
        jobs: 1,
        log_files: vec!["/logs/0.err".to_owned(), "/logs/1".to_owned()],
    };
    assert_eq!(store.gc(2_001, true).await.unwrap(), older);
}

/// Returns the expected report, computed with plain maps.
fn collect(model: &mut Database, before_ms: i64) -> GcReport {
    let mut report = GcReport::default();
    let is_later = |row: &ResultRow, other: &ResultRow| {
        (other.workflow, other.job) == (row.workflow, row.job) && (other.run, other.attempt) > (row.run, row.attempt)
    };
    let all = model.results.clone();
    let counts_for_budgets = |model: &Database, row: &ResultRow| {
        let job = model.jobs.get(&row.job).or_else(|| model.removed_jobs.get(&row.job));
        let is_open = model.workflows.get(&row.workflow).is_some_and(|workflow| workflow.completed_ms.is_none());
        is_open && job.is_some_and(|job| job.run == row.run)
    };
    let is_kept = |model: &Database, row: &ResultRow| {
        row.ended_ms >= before_ms || counts_for_budgets(model, row) || !all.iter().any(|other| is_later(row, other))
    };
    let kept: Vec<bool> = all.iter().map(|row| is_kept(model, row)).collect();
    let mut answers = kept.iter();
    model.retain_results(|_| *answers.next().unwrap());
    let logs = |row: &ResultRow| [row.stdout.clone(), row.stderr.clone()].into_iter().flatten();
    let mut files: BTreeSet<String> =
        all.iter().zip(&kept).filter(|(_, is_kept)| !**is_kept).flat_map(|(row, _)| logs(row)).collect();
    for path in model.results.iter().flat_map(logs) {
        files.remove(&path);
    }
    report.log_files = files.into_iter().collect();
    report.results = kept.iter().filter(|is_kept| !**is_kept).count() as u64;

    if report.results > 0 {
        let results = model.results.clone();
        model.slurm_stats.retain(|key, _| {
            let of_job = |row: &&ResultRow| (row.workflow.0, row.job.0) == (key.0, key.1);
            let attempts: Vec<(i32, i32)> = results.iter().filter(of_job).map(|row| (row.run, row.attempt)).collect();
            attempts.contains(&(key.2, key.3)) || attempts.iter().all(|other| *other < (key.2, key.3))
        });
    }
    let before = (model.events.len(), model.runners.len());
    model.events.retain(|row| row.time_ms >= before_ms);
    let names: BTreeSet<RunnerId> = model.results.iter().filter_map(|row| row.runner).collect();
    model.runners.retain(|id, row| row.ended_ms.is_none_or(|ended_ms| ended_ms >= before_ms) || names.contains(id));
    report.events = (before.0 - model.events.len()) as u64;
    report.runners = (before.1 - model.runners.len()) as u64;

    let (runners, stats) = (&model.runners, &model.slurm_stats);
    model.allocations.retain(|_, row| {
        let named = row.slurm_job_id.is_some()
            && (runners.values().any(|runner| runner.slurm_job_id == row.slurm_job_id)
                || stats.values().any(|s| s.workflow == row.workflow.0 && s.slurm_job_id == row.slurm_job_id));
        let is_kept = named || row.ended_ms.is_none_or(|ended_ms| ended_ms >= before_ms);
        if !is_kept {
            *report.allocations.entry(row.workflow).or_default() += 1;
        }
        is_kept
    });
    let results = &model.results;
    let has_result = |row: &JobRow| results.iter().any(|other| (other.workflow, other.job) == (row.workflow, row.id));
    let before = model.removed_jobs.len();
    model.removed_jobs.retain(|_, row| has_result(row));
    report.jobs = (before - model.removed_jobs.len()) as u64;
    if report.jobs > 0 {
        let (jobs, removed) = (&model.jobs, &model.removed_jobs);
        model.files.retain(|(_, job, _), _| jobs.contains_key(job) || removed.contains_key(job));
    }
    report
}

async fn check_collection(groups: &[Changes], before_ms: i64) {
    let (_folder, store) = new_store().await;
    let mut model = Database::with_identity(store.load().await.unwrap().identity);
    for group in groups {
        store.commit(group).await.unwrap();
        model.write(group);
    }
    let beside = Beside::default();
    let untouched = model.clone();
    let report = collect(&mut model, before_ms);
    assert_eq!(store.gc(before_ms, true).await.unwrap(), report, "a dry run before {before_ms}");
    tables::check(&store, &untouched, &beside).await;
    assert_eq!(store.gc(before_ms, false).await.unwrap(), report, "before {before_ms}");
    tables::check(&store, &model, &beside).await;
    assert_eq!(store.load().await.unwrap(), model.snapshot(), "before {before_ms}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_collection_takes_what_is_old_and_nothing_else(groups in groups(0.05), before_ms in 0..=TIMES) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(check_collection(&groups, before_ms));
    }
}
