//! Runners that arrive late, leave early or run out of time.

use super::{Shape, bag, equal_runners, seconds, shape};
use crate::random::Random;
use crate::time::Time;
use crate::workload::{Scenario, WorkflowPlan};

pub(super) const SHAPES: &[Shape] = &[
    shape("late-runners", "1,500 jobs of 1-5 s; 4 of 5 runners with 8 CPUs arrive within a minute", late),
    shape("leaving", "1,200 jobs of 1-5 s; 3 of 6 runners with 8 CPUs are stopped", leaving),
    shape("walltime", "1,600 jobs of 5-15 s; 4 of 6 runners with 8 CPUs run out of time", walltime),
];

fn late(seed: u64) -> Scenario {
    let mut random = Random::new(seed, 31);
    let mut runners = equal_runners(5, 8);
    for runner in runners.iter_mut().skip(1) {
        runner.arrives = Time::after_start(random.duration(seconds(5), seconds(60)));
    }
    let jobs = bag(&mut random, 1_500, seconds(1), seconds(5));
    Scenario::new(seed, runners, vec![WorkflowPlan::new("jobs", jobs)])
}

fn leaving(seed: u64) -> Scenario {
    let mut random = Random::new(seed, 32);
    let mut runners = equal_runners(6, 8);
    for runner in runners.iter_mut().skip(3) {
        runner.stops = Some(Time::after_start(random.duration(seconds(10), seconds(60))));
    }
    let jobs = bag(&mut random, 1_200, seconds(1), seconds(5));
    Scenario::new(seed, runners, vec![WorkflowPlan::new("jobs", jobs)])
}

fn walltime(seed: u64) -> Scenario {
    let mut random = Random::new(seed, 33);
    let mut runners = equal_runners(6, 8);
    for runner in runners.iter_mut().skip(2) {
        runner.walltime = Some(random.duration(seconds(180), seconds(400)));
    }
    let mut jobs = bag(&mut random, 1_600, seconds(5), seconds(15));
    for job in &mut jobs {
        // A job may start with a minute less than it declares, and is killed if it then takes longer.
        job.runtime_seconds = 75;
    }
    Scenario::new(seed, runners, vec![WorkflowPlan::new("jobs", jobs)])
}
