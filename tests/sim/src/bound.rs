//! A lower bound of the end of every schedule: no path is shorter than its jobs, and no runner works before it arrives.

use crate::graph::remaining_paths;
use crate::placement::last_success;
use crate::time::{Time, micros};
use crate::workload::{JobPlan, RunnerPlan, Scenario};

/// Something that runners have and jobs take.
#[derive(Clone, Copy)]
struct Capacity {
    of_runner: fn(&RunnerPlan) -> i64,
    of_job: fn(&JobPlan) -> i64,
}

const RESOURCES: [Capacity; 3] = [
    Capacity { of_runner: |runner| runner.capacity.cpus, of_job: |job| job.needs.cpus * job.needs.nodes.max(1) },
    Capacity {
        of_runner: |runner| runner.capacity.memory_bytes,
        of_job: |job| job.needs.memory_bytes * job.needs.nodes.max(1),
    },
    Capacity { of_runner: |runner| runner.capacity.gpus, of_job: |job| job.needs.gpus * job.needs.nodes.max(1) },
];

const JOB_SLOTS: Capacity =
    Capacity { of_runner: |runner| runner.max_parallel_jobs.map_or(0, i64::from), of_job: |_| 1 };

/// Returns a time before which no schedule ends.
pub fn lower_bound(scenario: &Scenario) -> Time {
    let counting = scenario.runners.iter().filter(|runner| runner.max_parallel_jobs.is_some()).count();
    let capacities = match counting {
        0 => &RESOURCES[..],
        _ if counting == scenario.runners.len() => &[JOB_SLOTS],
        // There is no common measure.
        _ => &[],
    };
    let work = capacities.iter().map(|capacity| capacity_bound(scenario, *capacity));
    work.chain([path_bound(scenario)]).max().unwrap_or_default()
}

fn path_bound(scenario: &Scenario) -> Time {
    let measured = scenario.workflows.iter().filter(|workflow| !workflow.is_warm_up);
    let ends = measured.flat_map(|workflow| {
        remaining_paths(workflow, |job| job.duration).into_iter().map(|path| workflow.applied.plus(path))
    });
    ends.max().unwrap_or_default()
}

/// Returns the time at which all runners together have had the capacity for all jobs that count.
fn capacity_bound(scenario: &Scenario, capacity: Capacity) -> Time {
    let first = scenario.measured_from();
    let measured = scenario.jobs().filter(|(job, _)| scenario.is_measured(*job));
    let mut work: f64 = measured.map(|(_, job)| work_of(job, capacity)).sum();
    // Between two arrivals or departures the capacity is constant.
    let mut edges: Vec<Time> = vec![first];
    for runner in &scenario.runners {
        edges.extend([Some(runner.arrives), last_success(runner)].into_iter().flatten().filter(|edge| *edge > first));
    }
    edges.sort_unstable();
    edges.dedup();
    for (at, edge) in edges.iter().enumerate() {
        let present =
            |runner: &&RunnerPlan| runner.arrives <= *edge && last_success(runner).is_none_or(|end| end > *edge);
        let rate: f64 =
            scenario.runners.iter().filter(present).map(|runner| (capacity.of_runner)(runner).max(0) as f64).sum();
        let length = edges.get(at + 1).map_or(f64::INFINITY, |next| (next.0 - edge.0) as f64);
        if work <= rate * length {
            return Time(edge.0 + if work > 0.0 { (work / rate) as u64 } else { 0 });
        }
        work -= rate * length;
    }
    first
}

/// Returns amount times microseconds.
fn work_of(job: &JobPlan, capacity: Capacity) -> f64 {
    (capacity.of_job)(job).max(0) as f64 * micros(job.duration) as f64
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
