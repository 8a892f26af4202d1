//! Small scenarios with known schedules.

use std::time::Duration;

use super::checks::check;
use crate::reference::{Knowledge, reference_end};
use crate::workload::GIB;
use crate::{JobPlan, RunnerPlan, Scenario, Time, WorkflowPlan, measure, shapes, simulate};

/// More than a sync, a commit and a start take together.
const OVERHEAD: Duration = Duration::from_millis(10);

fn scenario(runners: Vec<RunnerPlan>, jobs: Vec<JobPlan>) -> Scenario {
    Scenario::new(1, runners, vec![WorkflowPlan::new("w", jobs)])
}

fn runner(host: &str, cpus: i64) -> RunnerPlan {
    RunnerPlan::new(host, cpus, 16 * GIB, 0)
}

fn job(number: usize, seconds: u64) -> JobPlan {
    JobPlan::new(format!("j{number}"), Duration::from_secs(seconds))
}

#[test]
fn one_job_runs_for_its_duration() {
    let scenario = scenario(vec![runner("a", 1)], vec![job(0, 3)]);
    let trace = simulate(&scenario).unwrap();
    let [attempt] = trace.attempts[..] else { panic!("{trace:?}") };
    assert_eq!(attempt.ended.unwrap().since(attempt.started), Duration::from_secs(3));
    assert!(attempt.started.since(Time::ZERO) < OVERHEAD, "started at {:?}", attempt.started);
    check(&scenario, &trace);
    let measures = measure(&scenario, &trace);
    assert_eq!((measures.reference, measures.bound), (Duration::from_secs(3), Duration::from_secs(3)));
    assert!((1.0..1.005).contains(&measures.ratio()), "{measures:?}");
    assert!(measures.utilization > 0.99, "{measures:?}");
    assert!(measures.idle_while_ready < 0.001, "{measures:?}");
}

#[test]
fn a_chain_goes_on_at_once() {
    let jobs = (0..10).map(|number| job(number, 1).after(number.checked_sub(1))).collect();
    let scenario = scenario(vec![runner("a", 2), runner("b", 2)], jobs);
    let trace = simulate(&scenario).unwrap();
    check(&scenario, &trace);
    for times in trace.job_times(&scenario)[0].iter().flatten() {
        assert!(times.started.since(times.ready) < OVERHEAD, "{times:?}");
    }
    assert_eq!(reference_end(&scenario, Knowledge::Durations), Time::from_secs(10));
}

#[test]
fn the_job_of_a_crashed_runner_runs_again() {
    let crashing = RunnerPlan { crashes: Some(Time::from_secs(5)), ..runner("a", 1) };
    let other = RunnerPlan { arrives: Time::from_secs(6), ..runner("b", 1) };
    let mut scenario = scenario(vec![crashing, other], vec![job(0, 10)]);
    scenario.workflows[0].orphan_after = Some(Duration::from_secs(60));
    let trace = simulate(&scenario).unwrap();
    check(&scenario, &trace);
    let runners: Vec<usize> = trace.attempts.iter().map(|attempt| attempt.runner).collect();
    assert_eq!(runners, [0, 1]);
    assert_eq!(trace.attempts[0].ended, Some(Time::from_secs(5)));
    assert!(!trace.attempts[0].succeeded);
    assert!(trace.attempts[1].started > Time::from_secs(65), "the server waits for the silent runner");
}

#[test]
fn a_stopped_runner_gives_its_jobs_to_others() {
    let stopping = RunnerPlan { stops: Some(Time::from_secs(5)), ..runner("a", 2) };
    let scenario = scenario(vec![stopping, runner("b", 1)], (0..6).map(|number| job(number, 60)).collect());
    let trace = simulate(&scenario).unwrap();
    check(&scenario, &trace);
    let killed: Vec<_> = trace.attempts.iter().filter(|attempt| !attempt.succeeded).collect();
    assert_eq!(killed.len(), 2, "a process that ignores SIGTERM is killed after 30 s: {killed:?}");
    assert!(killed.iter().all(|attempt| attempt.ended == Some(Time::from_secs(35))));
}

#[test]
fn idle_capacity_beside_ready_jobs_is_counted() {
    let jobs: Vec<JobPlan> = (0..2).map(|number| job(number, 10)).collect();
    let scenario = scenario(vec![runner("a", 1), runner("b", 1)], jobs);
    let mut trace = simulate(&scenario).unwrap();
    assert!(measure(&scenario, &trace).idle_while_ready < 0.001);
    // The second job waits for the first although there is a runner for it.
    let first_end = trace.attempts[0].ended.unwrap();
    let second = &mut trace.attempts[1];
    (second.ordered, second.started) = (first_end, first_end);
    second.ended = Some(first_end.plus(Duration::from_secs(10)));
    let measures = measure(&scenario, &trace);
    assert!((0.33..0.34).contains(&measures.idle_while_ready), "10 s of 30: {measures:?}");
}

#[test]
fn a_seed_gives_one_trace() {
    for name in ["gpu-small", "layers", "multi-node"] {
        let shape = shapes::all().into_iter().find(|shape| shape.name == name).unwrap();
        let run = |seed| simulate(&(shape.build)(seed)).unwrap();
        let trace = run(3);
        assert_eq!(trace, run(3), "{name}");
        assert_ne!(trace, run(4), "{name}");
    }
}

#[test]
fn names_of_shapes_are_unique() {
    let mut names: Vec<&str> = shapes::all().iter().map(|shape| shape.name).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    assert!(count >= 20);
}
