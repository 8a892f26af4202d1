//! Several attempts and runs of one job: each has its own result and its own accounting.

use torc_api::slurm_stats::SlurmStats;
use torc_api::wire::Usage;
use torc_core::rows::{Changes, ResultRow};

use torc_api::filter::{ResultFilter, SlurmStatsFilter};

use crate::samples::{job, new_store, profile, result, workflow};

/// Attempts whose keys differ from that of the first in one part.
const ATTEMPTS: [(i64, i64, i32, i32); 6] =
    [(1, 1, 1, 1), (1, 1, 1, 2), (1, 1, 2, 1), (1, 1, 2, 2), (1, 2, 1, 1), (2, 1, 1, 1)];

fn ended((workflow, job, run, attempt): (i64, i64, i32, i32)) -> ResultRow {
    ResultRow { run, started_ms: 1_000, ended_ms: 11_000, ..result(workflow, job, attempt) }
}

fn accounted((workflow, job, run, attempt): (i64, i64, i32, i32), max_rss_bytes: i64) -> SlurmStats {
    let ave_cpu_seconds = Some(max_rss_bytes as f64 / 100.0);
    let max_rss_bytes = Some(max_rss_bytes);
    SlurmStats { workflow, job, run, attempt, max_rss_bytes, ave_cpu_seconds, ..SlurmStats::default() }
}

fn parents() -> Changes {
    Changes {
        workflows: vec![workflow(1), workflow(2)],
        profiles: vec![profile(1, 1)],
        jobs: vec![job(1, 1, 1), job(2, 1, 1)],
        ..Changes::default()
    }
}

// S12, S13, S14
#[tokio::test]
async fn each_attempt_is_completed_by_its_own_accounting() {
    let (_folder, store) = new_store().await;
    let numbers = [100, 200, 300, 400, 500, 600];
    let changes = Changes {
        results: ATTEMPTS.map(ended).to_vec(),
        slurm_stats: ATTEMPTS.into_iter().zip(numbers).map(|(key, number)| accounted(key, number)).collect(),
        ..parents()
    };
    store.commit(&changes).await.unwrap();
    let found = store.results(&ResultFilter::default()).await.unwrap().items;
    let usage: Vec<Usage> = found.iter().map(|view| view.result.usage).collect();
    // 1 s of CPU time in 10 s is 10 %.
    let expected = numbers.map(|number| Usage {
        peak_memory_bytes: Some(number),
        peak_cpu_percent: Some(number as f64 / 10.0),
        average_cpu_percent: Some(number as f64 / 10.0),
        ..Usage::default()
    });
    assert_eq!(usage, expected, "one row for each attempt, with what its own step used");
}

// S12, S19
#[tokio::test]
async fn an_attempt_without_accounting_borrows_none() {
    for accounted_for in ATTEMPTS {
        let (_folder, store) = new_store().await;
        let slurm_stats = vec![accounted(accounted_for, 700)];
        let changes = Changes { results: ATTEMPTS.map(ended).to_vec(), slurm_stats, ..parents() };
        store.commit(&changes).await.unwrap();
        let found = store.results(&ResultFilter::default()).await.unwrap().items;
        let peaks: Vec<Option<i64>> = found.iter().map(|view| view.result.usage.peak_memory_bytes).collect();
        let expected = ATTEMPTS.map(|key| (key == accounted_for).then_some(700));
        assert_eq!(peaks, expected, "{accounted_for:?}");
    }
}

// S12
#[tokio::test]
async fn the_peak_is_the_larger_of_sstat_and_sacct() {
    let (_folder, store) = new_store().await;
    let seen =
        |key, bytes| ResultRow { usage: Usage { peak_memory_bytes: Some(bytes), ..Usage::default() }, ..ended(key) };
    let changes = Changes {
        results: vec![seen(ATTEMPTS[0], 40), seen(ATTEMPTS[1], 60)],
        slurm_stats: vec![accounted(ATTEMPTS[0], 50), accounted(ATTEMPTS[1], 50)],
        ..parents()
    };
    store.commit(&changes).await.unwrap();
    let found = store.results(&ResultFilter::default()).await.unwrap().items;
    let peaks: Vec<Option<i64>> = found.iter().map(|view| view.result.usage.peak_memory_bytes).collect();
    assert_eq!(peaks, [Some(50), Some(60)]);
}

// S17
#[tokio::test]
async fn accounting_is_unique_per_workflow_job_run_and_attempt() {
    let (_folder, store) = new_store().await;
    let slurm_stats: Vec<SlurmStats> =
        ATTEMPTS.into_iter().zip([1, 2, 3, 4, 5, 6]).map(|(key, number)| accounted(key, number)).collect();
    store.commit(&Changes { slurm_stats: slurm_stats.clone(), ..parents() }).await.unwrap();
    assert_eq!(store.slurm_stats(&SlurmStatsFilter::default()).await.unwrap().items, slurm_stats);
    for (changed, key) in ATTEMPTS.into_iter().enumerate() {
        let newer = accounted(key, 90);
        let twice = Changes { slurm_stats: vec![accounted(key, 80), newer.clone()], ..Changes::default() };
        store.commit(&twice).await.unwrap();
        let found = store.slurm_stats(&SlurmStatsFilter::default()).await.unwrap().items;
        assert_eq!(found.len(), ATTEMPTS.len(), "a second record of an attempt takes the place of the first");
        assert_eq!(found[changed], newer, "the last one wins");
        let of_one = SlurmStatsFilter {
            workflow_id: Some(key.0),
            job_id: Some(key.1),
            run_id: Some(key.2),
            attempt_id: Some(key.3),
            ..SlurmStatsFilter::default()
        };
        assert_eq!(store.slurm_stats(&of_one).await.unwrap().items, [newer]);
    }
}
