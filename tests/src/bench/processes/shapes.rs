//! Workloads of `processes`. Durations come from a fixed seed, in whole milliseconds.

use std::time::Duration;

use torc_sim::random::Random;
use torc_sim::workload::{GIB, MIB};
use torc_sim::{JobPlan, RunnerPlan, Scenario, Time, WorkflowPlan};

/// The seed of all durations.
const SEED: u64 = 14;
/// Memory of a job: enough for a shell where memory is limited.
const JOB_MEMORY_BYTES: i64 = 64 * MIB;

/// A workload, its runners, and its bar.
#[derive(Clone, Copy)]
pub struct ProcessShape {
    pub name: &'static str,
    /// Bar of the makespan divided by the ideal.
    pub max_ratio: f64,
    pub build: fn() -> Scenario,
}

/// All shapes. Bars above 1.1 are for jobs that declare one second and take a part of it: the ideal knows which part.
pub const ALL: &[ProcessShape] = &[
    // The jobs start together on all CPUs: a runner that takes more than its share doubles the makespan.
    ProcessShape { name: "equal-few", max_ratio: 1.05, build: equal_few },
    ProcessShape { name: "medium", max_ratio: 1.1, build: medium },
    ProcessShape { name: "short-many", max_ratio: 1.1, build: short_many },
    ProcessShape { name: "short-few", max_ratio: 1.15, build: short_few },
    ProcessShape { name: "fork-join", max_ratio: 1.2, build: fork_join },
];

/// Returns 8 jobs of 5 s on 2 runners with 4 CPUs that have completed another workflow before.
fn equal_few() -> Scenario {
    let equal = |count: usize, milliseconds| (0..count).map(|number| job(number, milliseconds)).collect();
    let warm_up = WorkflowPlan { is_warm_up: true, ..WorkflowPlan::new("warm-up", equal(16, 500)) };
    // The reference has completed the warm-up long before.
    let measured = WorkflowPlan { applied: Time::from_secs(60), ..WorkflowPlan::new("jobs", equal(8, 5_000)) };
    Scenario::new(SEED, runners(2, 4), vec![warm_up, measured])
}

/// Returns 40 jobs of 0.5-2 s on 4 runners with 2 CPUs.
fn medium() -> Scenario {
    independent(runners(4, 2), 40, 500, 2_000)
}

/// Returns 400 jobs of 0.1-0.5 s on 4 runners with 4 CPUs.
fn short_many() -> Scenario {
    independent(runners(4, 4), 400, 100, 500)
}

/// Returns 60 jobs of 0.1-1 s on 2 runners with 4 CPUs.
fn short_few() -> Scenario {
    independent(runners(2, 4), 60, 100, 1_000)
}

/// Returns twice 1, 30 and 1 jobs of 0.2-1 s on 2 runners with 4 CPUs.
fn fork_join() -> Scenario {
    let mut random = Random::new(SEED, 0);
    let mut jobs: Vec<JobPlan> = Vec::new();
    let mut add = |after: Vec<usize>| {
        let number = jobs.len();
        jobs.push(job(number, random.within(200, 1_000)).after(after));
        number
    };
    let mut last = Vec::new();
    for _ in 0..2 {
        let fork = add(last);
        let middle = (0..30).map(|_| add(vec![fork])).collect();
        last = vec![add(middle)];
    }
    Scenario::new(SEED, runners(2, 4), vec![WorkflowPlan::new("jobs", jobs)])
}

/// Returns independent jobs of `low` to `high` milliseconds.
fn independent(runners: Vec<RunnerPlan>, count: usize, low: u64, high: u64) -> Scenario {
    let mut random = Random::new(SEED, 0);
    let jobs = (0..count).map(|number| job(number, random.within(low, high))).collect();
    Scenario::new(SEED, runners, vec![WorkflowPlan::new("jobs", jobs)])
}

/// Returns a job of one CPU that declares its duration, rounded up to seconds.
fn job(number: usize, milliseconds: u64) -> JobPlan {
    JobPlan::new(format!("j{number}"), Duration::from_millis(milliseconds)).needing(1, JOB_MEMORY_BYTES, 0)
}

/// Returns runners of the same size. Their memory is never what is missing.
fn runners(count: usize, cpus: i64) -> Vec<RunnerPlan> {
    (0..count).map(|number| RunnerPlan::new(format!("runner{number}"), cpus, GIB * cpus, 0)).collect()
}
