//! Random scenarios keep the rules.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::checks::check;
use crate::bound::lower_bound;
use crate::network::Link;
use crate::reference::{Knowledge, reference_end};
use crate::workload::GIB;
use crate::{JobPlan, RunnerPlan, Scenario, Time, WorkflowPlan, simulate};

/// The first runner has all of this and stays, so that every job can run.
const LARGEST: (i64, i64) = (8, 2);

fn any_runner() -> impl Strategy<Value = RunnerPlan> {
    let size = (1..=LARGEST.0, 0..=LARGEST.1);
    let times = (0_u64..3_000, proptest::option::of(500_u64..6_000));
    (size, times, 0_u64..20, proptest::option::of(1_u32..4)).prop_map(|(size, times, jitter, slots)| {
        let millis = |ms| Time::after_start(Duration::from_millis(ms));
        RunnerPlan {
            arrives: millis(times.0),
            stops: times.1.map(|after| millis(times.0 + after)),
            link: Link { latency: Duration::from_millis(1), jitter: Duration::from_millis(jitter) },
            max_parallel_jobs: slots,
            ..RunnerPlan::new("", size.0, 16 * GIB, size.1)
        }
    })
}

fn any_job() -> impl Strategy<Value = (JobPlan, Vec<prop::sample::Index>)> {
    let needs = (1..=LARGEST.0, 0..=LARGEST.1, 1_i64..=8);
    (needs, 1_u64..1_500, 0_i64..3, vec(any::<prop::sample::Index>(), 0..3)).prop_map(
        |((cpus, gpus, gib), millis, priority, after)| {
            let job = JobPlan::new("", Duration::from_millis(millis)).needing(cpus, gib * GIB, gpus);
            (JobPlan { priority, runtime_seconds: 10, ..job }, after)
        },
    )
}

fn any_workflow() -> impl Strategy<Value = WorkflowPlan> {
    (vec(any_job(), 1..25), 0_u64..3_000, any::<bool>()).prop_map(|(jobs, applied, prefetch)| {
        let named = jobs.into_iter().enumerate().map(|(number, (job, after))| {
            let mut parents: Vec<usize> =
                after.iter().filter(|_| number > 0).map(|parent| parent.index(number)).collect();
            parents.sort_unstable();
            parents.dedup();
            JobPlan { name: format!("j{number}"), ..job }.after(parents)
        });
        let mut workflow = WorkflowPlan::new("", named.collect());
        workflow.applied = Time::after_start(Duration::from_millis(applied));
        workflow.prefetch.get_or_insert_default().enabled = Some(prefetch);
        workflow
    })
}

fn any_scenario() -> impl Strategy<Value = Scenario> {
    (any::<u64>(), vec(any_runner(), 0..4), vec(any_workflow(), 1..4)).prop_map(|(seed, others, workflows)| {
        let mut runners = vec![RunnerPlan::new("", LARGEST.0, 16 * GIB, LARGEST.1)];
        runners.extend(others);
        runners.iter_mut().enumerate().for_each(|(number, runner)| runner.host = format!("node{number}"));
        let named = workflows
            .into_iter()
            .enumerate()
            .map(|(number, workflow)| WorkflowPlan { name: format!("w{number}"), ..workflow });
        Scenario::new(seed, runners, named.collect())
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_scenarios_keep_the_rules(scenario in any_scenario()) {
        let trace = simulate(&scenario).unwrap();
        check(&scenario, &trace);
        prop_assert_eq!(&trace, &simulate(&scenario).unwrap());
    }

    #[test]
    fn the_reference_is_never_below_the_bound(scenario in any_scenario()) {
        let (reference, bound) = (reference_end(&scenario, Knowledge::Durations), lower_bound(&scenario));
        prop_assert!(bound <= reference, "{:?} <= {:?}", bound, reference);
    }
}
