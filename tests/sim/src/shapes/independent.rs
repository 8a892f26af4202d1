//! Jobs without dependencies on runners that stay.

use std::time::Duration;

use super::{Shape, bag, equal_runners, job, millis, round_runtime, seconds, shape, warm_up};
use crate::random::Random;
use crate::time::Time;
use crate::workload::{GIB, JobPlan, RunnerPlan, Scenario, WorkflowPlan};

pub(super) const SHAPES: &[Shape] = &[
    shape("equal-few", "8 jobs of 5 s on 2 runners with 4 CPUs, while other work goes on", equal_few),
    shape("after-pause", "the same, when everything before it has completed", after_pause),
    shape("equal-many", "2,000 jobs of 1-10 s on 8 runners with 16 CPUs", equal_many),
    shape("unequal", "1,500 jobs of 1-10 s on runners with 4, 8, 16 and 64 CPUs", unequal),
    shape("cpu-mix", "800 jobs with 1-16 CPUs on 6 runners with 32", cpu_mix),
    shape("memory-mix", "800 jobs with 1-32 GiB on 6 runners with 64 GiB", memory_mix),
    shape("gpu-mix", "600 jobs with 0-4 GPUs on 8 runners with 4", gpu_mix),
    shape("gpu-small", "200 jobs of 5 s with a GPU on 4 runners with 4", gpu_small),
    shape("gpu-large", "4,000 jobs of 5 s with a GPU on 200 runners with 4", gpu_large),
    shape("long-few", "40 jobs of 1-10 min on 4 runners with 8 CPUs", long_few),
    shape("short-many", "6,000 jobs of 10-50 ms on 4 runners with 8 CPUs", short_many),
    shape("varying", "3,000 jobs of 0.2-20 s that declare one runtime, on 4 runners with 8 CPUs", varying),
    shape(
        "misdeclared",
        "1,500 jobs of 1-10 s that declare up to ten times as much, on 4 runners with 16 CPUs",
        misdeclared,
    ),
    shape("priorities", "1,000 jobs with 6 priorities on 4 runners with 8 CPUs", priorities),
    shape("slots", "1,000 jobs on 4 runners that take 8 jobs each", slots),
];

fn one(seed: u64, runners: Vec<RunnerPlan>, jobs: Vec<JobPlan>) -> Scenario {
    Scenario::new(seed, runners, vec![WorkflowPlan::new("jobs", jobs)])
}

/// Returns a scenario in which a job on a separate runner keeps another workflow from completing.
fn equal_few(seed: u64) -> Scenario {
    let mut scenario = after_pause(seed);
    let mut background = WorkflowPlan { name: "background".to_owned(), ..warm_up(1, seconds(60)) };
    background.jobs[0].labels = vec!["background".to_owned()];
    scenario.workflows.push(background);
    let runner = RunnerPlan::new("background", 1, GIB, 0);
    scenario.runners.push(RunnerPlan { labels: vec!["background".to_owned()], ..runner });
    scenario
}

fn after_pause(seed: u64) -> Scenario {
    let mut random = Random::new(seed, 1);
    // The seed moves the time at which the jobs come, relative to the agents' timers.
    let applied = seconds(16) + random.duration(Duration::ZERO, seconds(1));
    let jobs = (0..8).map(|number| job(number, seconds(5))).collect();
    let measured = WorkflowPlan { applied: Time::after_start(applied), ..WorkflowPlan::new("jobs", jobs) };
    Scenario::new(seed, equal_runners(2, 4), vec![warm_up(16, seconds(5)), measured])
}

fn equal_many(seed: u64) -> Scenario {
    let mut random = Random::new(seed, 2);
    one(seed, equal_runners(8, 16), bag(&mut random, 2_000, seconds(1), seconds(10)))
}

fn unequal(seed: u64) -> Scenario {
    let mut random = Random::new(seed, 3);
    let runners = [4, 8, 16, 64].map(|cpus| RunnerPlan::new(format!("node{cpus}"), cpus, 4 * GIB * cpus, 0));
    one(seed, runners.to_vec(), bag(&mut random, 1_500, seconds(1), seconds(10)))
}

fn cpu_mix(seed: u64) -> Scenario {
    let mut random = Random::new(seed, 4);
    let mut jobs = bag(&mut random, 800, seconds(2), seconds(20));
    for job in &mut jobs {
        job.needs.cpus = random.choose(&[1, 1, 1, 2, 2, 4, 8, 16]).unwrap_or(1);
    }
    one(seed, equal_runners(6, 32), jobs)
}

fn memory_mix(seed: u64) -> Scenario {
    let mut random = Random::new(seed, 5);
    let mut jobs = bag(&mut random, 800, seconds(2), seconds(20));
    for job in &mut jobs {
        job.needs.memory_bytes = random.choose(&[1, 2, 4, 4, 8, 16, 32]).unwrap_or(1) * GIB;
    }
    let runners = (0..6).map(|number| RunnerPlan::new(format!("node{number}"), 32, 64 * GIB, 0)).collect();
    one(seed, runners, jobs)
}

fn gpu_nodes(count: usize) -> Vec<RunnerPlan> {
    (0..count).map(|number| RunnerPlan::new(format!("gpu{number}"), 64, 512 * GIB, 4)).collect()
}

fn gpu_mix(seed: u64) -> Scenario {
    let mut random = Random::new(seed, 6);
    let mut jobs = bag(&mut random, 600, seconds(2), seconds(15));
    for job in &mut jobs {
        job.needs.gpus = random.choose(&[0, 0, 0, 1, 1, 1, 1, 1, 2, 4]).unwrap_or(1);
        job.needs.cpus = if job.needs.gpus == 0 { 8 } else { 4 };
    }
    one(seed, gpu_nodes(8), jobs)
}

fn gpu_jobs(count: usize) -> Vec<JobPlan> {
    (0..count).map(|number| job(number, seconds(5)).needing(1, GIB, 1)).collect()
}

fn gpu_small(seed: u64) -> Scenario {
    staggered(seed, gpu_nodes(4), gpu_jobs(200))
}

fn gpu_large(seed: u64) -> Scenario {
    staggered(seed, gpu_nodes(200), gpu_jobs(4_000))
}

/// Returns a scenario whose runners arrive in random order within 100 ms.
fn staggered(seed: u64, mut runners: Vec<RunnerPlan>, jobs: Vec<JobPlan>) -> Scenario {
    let mut random = Random::new(seed, 7);
    for runner in &mut runners {
        runner.arrives = Time::after_start(random.duration(Duration::ZERO, millis(100)));
    }
    one(seed, runners, jobs)
}

fn long_few(seed: u64) -> Scenario {
    let mut random = Random::new(seed, 8);
    one(seed, equal_runners(4, 8), bag(&mut random, 40, seconds(60), seconds(600)))
}

fn short_many(seed: u64) -> Scenario {
    let mut random = Random::new(seed, 9);
    one(seed, equal_runners(4, 8), bag(&mut random, 6_000, millis(10), millis(50)))
}

fn varying(seed: u64) -> Scenario {
    let mut random = Random::new(seed, 10);
    let one_job = |number| {
        let duration = random.log_duration(millis(200), seconds(20));
        JobPlan { runtime_seconds: 60, ..job(number, duration) }
    };
    let jobs = (0..3_000).map(one_job).collect();
    one(seed, equal_runners(4, 8), jobs)
}

fn misdeclared(seed: u64) -> Scenario {
    let mut random = Random::new(seed, 11);
    let mut jobs = bag(&mut random, 1_500, seconds(1), seconds(10));
    for job in &mut jobs {
        let factor = u32::try_from(random.within(1, 10)).unwrap_or(1);
        job.runtime_seconds = round_runtime(job.duration * factor);
    }
    one(seed, equal_runners(4, 16), jobs)
}

fn priorities(seed: u64) -> Scenario {
    let mut random = Random::new(seed, 12);
    let mut jobs = bag(&mut random, 1_000, millis(500), seconds(5));
    for job in &mut jobs {
        job.priority = random.within(0, 5).cast_signed();
    }
    one(seed, equal_runners(4, 8), jobs)
}

fn slots(seed: u64) -> Scenario {
    let mut random = Random::new(seed, 13);
    let mut runners = equal_runners(4, 8);
    for runner in &mut runners {
        runner.max_parallel_jobs = Some(8);
    }
    one(seed, runners, bag(&mut random, 1_000, millis(500), seconds(5)))
}
