//! Tests of the runner policy that workflows determine.

use torc_api::failure::Prefetch;
use torc_api::wire::{Resources, RunnerPolicy, RunnerScope, SyncRequest, WorkRequest};
use torc_api::workflow::WorkflowSpec;

use super::harness::{EngineHarness, runner, success, sync_request, work_request};
use super::plan::{Plan, job};
use crate::ids::RunnerId;

fn plan(name: &str, edit: fn(&mut WorkflowSpec)) -> Plan {
    Plan { name: name.to_owned(), ..Plan::new([job("a")]) }.with(edit)
}

fn patient(spec: &mut WorkflowSpec) {
    spec.compute_node_wait_for_new_jobs_seconds = Some(600);
    spec.compute_node_min_time_for_new_jobs_seconds = Some(10);
    spec.compute_node_wait_for_healthy_database_minutes = Some(0);
}

fn steady(spec: &mut WorkflowSpec) {
    spec.compute_node_wait_for_new_jobs_seconds = Some(5);
    spec.compute_node_ignore_workflow_completion = Some(true);
    spec.compute_node_min_time_for_new_jobs_seconds = Some(0);
    spec.compute_node_wait_for_healthy_database_minutes = Some(45);
}

fn terms(harness: &mut EngineHarness, id: RunnerId, sequence: u64) -> RunnerPolicy {
    harness.sync(id, &sync_request(sequence)).terms
}

// J20, J25, J31
#[test]
fn the_most_patient_workflow_decides_field_by_field() {
    let usual = RunnerPolicy::default();
    let numbers = |terms: RunnerPolicy| {
        (
            terms.wait_for_new_jobs_seconds,
            terms.ignore_workflow_completion,
            terms.min_time_for_new_jobs_seconds,
            terms.wait_for_healthy_database_minutes,
        )
    };
    assert_eq!(numbers(usual), (90, false, 300, 20));
    let mut harness = EngineHarness::new();
    let all = harness.register(&runner("all"));
    assert_eq!(terms(&mut harness, all, 1), usual, "no document sets them");
    harness.apply(&plan("first", patient));
    assert_eq!(numbers(terms(&mut harness, all, 2)), (600, false, 10, 0));
    harness.apply(&plan("second", steady));
    assert_eq!(numbers(terms(&mut harness, all, 3)), (600, true, 10, 45));
    harness.apply(&plan("third", |_| {}));
    assert_eq!(numbers(terms(&mut harness, all, 4)), (600, true, 300, 45), "one that says nothing says the usual");
    let mut request = runner("one");
    request.scope = RunnerScope::Workflow("second".to_owned());
    let one = harness.register(&request);
    assert_eq!(numbers(terms(&mut harness, one, 1)), (5, true, 0, 45), "only what it serves counts");
}

#[test]
fn what_has_settled_has_no_say_unless_everything_has() {
    let mut harness = EngineHarness::new();
    harness.apply(&plan("first", steady));
    let id = harness.register(&runner("one"));
    let lease = harness.sync(id, &work_request(1, 1)).leases.remove(0);
    let ended = SyncRequest { finished: vec![success(lease.key)], ..sync_request(2) };
    assert!(harness.sync(id, &ended).terms.ignore_workflow_completion, "now it counts");
    harness.apply(&plan("second", patient));
    assert_eq!(terms(&mut harness, id, 3).wait_for_healthy_database_minutes, 0);
}

/// Returns the number of jobs that a runner gets, and the prefetch policy that it is told. The runner has one free
/// CPU and asks to lease eight ahead.
fn granted(prefetch: Option<Prefetch>) -> (usize, Option<Prefetch>) {
    let jobs = (0..20).map(|number| job(&format!("j{number}")));
    let mut harness = EngineHarness::with(&Plan::new(jobs).with(|spec| spec.prefetch = prefetch));
    let id = harness.register(&runner("one"));
    let free = Resources { cpus: 1, ..runner("").capacity };
    let answer =
        harness.sync(id, &SyncRequest { want: WorkRequest { free, ahead: 8, bridge: 8, limit: 9 }, ..sync_request(1) });
    (answer.leases.len(), answer.prefetch)
}

// P05
#[test]
fn a_workflow_says_how_far_ahead_of_it_is_leased() {
    assert_eq!(granted(None), (9, None));
    let cases = [
        (Prefetch { batch_size: Some(3), ..Prefetch::default() }, 3),
        (Prefetch { max_queued: Some(2), ..Prefetch::default() }, 3),
        (Prefetch { enabled: Some(false), ..Prefetch::default() }, 1),
        (Prefetch { refill_threshold: Some(1), ..Prefetch::default() }, 9),
    ];
    for (prefetch, count) in cases {
        assert_eq!(granted(Some(prefetch.clone())), (count, Some(prefetch)));
    }
}
