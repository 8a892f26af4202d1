//! Lease reconciliation: confirmed, revived, transferred and abandoned leases.

use torc_api::state::JobState;
use torc_api::wire::{AttemptKey, RunnerDirective, RunnerScope, SyncRequest, WorkRequest};

use super::plan::{Plan, job, needs};
use super::world::{World, ask, runner, running, say, success};
use crate::engine::CommandError;
use crate::expanded::Requirements;
use crate::ids::RunnerId;

fn two_jobs() -> (World, RunnerId) {
    let mut world = World::with(&Plan::new([job("a"), job("b")]));
    let id = world.register(&runner("one"));
    (world, id)
}

#[test]
fn a_lease_has_everything_that_is_needed_to_start() {
    let (mut world, id) = two_jobs();
    let answer = world.sync(id, &ask(1, 8));
    assert_eq!(answer.sequence, 1);
    assert_eq!(answer.lease_ms, 120_000);
    assert_eq!(answer.profiles.len(), 1, "what leases have in common is said once");
    let profile = &answer.profiles[0];
    assert_eq!((profile.workflow_name.as_str(), profile.working_dir.as_str()), ("w", "/here"));
    assert_eq!((profile.resources.cpus, profile.resources.memory_bytes, profile.runtime_seconds), (1, 1 << 30, 60));
    let names: Vec<&str> = answer.leases.iter().map(|lease| lease.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(answer.leases[0].command, "run 0");
    assert_eq!(answer.leases[0].key, world.key("a"));
    assert_eq!(world.states(&["a", "b"]), [JobState::Leased; 2]);
}

#[test]
fn leases_come_by_priority_then_by_the_path_below_and_say_both() {
    let plan = Plan::new([
        job("leaf"),
        job("urgent").priority(5),
        job("root"),
        job("middle").after(&["root"]),
        job("end").after(&["middle"]).needs(Requirements { runtime_seconds: 600, ..needs(1, 0, 1) }),
    ]);
    let mut world = World::with(&plan);
    let id = world.register(&runner("one"));
    let expected = [("urgent", 5, 0), ("root", 0, 660), ("leaf", 0, 0)];
    let leases = world.sync(id, &ask(1, 8)).leases;
    let order = leases.iter().map(|lease| (lease.name.as_str(), lease.priority, lease.downstream_seconds));
    assert_eq!(order.collect::<Vec<_>>(), expected);
    // The path is computed again from what is stored.
    world.restart();
    let finished = vec![success(world.key("root"))];
    let queued = vec![world.key("urgent"), world.key("leaf")];
    let leases = world.sync(id, &SyncRequest { finished, queued, ..ask(2, 8) }).leases;
    assert_eq!((leases[0].name.as_str(), leases[0].downstream_seconds), ("middle", 600));
}

#[test]
fn a_repeated_message_is_given_no_second_helping() {
    let (mut world, id) = two_jobs();
    assert_eq!(world.sync(id, &ask(1, 1)).leases.len(), 1);
    let again = world.try_sync(id, &ask(1, 1)).unwrap();
    assert_eq!(again.response.leases, []);
    assert!(!again.may_wait);
    assert_eq!(world.states(&["a", "b"]), [JobState::Leased, JobState::Ready]);
}

#[test]
fn an_acknowledged_lease_that_is_not_named_returns() {
    let (mut world, id) = two_jobs();
    world.sync(id, &ask(1, 2));
    let [a, b] = ["a", "b"].map(|name| world.key(name));
    // The answer to 1 may not have arrived: no lease is abandoned.
    world.sync(id, &SyncRequest { acknowledged: 0, ..say(2) });
    assert_eq!(world.states(&["a", "b"]), [JobState::Leased; 2]);
    // The answer has arrived, and the runner names only one of its leases.
    world.sync(id, &SyncRequest { queued: vec![a], acknowledged: 1, ..say(3) });
    assert_eq!(world.states(&["a", "b"]), [JobState::Leased, JobState::Ready]);
    assert_eq!(world.key("b"), b, "an untouched lease uses no attempt up");
}

#[test]
fn a_returned_lease_is_free_and_a_foreign_one_is_ignored() {
    let (mut world, id) = two_jobs();
    world.sync(id, &ask(1, 1));
    let key = world.key("a");
    let other = world.register(&runner("two"));
    world.sync(other, &SyncRequest { returned: vec![key], ..say(1) });
    assert_eq!(world.state_of("a"), JobState::Leased);
    world.sync(id, &SyncRequest { returned: vec![key], ..say(2) });
    assert_eq!(world.state_of("a"), JobState::Ready);
    assert_eq!(world.job("a").attempt, 1);
}

#[test]
fn an_expired_lease_is_adopted_unless_another_runner_has_it() {
    let (mut world, _) = two_jobs();
    let id = world.register(&runner("one"));
    world.sync(id, &ask(1, 2));
    let [a, b] = ["a", "b"].map(|name| world.key(name));
    world.silence(121_000);
    let other = world.register(&runner("two"));
    let stolen = world.sync(other, &ask(1, 1)).leases[0].key;
    assert_eq!(stolen, AttemptKey { attempt: 2, lease_id: b.lease_id + 1, ..a }, "the first may have been started");
    let back = world.register(&runner("one"));
    let answer = world.sync(back, &SyncRequest { queued: vec![a, b], ..say(1) });
    assert_eq!(answer.cancel, [a]);
    assert_eq!(world.job("b").runner, Some(back));
    assert_eq!((world.state_of("b"), world.key("b")), (JobState::Leased, b));
}

#[test]
fn what_really_runs_wins_over_a_promise() {
    let (mut world, id) = two_jobs();
    world.sync(id, &ask(1, 1));
    let old = world.key("a");
    world.silence(121_000);
    let other = world.register(&runner("two"));
    world.sync(other, &ask(1, 1));
    let promised = world.key("a");
    let back = world.register(&runner("one"));
    let answer = world.sync(back, &SyncRequest { running: vec![running(old)], ..say(1) });
    assert_eq!(answer.cancel, []);
    let key = AttemptKey { attempt: 3, ..old };
    assert_eq!((world.state_of("a"), world.job("a").runner, world.key("a")), (JobState::Running, Some(back), key));
    let answer = world.sync(other, &SyncRequest { queued: vec![promised], ..say(2) });
    assert_eq!(answer.cancel, [promised]);
    // A later runner does not take over a running job.
    let answer = world.sync(other, &SyncRequest { running: vec![running(promised)], ..say(3) });
    assert_eq!(answer.cancel, [promised]);
    assert_eq!(world.job("a").runner, Some(back));
    // Attempt numbers that may have been used are not used again: 1 was started here, 2 may have been started there.
    let answer = world.sync(back, &SyncRequest { finished: vec![success(old)], ..say(2) });
    assert_eq!(answer.refused, []);
    let result = world.results_of("a")[0];
    assert_eq!((result.attempt, result.state), (3, JobState::Completed));
    assert_eq!(result.message.as_deref(), Some("started as attempt 1, marked as lost, and reported later"));
}

#[test]
fn a_successor_takes_over_the_leases_that_it_names() {
    let (mut world, id) = two_jobs();
    world.sync(id, &ask(1, 2));
    let [a, b] = ["a", "b"].map(|name| world.key(name));
    world.sync(id, &SyncRequest { running: vec![running(a), running(b)], ..say(2) });
    let next = world.register(&runner("one"));
    assert_eq!(world.try_sync(id, &say(3)), Err(CommandError::NoRunner(id)));
    assert_eq!(world.states(&["a", "b"]), [JobState::Running; 2]);
    assert_eq!([world.job("a").runner, world.job("b").runner], [Some(next); 2]);
    world.sync(next, &SyncRequest { running: vec![running(a)], ..say(1) });
    assert_eq!(world.states(&["a", "b"]), [JobState::Running, JobState::Ready]);
    assert_eq!(world.job("b").attempt, 2);
    assert_eq!(world.results_of("b")[0].return_code, -128);
    let answer = world.sync(next, &SyncRequest { finished: vec![success(a)], ..say(2) });
    assert_eq!(answer.refused, []);
    assert!(world.database.runners[&id].ended_ms.is_some());
}

#[test]
fn a_runner_elsewhere_or_without_a_place_takes_nothing_over() {
    let (mut world, id) = two_jobs();
    world.sync(id, &ask(1, 1));
    for (host, place) in [("one", ""), ("two", "one:/shim"), ("one", "elsewhere")] {
        let mut other = runner(host);
        other.place = place.to_owned();
        world.register(&other);
        assert_eq!(world.job("a").runner, Some(id));
    }
}

#[test]
fn a_leaving_runner_returns_queued_and_loses_started_jobs() {
    let (mut world, id) = two_jobs();
    world.sync(id, &ask(1, 2));
    let [a, b] = ["a", "b"].map(|name| world.key(name));
    let held = SyncRequest { running: vec![running(a)], queued: vec![b], want: ask(2, 4).want, ..say(2) };
    let answer = world.try_sync(id, &SyncRequest { leaving: true, ..held }).unwrap();
    assert_eq!(answer.response.leases, []);
    assert!(!answer.may_wait);
    assert_eq!(world.states(&["a", "b"]), [JobState::Ready; 2]);
    assert_eq!([world.job("a").attempt, world.job("b").attempt], [2, 1]);
    assert_eq!(world.try_sync(id, &say(3)), Err(CommandError::NoRunner(id)));
    assert!(world.reasons().contains(&"RunnerLeft"));
}

#[test]
fn an_overtaken_message_reports_its_ends_but_its_view_is_old() {
    let (mut world, id) = two_jobs();
    world.sync(id, &ask(1, 2));
    let [a, b] = ["a", "b"].map(|name| world.key(name));
    world.sync(id, &SyncRequest { running: vec![running(a), running(b)], ..say(3) });
    let overtaken = SyncRequest { finished: vec![success(a)], queued: vec![a, b], returned: vec![b], ..ask(2, 4) };
    let answer = world.try_sync(id, &overtaken).unwrap();
    assert_eq!((answer.response.leases.len(), answer.response.cancel.len(), answer.may_wait), (0, 0, false));
    assert_eq!(world.states(&["a", "b"]), [JobState::Completed, JobState::Running]);
}

#[test]
fn a_restarted_server_renews_its_leases() {
    let (mut world, id) = two_jobs();
    world.sync(id, &ask(1, 2));
    let [a, b] = ["a", "b"].map(|name| world.key(name));
    world.pass(119_000);
    world.restart();
    world.silence(119_000);
    assert_eq!(world.states(&["a", "b"]), [JobState::Leased; 2]);
    // The answer was lost with the server: leases that the runner does not name never arrived.
    world.sync(id, &SyncRequest { queued: vec![b], ..say(2) });
    assert_eq!(world.states(&["a", "b"]), [JobState::Ready, JobState::Leased]);
    world.open();
    world.sync(id, &SyncRequest { finished: vec![success(b)], ..say(3) });
    world.restart();
    assert_eq!(world.state_of("b"), JobState::Leased, "what was not written did not happen");
    let answer = world.sync(id, &SyncRequest { finished: vec![success(b), success(a)], ..say(3) });
    assert_eq!(answer.refused, []);
    assert_eq!(answer.directive, RunnerDirective::Complete);
}

#[test]
fn a_runner_waits_only_when_there_is_nothing_to_say() {
    let (mut world, id) = two_jobs();
    assert!(!world.try_sync(id, &ask(1, 8)).unwrap().may_wait, "there is work");
    let keys = ["a", "b"].map(|name| world.key(name));
    let hold = SyncRequest { queued: keys.to_vec(), ..ask(2, 8) };
    assert!(world.try_sync(id, &hold).unwrap().may_wait);
    let wake_version = world.engine.wake_version();
    let polled = world.run(|engine, tx| engine.poll(id, &hold, tx));
    assert_eq!(polled, None);
    world.apply(&Plan { name: "more".to_owned(), ..Plan::new([job("c")]) });
    assert!(world.engine.wake_version() > wake_version);
    let polled = world.run(|engine, tx| engine.poll(id, &hold, tx)).unwrap();
    assert_eq!((polled.sequence, polled.leases.len()), (2, 1));
    // A message that was overtaken while it waited is answered without work.
    world.try_sync(id, &SyncRequest { queued: keys.to_vec(), want: WorkRequest::default(), ..say(3) }).unwrap();
    let polled = world.run(|engine, tx| engine.poll(id, &hold, tx)).unwrap();
    assert_eq!(polled.leases, []);
    let reported = SyncRequest { queued: vec![keys[1]], finished: vec![success(keys[0])], ..say(4) };
    assert!(!world.try_sync(id, &reported).unwrap().may_wait, "a report is answered at once");
}

#[test]
fn another_protocol_is_refused() {
    let mut world = World::new();
    let mut request = runner("one");
    request.protocol = 99;
    let refused = world.run(|engine, tx| engine.register(&request, tx));
    assert_eq!(refused, Err(CommandError::Protocol(99)));
}

#[test]
fn a_runner_of_one_workflow_finds_it_in_its_namespace() {
    let mut world = World::new();
    let elsewhere =
        |name: &str| Plan { name: name.to_owned(), namespace: Some("lab".to_owned()), ..Plan::new([job("a")]) };
    world.apply(&Plan::new([job("here")]));
    world.apply(&elsewhere("w"));
    for (sequence, (scope, job)) in [("lab/w", "a"), ("w", "here")].into_iter().enumerate() {
        let mut one = runner(&format!("host{sequence}"));
        one.scope = RunnerScope::Workflow(scope.to_owned());
        let id = world.register(&one);
        let leases = world.sync(id, &ask(1, 8)).leases;
        assert_eq!(leases.iter().map(|lease| lease.name.as_str()).collect::<Vec<_>>(), [job], "{scope}");
    }
    let mut lost = runner("nowhere");
    lost.scope = RunnerScope::Workflow("other/w".to_owned());
    let id = world.register(&lost);
    assert_eq!(world.sync(id, &ask(1, 8)).directive, RunnerDirective::Continue);
}

/// A sync does not visit settled workflows, of which a store may have thousands.
#[test]
fn only_a_retry_makes_a_settled_workflow_live() {
    let mut world = World::with(&Plan::new([job("a")]));
    let id = world.register(&runner("one"));
    world.sync(id, &ask(1, 1));
    let answer = world.sync(id, &SyncRequest { finished: vec![success(world.key("a"))], ..say(2) });
    assert_eq!(answer.directive, RunnerDirective::Complete);
    assert!(world.engine.workflows.live().next().is_none());
    let workflow = world.workflow();
    world.run(|engine, tx| engine.retry(workflow, &crate::engine::Retry::All, tx)).unwrap();
    assert_eq!(world.sync(id, &ask(3, 1)).leases.len(), 1);
}

#[test]
fn a_state_that_was_read_again_goes_on_with_its_session() {
    let mut world = World::with(&Plan::new([job("a")]));
    let before = world.engine.session().clone();
    world.apply(&Plan { name: "gone".to_owned(), ..Plan::new([job("b")]) });
    let deleted = world.engine.find("default", "gone").unwrap();
    let both = world.engine.session().clone();
    world.run(|engine, tx| engine.delete(deleted, tx)).unwrap();
    world.restart();
    let mut here = runner("one");
    here.scope = RunnerScope::Session;
    let id = world.register(&here);
    assert_eq!(world.sync(id, &ask(1, 8)).leases, [], "another process runs what it was asked to run");
    world.engine.continue_session(&both);
    assert_eq!(*world.engine.session(), before, "what is gone is not taken along");
    assert_eq!(world.sync(id, &ask(2, 8)).leases.len(), 1);
}
