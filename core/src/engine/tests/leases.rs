//! Lease reconciliation: confirmed, revived, transferred and abandoned leases.

use torc_api::state::JobState;
use torc_api::wire::{AttemptKey, RunnerDirective, RunnerScope, SyncRequest, WorkRequest};

use super::harness::{EngineHarness, runner, running, success, sync_request, work_request};
use super::plan::{Plan, job, needs};
use crate::engine::CommandError;
use crate::expanded::Requirements;
use crate::ids::RunnerId;

fn two_jobs() -> (EngineHarness, RunnerId) {
    let mut harness = EngineHarness::with(&Plan::new([job("a"), job("b")]));
    let id = harness.register(&runner("one"));
    (harness, id)
}

#[test]
fn a_lease_has_everything_that_is_needed_to_start() {
    let (mut harness, id) = two_jobs();
    let answer = harness.sync(id, &work_request(1, 8));
    assert_eq!(answer.sequence, 1);
    assert_eq!(answer.lease_ms, 120_000);
    assert_eq!(answer.profiles.len(), 1, "what leases have in common is said once");
    let profile = &answer.profiles[0];
    assert_eq!((profile.workflow_name.as_str(), profile.working_dir.as_str()), ("w", "/here"));
    assert_eq!((profile.resources.cpus, profile.resources.memory_bytes, profile.runtime_seconds), (1, 1 << 30, 60));
    let names: Vec<&str> = answer.leases.iter().map(|lease| lease.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(answer.leases[0].command, "run 0");
    assert_eq!(answer.leases[0].key, harness.key("a"));
    assert_eq!(harness.states(&["a", "b"]), [JobState::Leased; 2]);
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
    let mut harness = EngineHarness::with(&plan);
    let id = harness.register(&runner("one"));
    let expected = [("urgent", 5, 0), ("root", 0, 660), ("leaf", 0, 0)];
    let leases = harness.sync(id, &work_request(1, 8)).leases;
    let order = leases.iter().map(|lease| (lease.name.as_str(), lease.priority, lease.downstream_seconds));
    assert_eq!(order.collect::<Vec<_>>(), expected);
    // The path is computed again from what is stored.
    harness.restart();
    let finished = vec![success(harness.key("root"))];
    let queued = vec![harness.key("urgent"), harness.key("leaf")];
    let leases = harness.sync(id, &SyncRequest { finished, queued, ..work_request(2, 8) }).leases;
    assert_eq!((leases[0].name.as_str(), leases[0].downstream_seconds), ("middle", 600));
}

#[test]
fn a_repeated_message_is_given_no_second_helping() {
    let (mut harness, id) = two_jobs();
    assert_eq!(harness.sync(id, &work_request(1, 1)).leases.len(), 1);
    let again = harness.try_sync(id, &work_request(1, 1)).unwrap();
    assert_eq!(again.response.leases, []);
    assert!(!again.may_wait);
    assert_eq!(harness.states(&["a", "b"]), [JobState::Leased, JobState::Ready]);
}

#[test]
fn an_acknowledged_lease_that_is_not_named_returns() {
    let (mut harness, id) = two_jobs();
    harness.sync(id, &work_request(1, 2));
    let [a, b] = ["a", "b"].map(|name| harness.key(name));
    // The answer to 1 may not have arrived: no lease is abandoned.
    harness.sync(id, &SyncRequest { acknowledged: 0, ..sync_request(2) });
    assert_eq!(harness.states(&["a", "b"]), [JobState::Leased; 2]);
    // The answer has arrived, and the runner names only one of its leases.
    harness.sync(id, &SyncRequest { queued: vec![a], acknowledged: 1, ..sync_request(3) });
    assert_eq!(harness.states(&["a", "b"]), [JobState::Leased, JobState::Ready]);
    assert_eq!(harness.key("b"), b, "an untouched lease uses no attempt up");
}

#[test]
fn a_returned_lease_is_free_and_a_foreign_one_is_ignored() {
    let (mut harness, id) = two_jobs();
    harness.sync(id, &work_request(1, 1));
    let key = harness.key("a");
    let other = harness.register(&runner("two"));
    harness.sync(other, &SyncRequest { returned: vec![key], ..sync_request(1) });
    assert_eq!(harness.state_of("a"), JobState::Leased);
    harness.sync(id, &SyncRequest { returned: vec![key], ..sync_request(2) });
    assert_eq!(harness.state_of("a"), JobState::Ready);
    assert_eq!(harness.job("a").attempt, 1);
}

#[test]
fn an_expired_lease_is_adopted_unless_another_runner_has_it() {
    let (mut harness, _) = two_jobs();
    let id = harness.register(&runner("one"));
    harness.sync(id, &work_request(1, 2));
    let [a, b] = ["a", "b"].map(|name| harness.key(name));
    harness.silence(121_000);
    let other = harness.register(&runner("two"));
    let stolen = harness.sync(other, &work_request(1, 1)).leases[0].key;
    assert_eq!(stolen, AttemptKey { attempt: 2, lease_id: b.lease_id + 1, ..a }, "the first may have been started");
    let back = harness.register(&runner("one"));
    let answer = harness.sync(back, &SyncRequest { queued: vec![a, b], ..sync_request(1) });
    assert_eq!(answer.cancel, [a]);
    assert_eq!(harness.job("b").runner, Some(back));
    assert_eq!((harness.state_of("b"), harness.key("b")), (JobState::Leased, b));
}

#[test]
fn what_really_runs_wins_over_a_promise() {
    let (mut harness, id) = two_jobs();
    harness.sync(id, &work_request(1, 1));
    let old = harness.key("a");
    harness.silence(121_000);
    let other = harness.register(&runner("two"));
    harness.sync(other, &work_request(1, 1));
    let promised = harness.key("a");
    let back = harness.register(&runner("one"));
    let answer = harness.sync(back, &SyncRequest { running: vec![running(old)], ..sync_request(1) });
    assert_eq!(answer.cancel, []);
    let key = AttemptKey { attempt: 3, ..old };
    assert_eq!(
        (harness.state_of("a"), harness.job("a").runner, harness.key("a")),
        (JobState::Running, Some(back), key)
    );
    let answer = harness.sync(other, &SyncRequest { queued: vec![promised], ..sync_request(2) });
    assert_eq!(answer.cancel, [promised]);
    // A later runner does not take over a running job.
    let answer = harness.sync(other, &SyncRequest { running: vec![running(promised)], ..sync_request(3) });
    assert_eq!(answer.cancel, [promised]);
    assert_eq!(harness.job("a").runner, Some(back));
    // Attempt numbers that may have been used are not used again: 1 was started here, 2 may have been started there.
    let answer = harness.sync(back, &SyncRequest { finished: vec![success(old)], ..sync_request(2) });
    assert_eq!(answer.refused, []);
    let result = harness.results_of("a")[0];
    assert_eq!((result.attempt, result.state), (3, JobState::Completed));
    assert_eq!(result.message.as_deref(), Some("started as attempt 1, marked as lost, and reported later"));
}

#[test]
fn a_successor_takes_over_the_leases_that_it_names() {
    let (mut harness, id) = two_jobs();
    harness.sync(id, &work_request(1, 2));
    let [a, b] = ["a", "b"].map(|name| harness.key(name));
    harness.sync(id, &SyncRequest { running: vec![running(a), running(b)], ..sync_request(2) });
    let next = harness.register(&runner("one"));
    assert_eq!(harness.try_sync(id, &sync_request(3)), Err(CommandError::NoRunner(id)));
    assert_eq!(harness.states(&["a", "b"]), [JobState::Running; 2]);
    assert_eq!([harness.job("a").runner, harness.job("b").runner], [Some(next); 2]);
    harness.sync(next, &SyncRequest { running: vec![running(a)], ..sync_request(1) });
    assert_eq!(harness.states(&["a", "b"]), [JobState::Running, JobState::Ready]);
    assert_eq!(harness.job("b").attempt, 2);
    assert_eq!(harness.results_of("b")[0].return_code, -128);
    let answer = harness.sync(next, &SyncRequest { finished: vec![success(a)], ..sync_request(2) });
    assert_eq!(answer.refused, []);
    assert!(harness.database.runners[&id].ended_ms.is_some());
}

#[test]
fn a_runner_elsewhere_or_without_a_place_takes_nothing_over() {
    let (mut harness, id) = two_jobs();
    harness.sync(id, &work_request(1, 1));
    for (host, place) in [("one", ""), ("two", "one:/shim"), ("one", "elsewhere")] {
        let mut other = runner(host);
        other.place = place.to_owned();
        harness.register(&other);
        assert_eq!(harness.job("a").runner, Some(id));
    }
}

#[test]
fn a_leaving_runner_returns_queued_and_loses_started_jobs() {
    let (mut harness, id) = two_jobs();
    harness.sync(id, &work_request(1, 2));
    let [a, b] = ["a", "b"].map(|name| harness.key(name));
    let held =
        SyncRequest { running: vec![running(a)], queued: vec![b], want: work_request(2, 4).want, ..sync_request(2) };
    let answer = harness.try_sync(id, &SyncRequest { leaving: true, ..held }).unwrap();
    assert_eq!(answer.response.leases, []);
    assert!(!answer.may_wait);
    assert_eq!(harness.states(&["a", "b"]), [JobState::Ready; 2]);
    assert_eq!([harness.job("a").attempt, harness.job("b").attempt], [2, 1]);
    assert_eq!(harness.try_sync(id, &sync_request(3)), Err(CommandError::NoRunner(id)));
    assert!(harness.reasons().contains(&"RunnerLeft"));
}

#[test]
fn an_overtaken_message_reports_its_ends_but_its_view_is_old() {
    let (mut harness, id) = two_jobs();
    harness.sync(id, &work_request(1, 2));
    let [a, b] = ["a", "b"].map(|name| harness.key(name));
    harness.sync(id, &SyncRequest { running: vec![running(a), running(b)], ..sync_request(3) });
    let overtaken =
        SyncRequest { finished: vec![success(a)], queued: vec![a, b], returned: vec![b], ..work_request(2, 4) };
    let answer = harness.try_sync(id, &overtaken).unwrap();
    assert_eq!((answer.response.leases.len(), answer.response.cancel.len(), answer.may_wait), (0, 0, false));
    assert_eq!(harness.states(&["a", "b"]), [JobState::Completed, JobState::Running]);
}

#[test]
fn a_restarted_server_renews_its_leases() {
    let (mut harness, id) = two_jobs();
    harness.sync(id, &work_request(1, 2));
    let [a, b] = ["a", "b"].map(|name| harness.key(name));
    harness.pass(119_000);
    harness.restart();
    harness.silence(119_000);
    assert_eq!(harness.states(&["a", "b"]), [JobState::Leased; 2]);
    // The answer was lost with the server: leases that the runner does not name never arrived.
    harness.sync(id, &SyncRequest { queued: vec![b], ..sync_request(2) });
    assert_eq!(harness.states(&["a", "b"]), [JobState::Ready, JobState::Leased]);
    harness.open();
    harness.sync(id, &SyncRequest { finished: vec![success(b)], ..sync_request(3) });
    harness.restart();
    assert_eq!(harness.state_of("b"), JobState::Leased, "what was not written did not happen");
    let answer = harness.sync(id, &SyncRequest { finished: vec![success(b), success(a)], ..sync_request(3) });
    assert_eq!(answer.refused, []);
    assert_eq!(answer.directive, RunnerDirective::Complete);
}

#[test]
fn a_runner_waits_only_when_there_is_nothing_to_say() {
    let (mut harness, id) = two_jobs();
    assert!(!harness.try_sync(id, &work_request(1, 8)).unwrap().may_wait, "there is work");
    let keys = ["a", "b"].map(|name| harness.key(name));
    let hold = SyncRequest { queued: keys.to_vec(), ..work_request(2, 8) };
    assert!(harness.try_sync(id, &hold).unwrap().may_wait);
    let wake_version = harness.engine.wake_version();
    let polled = harness.run(|engine, tx| engine.poll(id, &hold, tx));
    assert_eq!(polled, None);
    harness.apply(&Plan { name: "more".to_owned(), ..Plan::new([job("c")]) });
    assert!(harness.engine.wake_version() > wake_version);
    let polled = harness.run(|engine, tx| engine.poll(id, &hold, tx)).unwrap();
    assert_eq!((polled.sequence, polled.leases.len()), (2, 1));
    // A message that was overtaken while it waited is answered without work.
    harness
        .try_sync(id, &SyncRequest { queued: keys.to_vec(), want: WorkRequest::default(), ..sync_request(3) })
        .unwrap();
    let polled = harness.run(|engine, tx| engine.poll(id, &hold, tx)).unwrap();
    assert_eq!(polled.leases, []);
    let reported = SyncRequest { queued: vec![keys[1]], finished: vec![success(keys[0])], ..sync_request(4) };
    assert!(!harness.try_sync(id, &reported).unwrap().may_wait, "a report is answered at once");
}

#[test]
fn another_protocol_is_refused() {
    let mut harness = EngineHarness::new();
    let mut request = runner("one");
    request.protocol = 99;
    let refused = harness.run(|engine, tx| engine.register(&request, tx));
    assert_eq!(refused, Err(CommandError::Protocol(99)));
}

#[test]
fn a_runner_of_one_workflow_finds_it_in_its_namespace() {
    let mut harness = EngineHarness::new();
    let elsewhere =
        |name: &str| Plan { name: name.to_owned(), namespace: Some("lab".to_owned()), ..Plan::new([job("a")]) };
    harness.apply(&Plan::new([job("here")]));
    harness.apply(&elsewhere("w"));
    for (sequence, (scope, job)) in [("lab/w", "a"), ("w", "here")].into_iter().enumerate() {
        let mut one = runner(&format!("host{sequence}"));
        one.scope = RunnerScope::Workflow(scope.to_owned());
        let id = harness.register(&one);
        let leases = harness.sync(id, &work_request(1, 8)).leases;
        assert_eq!(leases.iter().map(|lease| lease.name.as_str()).collect::<Vec<_>>(), [job], "{scope}");
    }
    let mut lost = runner("nowhere");
    lost.scope = RunnerScope::Workflow("other/w".to_owned());
    let id = harness.register(&lost);
    assert_eq!(harness.sync(id, &work_request(1, 8)).directive, RunnerDirective::Continue);
}

/// A sync does not visit settled workflows, of which a store may have thousands.
#[test]
fn only_a_retry_makes_a_settled_workflow_live() {
    let mut harness = EngineHarness::with(&Plan::new([job("a")]));
    let id = harness.register(&runner("one"));
    harness.sync(id, &work_request(1, 1));
    let answer = harness.sync(id, &SyncRequest { finished: vec![success(harness.key("a"))], ..sync_request(2) });
    assert_eq!(answer.directive, RunnerDirective::Complete);
    assert!(harness.engine.workflows.live().next().is_none());
    let workflow = harness.workflow();
    harness.run(|engine, tx| engine.retry(workflow, &crate::engine::Retry::All, tx)).unwrap();
    assert_eq!(harness.sync(id, &work_request(3, 1)).leases.len(), 1);
}

#[test]
fn a_state_that_was_read_again_goes_on_with_its_session() {
    let mut harness = EngineHarness::with(&Plan::new([job("a")]));
    let before = harness.engine.session().clone();
    harness.apply(&Plan { name: "gone".to_owned(), ..Plan::new([job("b")]) });
    let deleted = harness.engine.find("default", "gone").unwrap();
    let both = harness.engine.session().clone();
    harness.run(|engine, tx| engine.delete(deleted, tx)).unwrap();
    harness.restart();
    let mut here = runner("one");
    here.scope = RunnerScope::Session;
    let id = harness.register(&here);
    assert_eq!(harness.sync(id, &work_request(1, 8)).leases, [], "another process runs what it was asked to run");
    harness.engine.continue_session(&both);
    assert_eq!(*harness.engine.session(), before, "what is gone is not taken along");
    assert_eq!(harness.sync(id, &work_request(2, 8)).leases.len(), 1);
}
