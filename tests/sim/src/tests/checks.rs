//! Invariants of every trace.

use std::collections::BTreeMap;

use torc_api::wire::Resources;

use crate::placement::JobClasses;
use crate::workload::{JobRef, Scenario};
use crate::{Time, Trace};

/// Panics if a trace breaks a rule.
pub fn check(scenario: &Scenario, trace: &Trace) {
    assert_eq!(trace.unfinished(scenario), 0, "all jobs succeed");
    check_capacity(scenario, trace);
    check_dependencies(scenario, trace);
    check_attempts(trace);
}

fn check_capacity(scenario: &Scenario, trace: &Trace) {
    let classes = JobClasses::new(scenario);
    for (index, runner) in scenario.runners.iter().enumerate() {
        let mut changes: Vec<(Time, i64, Resources)> = Vec::new();
        for attempt in trace.attempts.iter().filter(|attempt| attempt.runner == index) {
            let demand = classes.classes[classes.of(attempt.job)].class.demand(&runner.capacity);
            changes.push((attempt.ordered, 1, demand));
            changes.extend(attempt.ended.map(|ended| (ended, -1, demand)));
        }
        // What ends makes room for what starts at the same time.
        changes.sort_by_key(|(at, sign, _)| (*at, *sign));
        let (mut cpus, mut memory, mut gpus, mut jobs) = (0, 0, 0, 0);
        for (at, sign, demand) in changes {
            cpus += sign * demand.cpus;
            memory += sign * demand.memory_bytes;
            gpus += sign * demand.gpus;
            jobs += sign;
            let fits = match runner.max_parallel_jobs {
                Some(most) => jobs <= i64::from(most),
                None => {
                    let capacity = runner.capacity;
                    cpus <= capacity.cpus && memory <= capacity.memory_bytes && gpus <= capacity.gpus
                }
            };
            assert!(fits, "{} exceeds its capacity at {at:?}", runner.host);
        }
    }
}

fn check_dependencies(scenario: &Scenario, trace: &Trace) {
    let ended: BTreeMap<JobRef, Time> = trace
        .attempts
        .iter()
        .filter(|attempt| attempt.succeeded)
        .filter_map(|attempt| Some((attempt.job, attempt.ended?)))
        .collect();
    for attempt in &trace.attempts {
        assert!(scenario.workflows[attempt.job.workflow].applied <= attempt.ordered);
        assert!(scenario.runners[attempt.runner].arrives <= attempt.ordered);
        for parent in &scenario.job(attempt.job).after {
            let parent = JobRef { job: *parent, ..attempt.job };
            assert!(ended[&parent] <= attempt.ordered, "{:?} starts before {parent:?} has ended", attempt.job);
        }
    }
}

/// Asserts that no job runs twice at the same time, or again after it has succeeded.
fn check_attempts(trace: &Trace) {
    let mut free_from: BTreeMap<JobRef, Option<Time>> = BTreeMap::new();
    for attempt in &trace.attempts {
        let before = free_from.insert(attempt.job, attempt.ended.filter(|_| !attempt.succeeded));
        let may_start = before.is_none_or(|free| free.is_some_and(|free| free <= attempt.ordered));
        assert!(may_start, "{:?} runs twice", attempt.job);
    }
}
