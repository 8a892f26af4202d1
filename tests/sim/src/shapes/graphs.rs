//! Workflows whose jobs depend on each other.

use super::{Shape, equal_runners, job, millis, shape};
use crate::random::Random;
use crate::workload::{GIB, JobPlan, RunnerPlan, Scenario, WorkflowPlan};

pub(super) const SHAPES: &[Shape] = &[
    shape("chains", "48 chains of 20 jobs of 0.5-2 s on 4 runners with 8 CPUs", chains),
    shape(
        "layers",
        "12 layers of 10-40 jobs of 1-4 s, alike within a layer, all to all, on 3 runners with 8 CPUs",
        layers,
    ),
    shape("fork-join", "5 times 1, 240 and 1 jobs of 1-10 s on 4 runners with 8 CPUs", fork_join),
    shape("random-graph", "600 jobs of 0.2-5 s after 0-3 others each, on 4 runners with 8 CPUs", random_graph),
    shape("multi-node", "20 jobs of 2-4 nodes beside 1,500 small ones, on 2 runners with 8 nodes", multi_node),
];

/// A workflow that grows job by job.
struct Graph {
    random: Random,
    jobs: Vec<JobPlan>,
}

impl Graph {
    fn new(seed: u64, stream: u64) -> Self {
        Self { random: Random::new(seed, stream), jobs: Vec::new() }
    }

    /// Adds a job of `low` to `high` milliseconds. Returns its index.
    fn add(&mut self, low: u64, high: u64, after: impl IntoIterator<Item = usize>) -> usize {
        let number = self.jobs.len();
        let duration = self.random.duration(millis(low), millis(high));
        self.jobs.push(job(number, duration).after(after));
        number
    }

    fn scenario(self, seed: u64, runners: Vec<RunnerPlan>) -> Scenario {
        Scenario::new(seed, runners, vec![WorkflowPlan::new("graph", self.jobs)])
    }
}

fn chains(seed: u64) -> Scenario {
    let mut graph = Graph::new(seed, 21);
    for _ in 0..48 {
        let mut last = None;
        for _ in 0..20 {
            last = Some(graph.add(500, 2_000, last));
        }
    }
    graph.scenario(seed, equal_runners(4, 8))
}

fn layers(seed: u64) -> Scenario {
    let mut graph = Graph::new(seed, 22);
    let mut before: Vec<usize> = Vec::new();
    for _ in 0..12 {
        let width = graph.random.within(10, 40);
        let typical = graph.random.within(1_000, 4_000);
        let (low, high) = (typical * 95 / 100, typical * 105 / 100);
        before = (0..width).map(|_| graph.add(low, high, before.iter().copied())).collect();
    }
    graph.scenario(seed, equal_runners(3, 8))
}

fn fork_join(seed: u64) -> Scenario {
    let mut graph = Graph::new(seed, 23);
    let mut last = None;
    for _ in 0..5 {
        let fork = graph.add(1_000, 2_000, last);
        let middle: Vec<usize> = (0..240).map(|_| graph.add(1_000, 10_000, [fork])).collect();
        last = Some(graph.add(1_000, 2_000, middle));
    }
    graph.scenario(seed, equal_runners(4, 8))
}

fn random_graph(seed: u64) -> Scenario {
    let mut graph = Graph::new(seed, 24);
    for number in 0..600_usize {
        let window = number.min(50);
        let wanted = if window == 0 { 0 } else { graph.random.within(0, 3) };
        let mut after: Vec<usize> = (0..wanted).map(|_| number - 1 - graph.random.index(window)).collect();
        after.sort_unstable();
        after.dedup();
        graph.add(200, 5_000, after);
    }
    graph.scenario(seed, equal_runners(4, 8))
}

fn multi_node(seed: u64) -> Scenario {
    let mut graph = Graph::new(seed, 25);
    for number in 0..1_520 {
        if number % 76 == 0 {
            let job = graph.add(10_000, 20_000, []);
            let needs = &mut graph.jobs[job].needs;
            (needs.nodes, needs.cpus) = (graph.random.within(2, 4).cast_signed(), 16);
        } else {
            let job = graph.add(2_000, 10_000, []);
            graph.jobs[job].needs.cpus = graph.random.within(1, 4).cast_signed();
        }
    }
    let runner = |number| RunnerPlan::new(format!("allocation{number}"), 16, 64 * GIB, 0).with_nodes(8);
    graph.scenario(seed, (0..2).map(runner).collect())
}
