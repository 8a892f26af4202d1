//! Runners that fall silent: promises return, started jobs are in doubt, and are given up after long enough.

use torc_api::state::{Cause, JobState};
use torc_api::wire::SyncRequest;

use super::plan::{Plan, job};
use super::world::{World, ask, runner, running, say, success};
use crate::ids::RunnerId;

const LEASE_MS: u64 = 120_000;

/// `a` runs and `b` waits in the runner.
fn busy(orphan_after: Option<&str>) -> (World, RunnerId) {
    let plan = Plan::new([job("a"), job("b")]).with(|spec| spec.orphan_after = orphan_after.map(str::to_owned));
    let mut world = World::with(&plan);
    let id = world.register(&runner("one"));
    world.sync(id, &ask(1, 2));
    let [a, b] = ["a", "b"].map(|name| world.key(name));
    world.sync(id, &SyncRequest { running: vec![running(a)], queued: vec![b], ..say(2) });
    (world, id)
}

fn is_in_doubt(world: &World, name: &str) -> bool {
    world.engine.job(world.workflow(), name).unwrap().1.unconfirmed
}

#[test]
fn nothing_happens_within_the_lease() {
    let (mut world, _) = busy(None);
    world.silence(LEASE_MS);
    assert_eq!(world.states(&["a", "b"]), [JobState::Running, JobState::Leased]);
    assert!(!is_in_doubt(&world, "a"));
}

#[test]
fn after_it_promises_return_and_started_jobs_are_in_doubt() {
    let (mut world, id) = busy(None);
    let b = world.key("b");
    world.silence(LEASE_MS + 1);
    assert_eq!(world.states(&["a", "b"]), [JobState::Running, JobState::Ready]);
    assert!(is_in_doubt(&world, "a"));
    assert_eq!(world.key("b"), b, "the attempt is untouched");
    assert_eq!(world.engine.runners()[0].status, torc_api::api::RunnerStatus::Silent);
    // The event is not repeated, and the runner returns with all leases.
    world.silence(1_000);
    assert_eq!(world.reasons().iter().filter(|reason| **reason == "RunnerSilent").count(), 1);
    let answer = world.sync(id, &SyncRequest { running: vec![running(world.key("a"))], queued: vec![b], ..say(3) });
    assert_eq!(answer.cancel, []);
    assert!(!is_in_doubt(&world, "a"));
    assert_eq!(world.state_of("b"), JobState::Leased);
}

#[test]
fn unstarted_leases_of_a_silent_runner_move() {
    let mut world = World::with(&Plan::new([job("a")]));
    let died = world.register(&runner("one"));
    world.sync(died, &ask(1, 1));
    let next = world.register(&runner("two"));
    world.silence(LEASE_MS);
    assert_eq!(world.sync(next, &ask(1, 1)).leases, [], "its lease may still be good");
    world.silence(1);
    let leases = world.sync(next, &ask(2, 1)).leases;
    assert_eq!(leases.iter().map(|lease| lease.name.as_str()).collect::<Vec<_>>(), ["a"]);
    let statuses: Vec<_> = world.engine.runners().iter().map(|runner| runner.status).collect();
    assert_eq!(statuses, [torc_api::api::RunnerStatus::Active], "the dead one is forgotten");
}

#[test]
fn coming_back_without_a_job_is_proof_that_it_is_gone() {
    let (mut world, id) = busy(None);
    world.silence(LEASE_MS + 1);
    world.sync(id, &say(3));
    assert_eq!((world.state_of("a"), world.job("a").attempt), (JobState::Ready, 2));
    assert_eq!(world.results_of("a")[0].cause, Some(Cause::Lost));
}

#[test]
fn a_job_in_doubt_is_given_up_after_orphan_after() {
    for (setting, patience_ms) in [(None, 3_600_000), (Some("10m"), 600_000), (Some("PT2H"), 7_200_000)] {
        let (mut world, id) = busy(setting);
        world.silence(patience_ms);
        assert_eq!(world.state_of("a"), JobState::Running, "{setting:?}");
        world.silence(1);
        assert_eq!((world.state_of("a"), world.job("a").attempt), (JobState::Ready, 2), "{setting:?}");
        let result = world.results_of("a")[0];
        assert_eq!((result.return_code, result.cause, result.runner), (-128, Some(Cause::Lost), Some(id)));
        assert!(world.database.runners[&id].ended_ms.is_some(), "a silent runner that holds nothing has left");
    }
}

#[test]
fn never_is_never_and_a_result_of_days_ago_counts() {
    let (mut world, id) = busy(Some("never"));
    world.silence(40 * 86_400_000);
    assert_eq!(world.state_of("a"), JobState::Running);
    let answer = world.sync(id, &SyncRequest { finished: vec![success(world.key("a"))], ..say(3) });
    assert_eq!(answer.refused, []);
    assert_eq!(world.state_of("a"), JobState::Completed);
}

#[test]
fn a_restart_of_the_server_resets_the_silence_timeout() {
    let (mut world, _) = busy(None);
    world.silence(3_599_000);
    world.restart();
    world.silence(3_599_000);
    assert_eq!(world.state_of("a"), JobState::Running);
    world.silence(2_000);
    assert_eq!(world.state_of("a"), JobState::Ready);
}

#[test]
fn a_job_that_is_to_be_ended_is_not_waited_for() {
    let (mut world, _) = busy(None);
    let workflow = world.workflow();
    world.run(|engine, tx| engine.cancel(workflow, tx)).unwrap();
    world.silence(LEASE_MS + 1);
    assert_eq!(world.states(&["a", "b"]), [JobState::Canceled; 2]);
}

#[test]
fn the_shortest_lease_of_its_workflows_is_a_runners_lease() {
    let prefetch = |seconds| torc_api::failure::Prefetch { lease_seconds: Some(seconds), ..Default::default() };
    let mut world = World::with(&Plan::new([job("a")]).with(|spec| spec.prefetch = Some(prefetch(60))));
    world
        .apply(&Plan { name: "v".to_owned(), ..Plan::new([job("b")]) }.with(|spec| spec.prefetch = Some(prefetch(30))));
    let id = world.register(&runner("one"));
    assert_eq!(world.sync(id, &ask(1, 2)).lease_ms, 30_000);
    world.silence(30_001);
    assert_eq!(world.states(&["a", "b"]), [JobState::Ready; 2]);
}

// P05, P08
#[test]
fn a_runners_own_lease_time_wins() {
    let plan = Plan::new([job("a"), job("b")]);
    let mut world = World::with(&plan);
    let id = world.register(&runner("one"));
    let answer = world.sync(id, &SyncRequest { lease_seconds: Some(30), ..ask(1, 2) });
    assert_eq!(answer.lease_ms, 30_000);
    world.silence(30_000);
    assert_eq!(world.states(&["a", "b"]), [JobState::Leased, JobState::Leased]);
    world.silence(1);
    assert_eq!(world.states(&["a", "b"]), [JobState::Ready, JobState::Ready]);
}
