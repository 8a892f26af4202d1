//! Silent runners: unstarted leases return at once, started jobs are unconfirmed and are lost after a longer time.

use torc_api::state::{Cause, JobState};
use torc_api::wire::SyncRequest;

use super::harness::{EngineHarness, runner, running, success, sync_request, work_request};
use super::plan::{Plan, job};
use crate::ids::RunnerId;

const LEASE_MS: u64 = 120_000;

/// `a` runs and `b` waits in the runner.
fn busy(orphan_after: Option<&str>) -> (EngineHarness, RunnerId) {
    let plan = Plan::new([job("a"), job("b")]).with(|spec| spec.orphan_after = orphan_after.map(str::to_owned));
    let mut harness = EngineHarness::with(&plan);
    let id = harness.register(&runner("one"));
    harness.sync(id, &work_request(1, 2));
    let [a, b] = ["a", "b"].map(|name| harness.key(name));
    harness.sync(id, &SyncRequest { running: vec![running(a)], queued: vec![b], ..sync_request(2) });
    (harness, id)
}

fn is_in_doubt(harness: &EngineHarness, name: &str) -> bool {
    harness.engine.job(harness.workflow(), name).unwrap().1.unconfirmed
}

#[test]
fn nothing_happens_within_the_lease() {
    let (mut harness, _) = busy(None);
    harness.silence(LEASE_MS);
    assert_eq!(harness.states(&["a", "b"]), [JobState::Running, JobState::Leased]);
    assert!(!is_in_doubt(&harness, "a"));
}

#[test]
fn after_it_promises_return_and_started_jobs_are_in_doubt() {
    let (mut harness, id) = busy(None);
    let b = harness.key("b");
    harness.silence(LEASE_MS + 1);
    assert_eq!(harness.states(&["a", "b"]), [JobState::Running, JobState::Ready]);
    assert!(is_in_doubt(&harness, "a"));
    assert_eq!(harness.key("b"), b, "the attempt is untouched");
    assert_eq!(harness.engine.runners()[0].status, torc_api::api::RunnerStatus::Silent);
    // The event is not repeated, and the runner comes back with all leases.
    harness.silence(1_000);
    assert_eq!(harness.reasons().iter().filter(|reason| **reason == "RunnerSilent").count(), 1);
    let answer =
        harness.sync(id, &SyncRequest { running: vec![running(harness.key("a"))], queued: vec![b], ..sync_request(3) });
    assert_eq!(answer.cancel, []);
    assert!(!is_in_doubt(&harness, "a"));
    assert_eq!(harness.state_of("b"), JobState::Leased);
}

#[test]
fn unstarted_leases_of_a_silent_runner_move() {
    let mut harness = EngineHarness::with(&Plan::new([job("a")]));
    let died = harness.register(&runner("one"));
    harness.sync(died, &work_request(1, 1));
    let next = harness.register(&runner("two"));
    harness.silence(LEASE_MS);
    assert_eq!(harness.sync(next, &work_request(1, 1)).leases, [], "its lease may still be good");
    harness.silence(1);
    let leases = harness.sync(next, &work_request(2, 1)).leases;
    assert_eq!(leases.iter().map(|lease| lease.name.as_str()).collect::<Vec<_>>(), ["a"]);
    let statuses: Vec<_> = harness.engine.runners().iter().map(|runner| runner.status).collect();
    assert_eq!(statuses, [torc_api::api::RunnerStatus::Active], "the dead one is forgotten");
}

#[test]
fn coming_back_without_a_job_is_proof_that_it_is_gone() {
    let (mut harness, id) = busy(None);
    harness.silence(LEASE_MS + 1);
    harness.sync(id, &sync_request(3));
    assert_eq!((harness.state_of("a"), harness.job("a").attempt), (JobState::Ready, 2));
    assert_eq!(harness.results_of("a")[0].cause, Some(Cause::Lost));
}

#[test]
fn a_job_in_doubt_is_given_up_after_orphan_after() {
    for (setting, timeout_ms) in [(None, 3_600_000), (Some("10m"), 600_000), (Some("PT2H"), 7_200_000)] {
        let (mut harness, id) = busy(setting);
        harness.silence(timeout_ms);
        assert_eq!(harness.state_of("a"), JobState::Running, "{setting:?}");
        harness.silence(1);
        assert_eq!((harness.state_of("a"), harness.job("a").attempt), (JobState::Ready, 2), "{setting:?}");
        let result = harness.results_of("a")[0];
        assert_eq!((result.return_code, result.cause, result.runner), (-128, Some(Cause::Lost), Some(id)));
        assert!(harness.database.runners[&id].ended_ms.is_some(), "a silent runner that holds nothing has left");
    }
}

#[test]
fn never_is_never_and_a_result_of_days_ago_counts() {
    let (mut harness, id) = busy(Some("never"));
    harness.silence(40 * 86_400_000);
    assert_eq!(harness.state_of("a"), JobState::Running);
    let answer = harness.sync(id, &SyncRequest { finished: vec![success(harness.key("a"))], ..sync_request(3) });
    assert_eq!(answer.refused, []);
    assert_eq!(harness.state_of("a"), JobState::Completed);
}

#[test]
fn a_restart_of_the_server_resets_the_silence_timeout() {
    let (mut harness, _) = busy(None);
    harness.silence(3_599_000);
    harness.restart();
    harness.silence(3_599_000);
    assert_eq!(harness.state_of("a"), JobState::Running);
    harness.silence(2_000);
    assert_eq!(harness.state_of("a"), JobState::Ready);
}

#[test]
fn a_job_that_is_to_be_ended_is_not_waited_for() {
    let (mut harness, _) = busy(None);
    let workflow = harness.workflow();
    harness.run(|engine, tx| engine.cancel(workflow, tx)).unwrap();
    harness.silence(LEASE_MS + 1);
    assert_eq!(harness.states(&["a", "b"]), [JobState::Canceled; 2]);
}

#[test]
fn the_shortest_lease_of_its_workflows_is_a_runners_lease() {
    let prefetch = |seconds| torc_api::failure::Prefetch { lease_seconds: Some(seconds), ..Default::default() };
    let mut harness = EngineHarness::with(&Plan::new([job("a")]).with(|spec| spec.prefetch = Some(prefetch(60))));
    harness
        .apply(&Plan { name: "v".to_owned(), ..Plan::new([job("b")]) }.with(|spec| spec.prefetch = Some(prefetch(30))));
    let id = harness.register(&runner("one"));
    assert_eq!(harness.sync(id, &work_request(1, 2)).lease_ms, 30_000);
    harness.silence(30_001);
    assert_eq!(harness.states(&["a", "b"]), [JobState::Ready; 2]);
}

// P05, P08
#[test]
fn a_runners_own_lease_time_wins() {
    let plan = Plan::new([job("a"), job("b")]);
    let mut harness = EngineHarness::with(&plan);
    let id = harness.register(&runner("one"));
    let answer = harness.sync(id, &SyncRequest { lease_seconds: Some(30), ..work_request(1, 2) });
    assert_eq!(answer.lease_ms, 30_000);
    harness.silence(30_000);
    assert_eq!(harness.states(&["a", "b"]), [JobState::Leased, JobState::Leased]);
    harness.silence(1);
    assert_eq!(harness.states(&["a", "b"]), [JobState::Ready, JobState::Ready]);
}
