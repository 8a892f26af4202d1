//! Superseded leases: revoked ones that have not ended, and expired ones.

use torc_api::state::{Cause, JobState};
use torc_api::wire::{AttemptKey, SyncRequest};

use super::plan::{Plan, job};
use super::world::{World, ask, failure, runner, running, say, success};
use crate::engine::Retry;
use crate::ids::{JobId, RunnerId};

/// `a` runs, `b` waits in the runner; `c` depends on `a`.
fn busy() -> (World, Plan, RunnerId) {
    let plan = Plan::new([job("a"), job("b"), job("c").after(&["a"])]);
    let mut world = World::with(&plan);
    let id = world.register(&runner("one"));
    world.sync(id, &ask(1, 2));
    let [a, b] = ["a", "b"].map(|name| world.key(name));
    world.sync(id, &SyncRequest { running: vec![running(a)], queued: vec![b], ..say(2) });
    (world, plan, id)
}

fn edited(plan: Plan) -> Plan {
    plan.edit("a", |job| job.version += 1).edit("b", |job| job.version += 1)
}

#[test]
fn a_changed_job_waits_for_the_end_of_its_earlier_attempt() {
    let (mut world, plan, id) = busy();
    let [a, b] = ["a", "b"].map(|name| world.key(name));
    let other = world.register(&runner("two"));
    world.apply(&edited(plan));
    assert_eq!(world.states(&["a", "b", "c"]), [JobState::Blocked; 3]);
    assert_eq!(world.sync(other, &ask(1, 8)).leases, []);
    // Every answer repeats it until it is done, also after a restart of the server.
    for sequence in [3, 4] {
        let answer = world.sync(id, &SyncRequest { running: vec![running(a)], queued: vec![b], ..ask(sequence, 8) });
        assert_eq!((answer.cancel, answer.leases.len()), (vec![a, b], 0));
        world.restart();
    }
    let wake_version = world.engine.wake_version();
    let answer = world.sync(id, &SyncRequest { running: vec![running(a)], returned: vec![b], ..say(5) });
    assert_eq!(answer.cancel, [a]);
    assert_eq!(world.states(&["a", "b"]), [JobState::Blocked, JobState::Ready], "b was given back");
    assert!(world.engine.wake_version() > wake_version, "who waits for work is told");
    assert_eq!(world.sync(other, &ask(2, 8)).leases[0].key, AttemptKey { attempt: 2, lease_id: 3, ..b });
    let end = SyncRequest { finished: vec![failure(a, 143, Cause::Canceled)], ..ask(6, 8) };
    let answer = world.sync(id, &end);
    assert_eq!((answer.refused.len(), answer.leases[0].key.attempt), (0, 2), "the same answer brings the next attempt");
    let result = world.results_of("a")[0];
    assert_eq!((result.attempt, result.state, result.return_code), (1, JobState::Canceled, 143));
    assert_eq!((result.cause, result.runner), (Some(Cause::Canceled), Some(id)));
    assert!(world.database.detached_leases.is_empty());
}

/// The definition of the job is outdated, so the result is recorded as canceled and has no consequences.
#[test]
fn success_of_a_revoked_attempt_does_not_count() {
    let (mut world, plan, id) = busy();
    let a = world.key("a");
    world.apply(&edited(plan));
    let answer = world.sync(id, &SyncRequest { finished: vec![success(a)], ..say(3) });
    assert_eq!(answer.refused, []);
    assert_eq!(world.states(&["a", "c"]), [JobState::Ready, JobState::Blocked]);
    let result = world.results_of("a")[0];
    assert_eq!((result.state, result.cause, result.return_code), (JobState::Canceled, Some(Cause::Canceled), 0));
    assert_eq!(result.message.as_deref(), Some("canceled by a later command"));
    // A repeated report is written once.
    assert_eq!(world.sync(id, &SyncRequest { finished: vec![success(a)], ..say(4) }).refused, [a]);
    assert_eq!(world.results_of("a").len(), 1);
}

#[test]
fn a_revoked_lease_ends_when_its_runner_is_gone_or_silent() {
    type How = fn(&mut World, RunnerId);
    let ways: [(&str, How); 4] = [
        ("its runner has terminated it", |world, id| drop(world.sync(id, &say(3)))),
        ("its runner has left", |world, id| {
            drop(world.sync(id, &SyncRequest { leaving: true, acknowledged: 0, ..say(3) }))
        }),
        ("its runner became silent before it ended the attempt", |world, _| world.silence(120_001)),
        ("its runner has terminated it", |world, _| {
            let successor = world.register(&runner("one"));
            world.sync(successor, &say(1));
        }),
    ];
    for (why, how) in ways {
        let (mut world, plan, id) = busy();
        world.apply(&edited(plan));
        world.silence(119_000);
        assert_eq!(world.states(&["a", "b"]), [JobState::Blocked; 2]);
        how(&mut world, id);
        assert_eq!(world.states(&["a", "b"]), [JobState::Ready; 2], "{why}");
        let result = world.results_of("a")[0];
        assert_eq!(
            (result.state, result.return_code, result.message.as_deref()),
            (JobState::Canceled, -128, Some(why))
        );
        assert!(world.results_of("b").is_empty(), "it had not started");
        assert!(world.database.detached_leases.is_empty());
    }
}

#[test]
fn a_lease_whose_answer_is_on_its_way_is_waited_for() {
    let plan = Plan::new([job("a")]);
    let mut world = World::with(&plan);
    let id = world.register(&runner("one"));
    world.sync(id, &ask(1, 1));
    let key = world.key("a");
    world.apply(&plan.edit("a", |job| job.version = 1));
    // This message was written before the answer to 1 arrived.
    world.sync(id, &SyncRequest { acknowledged: 0, ..say(2) });
    assert_eq!(world.state_of("a"), JobState::Blocked);
    let answer = world.sync(id, &SyncRequest { running: vec![running(key)], ..say(3) });
    assert_eq!(answer.cancel, [key]);
    world.sync(id, &SyncRequest { finished: vec![failure(key, 143, Cause::Canceled)], ..say(4) });
    assert_eq!((world.state_of("a"), world.results_of("a").len()), (JobState::Ready, 1));
}

#[test]
fn edits_retries_and_cancellations_keep_the_wait() {
    let (mut world, plan, id) = busy();
    let a = world.key("a");
    let workflow = world.workflow();
    let plan = edited(plan);
    world.apply(&plan);
    world.apply(&plan.clone().edit("a", |job| job.version += 1));
    world.run(|engine, tx| engine.cancel(workflow, tx)).unwrap();
    assert_eq!(world.state_of("a"), JobState::Canceled);
    world.run(|engine, tx| engine.retry(workflow, &Retry::All, tx)).unwrap();
    assert_eq!((world.state_of("a"), world.job("a").run), (JobState::Blocked, 2));
    world.sync(id, &SyncRequest { finished: vec![failure(a, 143, Cause::Canceled)], ..say(3) });
    assert_eq!(world.states(&["a", "b", "c"]), [JobState::Ready, JobState::Ready, JobState::Blocked]);
    assert_eq!((world.results_of("a")[0].run, world.results_of("a")[0].attempt), (1, 1));
}

#[test]
fn a_removed_job_and_a_deleted_workflow_have_nothing_that_waits() {
    let (mut world, plan, id) = busy();
    let a = world.key("a");
    world.apply(&edited(plan.clone()));
    assert_eq!(world.database.detached_leases.len(), 2);
    world.apply(&plan.without("a"));
    assert_eq!(world.database.detached_leases.len(), 1);
    let answer = world.sync(id, &SyncRequest { running: vec![running(a)], ..say(3) });
    assert_eq!(answer.cancel, [a], "it is told all the same");
    let (mut world, plan, _) = busy();
    world.apply(&edited(plan));
    let workflow = world.workflow();
    world.run(|engine, tx| engine.delete(workflow, tx)).unwrap();
    assert!(world.database.detached_leases.is_empty());
}

/// A canceled lease may have started before its runner received the cancellation.
#[test]
fn the_result_of_a_canceled_lease_is_recorded() {
    let (mut world, _, id) = busy();
    let b = world.key("b");
    let workflow = world.workflow();
    world.run(|engine, tx| engine.cancel(workflow, tx)).unwrap();
    assert_eq!(world.state_of("b"), JobState::Canceled);
    let answer = world.sync(id, &SyncRequest { finished: vec![failure(b, 143, Cause::Canceled)], ..say(3) });
    assert_eq!(answer.refused, []);
    assert_eq!((world.results_of("b").len(), world.results_of("b")[0].state), (1, JobState::Canceled));
}

/// Returns a world in which `a` is lost after a long silence. Its next attempt is ready, leased or running.
fn lost(promised: bool, started: bool) -> (World, AttemptKey, RunnerId) {
    let (mut world, _, _) = busy();
    let a = world.key("a");
    world.silence(3_600_001);
    assert_eq!((world.state_of("a"), world.job("a").attempt), (JobState::Ready, 2));
    let other = world.register(&runner("two"));
    if promised {
        let lease = world.sync(other, &ask(1, 1)).leases[0].key;
        assert_eq!((lease.job, lease.attempt), (a.job, 2));
        if started {
            world.sync(other, &SyncRequest { running: vec![running(lease)], ..say(2) });
        }
    }
    (world, a, other)
}

#[test]
fn late_result_counts_until_a_newer_attempt_starts() {
    for (promised, attempt) in [(false, 2), (true, 3)] {
        let (mut world, late, other) = lost(promised, false);
        let promise = world.key("a");
        world.restart();
        let back = world.register(&runner("one"));
        let answer = world.sync(back, &SyncRequest { finished: vec![success(late)], ..say(1) });
        assert_eq!(answer.refused, []);
        assert_eq!(world.states(&["a", "c"]), [JobState::Completed, JobState::Ready]);
        let results: Vec<_> = world.results_of("a").into_iter().map(|row| (row.attempt, row.cause)).collect();
        assert_eq!(results, [(1, Some(Cause::Lost)), (attempt, None)], "what was written stays");
        let message = world.results_of("a")[1].message.as_deref();
        assert_eq!(message, Some("started as attempt 1, marked as lost, and reported later"));
        if promised {
            let answer = world.sync(other, &SyncRequest { queued: vec![promise], ..say(2) });
            assert_eq!(answer.cancel, [promise], "the promise is taken back");
            world.sync(other, &SyncRequest { returned: vec![promise], ..say(3) });
        }
        let again = world.sync(back, &SyncRequest { finished: vec![success(late)], ..say(2) });
        assert_eq!(again.refused, [], "it is known");
        assert_eq!(world.results_of("a").len(), 2);
        assert!(world.database.detached_leases.values().all(|lease| lease.job.0 != late.job));
    }
    let (mut world, late, _) = lost(true, true);
    let back = world.register(&runner("one"));
    let answer = world.sync(back, &SyncRequest { finished: vec![success(late)], ..say(1) });
    assert_eq!(answer.refused, [late]);
    assert_eq!(world.state_of("a"), JobState::Running);
}

#[test]
fn a_lost_attempt_is_adopted_before_the_next_one_starts() {
    let (mut world, late, _) = lost(false, false);
    let back = world.register(&runner("one"));
    let answer = world.sync(back, &SyncRequest { running: vec![running(late)], ..say(1) });
    assert_eq!(answer.cancel, []);
    assert_eq!((world.state_of("a"), world.job("a").attempt), (JobState::Running, 2));
    world.restart();
    let answer = world.sync(back, &SyncRequest { running: vec![running(late)], ..say(2) });
    assert_eq!(answer.cancel, []);
    world.sync(back, &SyncRequest { finished: vec![success(late)], ..say(3) });
    assert_eq!((world.state_of("a"), world.results_of("a")[1].attempt), (JobState::Completed, 2));
}

/// The next attempt may have started on a runner that has not reported yet.
#[test]
fn a_late_failure_waits_for_the_promise_that_it_took_back() {
    let (mut world, late, other) = lost(true, false);
    let promise = world.key("a");
    let back = world.register(&runner("one"));
    world.sync(back, &SyncRequest { finished: vec![failure(late, -128, Cause::NodeFailure)], ..say(1) });
    assert_eq!((world.state_of("a"), world.job("a").attempt), (JobState::Blocked, 4));
    world.sync(other, &SyncRequest { finished: vec![failure(promise, 143, Cause::Canceled)], ..say(2) });
    assert_eq!(world.state_of("a"), JobState::Ready);
    let attempts: Vec<_> = world.results_of("a").into_iter().map(|row| (row.attempt, row.cause.unwrap())).collect();
    assert_eq!(attempts, [(1, Cause::Lost), (3, Cause::NodeFailure), (2, Cause::Canceled)]);
}

#[test]
fn what_was_lost_before_an_edit_does_not_count_after_it() {
    let (mut world, plan, _) = busy();
    let a = world.key("a");
    world.silence(3_600_001);
    world.apply(&edited(plan));
    let back = world.register(&runner("one"));
    let report = SyncRequest { finished: vec![success(a)], ..say(1) };
    assert_eq!(world.sync(back, &report).refused, [a]);
    assert_eq!(world.state_of("a"), JobState::Ready);
}

#[test]
fn an_attempt_number_is_reused_only_after_its_runner_confirms() {
    type How = fn(&mut World, RunnerId, AttemptKey) -> RunnerId;
    let ways: [(&str, How, i32); 7] = [
        (
            "given back",
            |world, id, key| {
                world.sync(id, &SyncRequest { returned: vec![key], ..say(2) });
                id
            },
            1,
        ),
        (
            "not named",
            |world, id, _| {
                world.sync(id, &say(2));
                id
            },
            1,
        ),
        (
            "left with it waiting",
            |world, id, key| {
                world.sync(id, &SyncRequest { queued: vec![key], leaving: true, ..say(2) });
                world.register(&runner("two"))
            },
            1,
        ),
        (
            "left without a word",
            |world, id, _| {
                world.sync(id, &SyncRequest { leaving: true, acknowledged: 0, ..say(2) });
                world.register(&runner("two"))
            },
            2,
        ),
        (
            "silent",
            |world, _, _| {
                world.silence(120_001);
                world.register(&runner("two"))
            },
            2,
        ),
        // Only the agent died: its shim reports started jobs to the next agent.
        (
            "taken over",
            |world, _, _| {
                let id = world.register(&runner("one"));
                world.sync(id, &SyncRequest { shim_found: true, ..say(1) });
                id
            },
            1,
        ),
        // Agent and shim died together: their successor does not know what they started.
        (
            "succeeded",
            |world, _, _| {
                let id = world.register(&runner("one"));
                world.sync(id, &say(1));
                id
            },
            2,
        ),
    ];
    for (way, how, attempt) in ways {
        let mut world = World::with(&Plan::new([job("a")]));
        let id = world.register(&runner("one"));
        world.sync(id, &ask(1, 1));
        let key = world.key("a");
        let next = how(&mut world, id, key);
        assert_eq!(world.state_of("a"), JobState::Ready, "{way}");
        world.restart();
        let lease = world.sync(next, &ask(9, 1)).leases[0].key;
        assert_eq!(lease.attempt, attempt, "{way}");
        assert!(world.results_of("a").is_empty(), "{way}: what never ran has no result");
    }
}

#[test]
fn a_number_that_was_skipped_uses_no_retry_up() {
    let never =
        torc_api::failure::Recovery { policy: Some(torc_api::failure::RecoveryPolicy::Never), ..Default::default() };
    let mut world = World::with(&Plan::new([job("a")]).with(|spec| spec.recovery = Some(never)));
    for attempt in 1..=5 {
        let id = world.register(&runner("one"));
        world.sync(id, &say(1));
        let lease = world.sync(id, &ask(2, 1)).leases[0].key;
        assert_eq!(lease.attempt, attempt);
    }
    let key = world.key("a");
    let id = world.job("a").runner.unwrap();
    world.sync(id, &SyncRequest { finished: vec![success(key)], ..say(3) });
    assert_eq!(world.state_of("a"), JobState::Completed);
    assert_eq!(world.database.result((JobId(key.job), 1, 5)).unwrap().state, JobState::Completed);
}

#[test]
fn a_late_success_undoes_a_failure_that_was_only_a_loss() {
    let never =
        torc_api::failure::Recovery { policy: Some(torc_api::failure::RecoveryPolicy::Never), ..Default::default() };
    for succeeds in [true, false] {
        let plan = Plan::new([job("a"), job("b").after(&["a"]), job("c").after(&["a"]).runs_after_failures()]);
        let mut world = World::with(&plan.with(|spec| spec.recovery = Some(never.clone())));
        let id = world.register(&runner("one"));
        world.sync(id, &ask(1, 1));
        let late = world.key("a");
        world.sync(id, &SyncRequest { running: vec![running(late)], ..say(2) });
        world.silence(3_600_001);
        assert_eq!(world.states(&["a", "b", "c"]), [JobState::Failed, JobState::Canceled, JobState::Ready]);
        world.restart();
        let back = world.register(&runner("one"));
        let report = if succeeds { success(late) } else { failure(late, 1, Cause::ExitCode) };
        let answer = world.sync(back, &SyncRequest { finished: vec![report], ..say(1) });
        if succeeds {
            assert_eq!(answer.refused, []);
            assert_eq!(world.states(&["a", "b", "c"]), [JobState::Completed, JobState::Ready, JobState::Ready]);
            let results: Vec<_> = world.results_of("a").into_iter().map(|row| (row.attempt, row.cause)).collect();
            assert_eq!(results, [(1, Some(Cause::Lost)), (2, None)]);
        } else {
            assert_eq!(answer.refused, [late]);
            assert!(world.reasons().contains(&"ResultRefused"));
            assert_eq!(world.states(&["a", "b", "c"]), [JobState::Failed, JobState::Canceled, JobState::Ready]);
        }
    }
}
