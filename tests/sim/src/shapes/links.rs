//! Links that are slow or uneven.

use super::{Shape, bag, equal_runners, millis, seconds, shape};
use crate::network::Link;
use crate::random::Random;
use crate::workload::{Scenario, WorkflowPlan};

pub(super) const SHAPES: &[Shape] = &[
    shape("slow-links", "1,500 jobs of 0.5-2 s on 4 runners with 8 CPUs, round trips of 200 ms", slow_links),
    shape("one-slow-link", "the same, with one round trip of 200 ms and three of 0.5 ms", one_slow_link),
    shape("jitter", "the same, with messages that take 1-21 ms", jitter),
];

fn with_links(seed: u64, link: impl Fn(usize) -> Link) -> Scenario {
    let mut random = Random::new(seed, 41);
    let mut runners = equal_runners(4, 8);
    for (number, runner) in runners.iter_mut().enumerate() {
        runner.link = link(number);
    }
    let jobs = bag(&mut random, 1_500, millis(500), seconds(2));
    Scenario::new(seed, runners, vec![WorkflowPlan::new("jobs", jobs)])
}

fn slow_links(seed: u64) -> Scenario {
    with_links(seed, |_| Link::with_round_trip(millis(200)))
}

fn one_slow_link(seed: u64) -> Scenario {
    with_links(seed, |number| if number == 0 { Link::with_round_trip(millis(200)) } else { Link::default() })
}

fn jitter(seed: u64) -> Scenario {
    with_links(seed, |_| Link { latency: millis(1), jitter: millis(20) })
}
