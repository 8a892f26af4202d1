//! A small workflow is not delayed by a large one that came before it.
#![allow(clippy::print_stdout, reason = "the times are of interest when the test succeeds, too")]
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use torc_sim::workload::GIB;
use torc_sim::{JobPlan, RunnerPlan, Scenario, Time, Trace, WorkflowPlan, simulate};

/// Jobs of the large workflow: 12.5 s of work for 32 CPUs.
const LARGE: usize = 20_000;
const SMALL: usize = 10;
const JOB: Duration = Duration::from_millis(20);
/// The longest time that a job of the small workflow may wait. Agents hold 200 ms of work at most.
const LONGEST_WAIT: Duration = Duration::from_millis(300);

fn workflow(name: &str, owner: &str, jobs: usize) -> WorkflowPlan {
    let jobs = (0..jobs).map(|number| JobPlan::new(format!("j{number}"), JOB)).collect();
    WorkflowPlan { owner: owner.to_owned(), ..WorkflowPlan::new(name, jobs) }
}

fn run(workflows: Vec<WorkflowPlan>) -> (Scenario, Trace) {
    let runners = (0..4).map(|number| RunnerPlan::new(format!("node{number}"), 8, 16 * GIB, 0)).collect();
    let scenario = Scenario::new(1, runners, workflows);
    let trace = simulate(&scenario).unwrap();
    assert_eq!(trace.unfinished(&scenario), 0);
    (scenario, trace)
}

fn end_of(workflow: usize, scenario: &Scenario, trace: &Trace) -> Time {
    trace.job_times(scenario)[workflow].iter().flatten().map(|times| times.ended).max().unwrap()
}

fn check_small_owner(owner: &str) {
    let (scenario, trace) = run(vec![workflow("large", "ada", LARGE)]);
    let alone = end_of(0, &scenario, &trace);
    let small = WorkflowPlan { applied: Time::from_secs(1), ..workflow("small", owner, SMALL) };
    let (scenario, trace) = run(vec![workflow("large", "ada", LARGE), small]);
    let beside = end_of(0, &scenario, &trace);
    let waits: Vec<Duration> =
        trace.job_times(&scenario)[1].iter().flatten().map(|times| times.started.since(times.ready)).collect();
    let longest = waits.iter().max().unwrap();
    let delay = beside.since(alone);
    println!("jobs of the small workflow wait for {longest:?}, the large one ends {delay:?} later");
    assert!(*longest <= LONGEST_WAIT, "jobs of the small workflow wait for {longest:?} (all: {waits:?})");
    assert!(delay <= alone.since(Time::ZERO) / 100, "the large workflow is delayed by {delay:?} of {alone:?}");
}

#[test]
fn a_small_workflow_of_another_owner_starts_soon() {
    check_small_owner("grace");
}

#[test]
fn a_small_workflow_of_the_same_owner_starts_soon() {
    check_small_owner("ada");
}
