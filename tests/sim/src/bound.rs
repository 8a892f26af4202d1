//! A lower bound of the end of every schedule: no path is shorter than its jobs, and no runner works before it arrives.

use crate::graph::remaining_paths;
use crate::time::{Time, micros};
use crate::workload::{JobPlan, RunnerPlan, Scenario};

/// Amounts of one resource.
type Amount = fn(&torc_api::wire::Resources) -> i64;

const RESOURCES: [Amount; 3] = [|amounts| amounts.cpus, |amounts| amounts.memory_bytes, |amounts| amounts.gpus];

/// Returns a time before which no schedule ends.
pub fn lower_bound(scenario: &Scenario) -> Time {
    // By number of jobs, the resources of runners do not count.
    let counts_jobs = scenario.runners.iter().any(|runner| runner.max_parallel_jobs.is_some());
    let work = RESOURCES.iter().filter(|_| !counts_jobs).map(|amount| capacity_bound(scenario, *amount));
    work.chain([path_bound(scenario)]).max().unwrap_or_default()
}

fn path_bound(scenario: &Scenario) -> Time {
    let ends = scenario
        .workflows
        .iter()
        .flat_map(|workflow| remaining_paths(workflow).into_iter().map(|path| workflow.applied.plus(path)));
    ends.max().unwrap_or_default()
}

/// Returns the time at which all runners together have had the capacity for all jobs.
fn capacity_bound(scenario: &Scenario, amount: Amount) -> Time {
    let first = scenario.workflows.iter().map(|workflow| workflow.applied).min().unwrap_or_default();
    let mut work: f64 = scenario.jobs().map(|(_, job)| work_of(job, amount)).sum();
    // Between two arrivals or departures the capacity is constant.
    let mut edges: Vec<Time> = vec![first];
    for runner in &scenario.runners {
        edges.extend([Some(runner.arrives), runner.closes()].into_iter().flatten().filter(|edge| *edge > first));
    }
    edges.sort_unstable();
    edges.dedup();
    for (at, edge) in edges.iter().enumerate() {
        let present = |runner: &&RunnerPlan| runner.arrives <= *edge && runner.closes().is_none_or(|end| end > *edge);
        let rate: f64 =
            scenario.runners.iter().filter(present).map(|runner| amount(&runner.capacity).max(0) as f64).sum();
        let length = edges.get(at + 1).map_or(f64::INFINITY, |next| (next.0 - edge.0) as f64);
        if work <= rate * length {
            return Time(edge.0 + if work > 0.0 { (work / rate) as u64 } else { 0 });
        }
        work -= rate * length;
    }
    first
}

/// Returns amount times microseconds.
fn work_of(job: &JobPlan, amount: Amount) -> f64 {
    let nodes = job.needs.nodes.max(1);
    (amount(&job.needs).max(0) * nodes) as f64 * micros(job.duration) as f64
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::workload::{GIB, WorkflowPlan};

    #[test]
    fn a_late_runner_counts_from_its_arrival() {
        let jobs = (0..12).map(|number| JobPlan::new(format!("j{number}"), Duration::from_secs(1))).collect();
        let late = RunnerPlan { arrives: Time::from_secs(4), ..RunnerPlan::new("b", 1, GIB, 0) };
        let runners = vec![RunnerPlan::new("a", 1, GIB, 0), late];
        let scenario = Scenario::new(0, runners, vec![WorkflowPlan::new("w", jobs)]);
        assert_eq!(lower_bound(&scenario), Time::from_secs(8), "4 jobs in 4 s, then two per second");
    }

    #[test]
    fn a_chain_takes_the_sum_of_its_jobs() {
        let job = |number: usize| JobPlan::new(format!("j{number}"), Duration::from_secs(1));
        let jobs = (0..5).map(|number| job(number).after(number.checked_sub(1))).collect();
        let scenario = Scenario::new(0, vec![RunnerPlan::new("a", 4, GIB, 0)], vec![WorkflowPlan::new("w", jobs)]);
        assert_eq!(lower_bound(&scenario), Time::from_secs(5));
    }
}
