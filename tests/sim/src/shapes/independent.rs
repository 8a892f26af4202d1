//! Jobs without dependencies on runners that stay.

use std::time::Duration;

use super::{Shape, bag, equal_runners, millis, seconds, warm_up};
use crate::random::Random;
use crate::time::Time;
use crate::workload::{GIB, JobPlan, RunnerPlan, Scenario, WorkflowPlan};

pub(super) const SHAPES: &[Shape] = &[
    Shape { name: "equal-few", description: "8 jobs of 5 s on 2 runners with 4 CPUs, after others", build: equal_few },
    Shape { name: "equal-many", description: "2,000 jobs of 1-10 s on 8 runners with 16 CPUs", build: equal_many },
    Shape { name: "unequal", description: "1,500 jobs of 1-10 s on runners with 4, 8, 16 and 64 CPUs", build: unequal },
    Shape { name: "cpu-mix", description: "800 jobs with 1-16 CPUs on 6 runners with 32", build: cpu_mix },
    Shape { name: "memory-mix", description: "800 jobs with 1-32 GiB on 6 runners with 64 GiB", build: memory_mix },
    Shape { name: "gpu-mix", description: "600 jobs with 0-4 GPUs on 8 runners with 4", build: gpu_mix },
    Shape { name: "gpu-small", description: "200 jobs of 5 s with a GPU on 4 runners with 4", build: gpu_small },
    Shape { name: "gpu-large", description: "4,000 jobs of 5 s with a GPU on 200 runners with 4", build: gpu_large },
    Shape { name: "long-few", description: "40 jobs of 1-10 min on 4 runners with 8 CPUs", build: long_few },
    Shape { name: "short-many", description: "6,000 jobs of 10-50 ms on 4 runners with 8 CPUs", build: short_many },
    Shape { name: "varying", description: "1,000 jobs of 0.2-20 s, all orders alike, on 4x16 CPUs", build: varying },
    Shape { name: "misdeclared", description: "800 jobs that take 0.1-1 of their runtime", build: misdeclared },
    Shape {
        name: "priorities",
        description: "1,000 jobs with 6 priorities on 4 runners with 8 CPUs",
        build: priorities,
    },
    Shape { name: "slots", description: "1,000 jobs on 4 runners that take 8 jobs each", build: slots },
];

fn one(seed: u64, runners: Vec<RunnerPlan>, jobs: Vec<JobPlan>) -> Scenario {
    Scenario::new(seed, runners, vec![WorkflowPlan::new("jobs", jobs)])
}

fn equal_few(seed: u64) -> Scenario {
    let mut random = Random::new(seed, 1);
    // The seed moves the time at which the jobs come, relative to the agents' timers.
    let applied = seconds(16) + random.duration(Duration::ZERO, seconds(1));
    let jobs = (0..8).map(|number| JobPlan::new(format!("j{number}"), seconds(5))).collect();
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
    let job = |number| JobPlan { runtime_seconds: 60, ..JobPlan::new(format!("j{number}"), seconds(5)) };
    (0..count).map(|number| job(number).needing(1, GIB, 1)).collect()
}

fn gpu_small(seed: u64) -> Scenario {
    staggered(seed, gpu_nodes(4), gpu_jobs(200))
}

fn gpu_large(seed: u64) -> Scenario {
    staggered(seed, gpu_nodes(200), gpu_jobs(4_000))
}

/// The seed decides about the order in which runners arrive, within 100 ms.
fn staggered(seed: u64, mut runners: Vec<RunnerPlan>, jobs: Vec<JobPlan>) -> Scenario {
    let mut random = Random::new(seed, 7);
    for runner in &mut runners {
        runner.arrives = Time::after_start(random.duration(Duration::ZERO, millis(100)));
    }
    one(seed, runners, jobs)
}

fn long_few(seed: u64) -> Scenario {
    let mut random = Random::new(seed, 8);
    let mut jobs = bag(&mut random, 40, seconds(60), seconds(600));
    for job in &mut jobs {
        // Authors know the order of magnitude: they declare full minutes.
        job.runtime_seconds = (job.duration.as_secs().div_ceil(60) * 60).cast_signed();
    }
    one(seed, equal_runners(4, 8), jobs)
}

fn short_many(seed: u64) -> Scenario {
    let mut random = Random::new(seed, 9);
    one(seed, equal_runners(4, 8), bag(&mut random, 6_000, millis(10), millis(50)))
}

fn varying(seed: u64) -> Scenario {
    let mut random = Random::new(seed, 10);
    let job = |number| {
        let duration = random.log_duration(millis(200), seconds(20));
        JobPlan { runtime_seconds: 60, ..JobPlan::new(format!("j{number}"), duration) }
    };
    let jobs = (0..1_000).map(job).collect();
    one(seed, equal_runners(4, 16), jobs)
}

fn misdeclared(seed: u64) -> Scenario {
    let mut random = Random::new(seed, 11);
    let mut jobs = bag(&mut random, 800, seconds(1), seconds(10));
    for job in &mut jobs {
        let factor = random.within(1, 10);
        let declared = job.duration.as_secs() * factor;
        // Authors declare one of few runtimes.
        job.runtime_seconds =
            [10, 30, 100].into_iter().find(|limit| declared < *limit).unwrap_or(100_u64).cast_signed();
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
