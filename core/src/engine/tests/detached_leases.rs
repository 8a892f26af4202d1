//! Superseded leases: revoked ones that have not ended, and expired ones.

use torc_api::state::{Cause, JobState};
use torc_api::wire::{AttemptKey, SyncRequest};

use super::harness::{EngineHarness, failure, runner, running, success, sync_request, work_request};
use super::plan::{Plan, job};
use crate::engine::Retry;
use crate::ids::{JobId, RunnerId};

/// `a` runs, `b` waits in the runner; `c` depends on `a`.
fn busy() -> (EngineHarness, Plan, RunnerId) {
    let plan = Plan::new([job("a"), job("b"), job("c").after(&["a"])]);
    let mut harness = EngineHarness::with(&plan);
    let id = harness.register(&runner("one"));
    harness.sync(id, &work_request(1, 2));
    let [a, b] = ["a", "b"].map(|name| harness.key(name));
    harness.sync(id, &SyncRequest { running: vec![running(a)], queued: vec![b], ..sync_request(2) });
    (harness, plan, id)
}

fn edited(plan: Plan) -> Plan {
    plan.edit("a", |job| job.version += 1).edit("b", |job| job.version += 1)
}

#[test]
fn a_changed_job_waits_for_the_end_of_its_earlier_attempt() {
    let (mut harness, plan, id) = busy();
    let [a, b] = ["a", "b"].map(|name| harness.key(name));
    let other = harness.register(&runner("two"));
    harness.apply(&edited(plan));
    assert_eq!(harness.states(&["a", "b", "c"]), [JobState::Blocked; 3]);
    assert_eq!(harness.sync(other, &work_request(1, 8)).leases, []);
    // Every answer repeats it until it is done, also after a restart of the server.
    for sequence in [3, 4] {
        let answer =
            harness.sync(id, &SyncRequest { running: vec![running(a)], queued: vec![b], ..work_request(sequence, 8) });
        assert_eq!((answer.cancel, answer.leases.len()), (vec![a, b], 0));
        harness.restart();
    }
    let wake_version = harness.engine.wake_version();
    let answer = harness.sync(id, &SyncRequest { running: vec![running(a)], returned: vec![b], ..sync_request(5) });
    assert_eq!(answer.cancel, [a]);
    assert_eq!(harness.states(&["a", "b"]), [JobState::Blocked, JobState::Ready], "b was given back");
    assert!(harness.engine.wake_version() > wake_version, "who waits for work is told");
    assert_eq!(harness.sync(other, &work_request(2, 8)).leases[0].key, AttemptKey { attempt: 2, lease_id: 3, ..b });
    let end = SyncRequest { finished: vec![failure(a, 143, Cause::Canceled)], ..work_request(6, 8) };
    let answer = harness.sync(id, &end);
    assert_eq!((answer.refused.len(), answer.leases[0].key.attempt), (0, 2), "the same answer brings the next attempt");
    let result = harness.results_of("a")[0];
    assert_eq!((result.attempt, result.state, result.return_code), (1, JobState::Canceled, 143));
    assert_eq!((result.cause, result.runner), (Some(Cause::Canceled), Some(id)));
    assert!(harness.database.detached_leases.is_empty());
}

/// The definition of the job is outdated, so the result is recorded as canceled and has no consequences.
#[test]
fn success_of_a_revoked_attempt_does_not_count() {
    let (mut harness, plan, id) = busy();
    let a = harness.key("a");
    harness.apply(&edited(plan));
    let answer = harness.sync(id, &SyncRequest { finished: vec![success(a)], ..sync_request(3) });
    assert_eq!(answer.refused, []);
    assert_eq!(harness.states(&["a", "c"]), [JobState::Ready, JobState::Blocked]);
    let result = harness.results_of("a")[0];
    assert_eq!((result.state, result.cause, result.return_code), (JobState::Canceled, Some(Cause::Canceled), 0));
    assert_eq!(result.message.as_deref(), Some("canceled by a later command"));
    // A repeated report is written once.
    assert_eq!(harness.sync(id, &SyncRequest { finished: vec![success(a)], ..sync_request(4) }).refused, [a]);
    assert_eq!(harness.results_of("a").len(), 1);
}

#[test]
fn a_revoked_lease_ends_when_its_runner_is_gone_or_silent() {
    type How = fn(&mut EngineHarness, RunnerId);
    let ways: [(&str, How); 4] = [
        ("its runner has terminated it", |harness, id| drop(harness.sync(id, &sync_request(3)))),
        ("its runner has left", |harness, id| {
            drop(harness.sync(id, &SyncRequest { leaving: true, acknowledged: 0, ..sync_request(3) }))
        }),
        ("its runner became silent before it ended the attempt", |harness, _| harness.silence(120_001)),
        ("its runner has terminated it", |harness, _| {
            let successor = harness.register(&runner("one"));
            harness.sync(successor, &sync_request(1));
        }),
    ];
    for (why, how) in ways {
        let (mut harness, plan, id) = busy();
        harness.apply(&edited(plan));
        harness.silence(119_000);
        assert_eq!(harness.states(&["a", "b"]), [JobState::Blocked; 2]);
        how(&mut harness, id);
        assert_eq!(harness.states(&["a", "b"]), [JobState::Ready; 2], "{why}");
        let result = harness.results_of("a")[0];
        assert_eq!(
            (result.state, result.return_code, result.message.as_deref()),
            (JobState::Canceled, -128, Some(why))
        );
        assert!(harness.results_of("b").is_empty(), "it had not started");
        assert!(harness.database.detached_leases.is_empty());
    }
}

#[test]
fn a_lease_whose_answer_is_on_its_way_is_waited_for() {
    let plan = Plan::new([job("a")]);
    let mut harness = EngineHarness::with(&plan);
    let id = harness.register(&runner("one"));
    harness.sync(id, &work_request(1, 1));
    let key = harness.key("a");
    harness.apply(&plan.edit("a", |job| job.version = 1));
    // This message was written before the answer to 1 arrived.
    harness.sync(id, &SyncRequest { acknowledged: 0, ..sync_request(2) });
    assert_eq!(harness.state_of("a"), JobState::Blocked);
    let answer = harness.sync(id, &SyncRequest { running: vec![running(key)], ..sync_request(3) });
    assert_eq!(answer.cancel, [key]);
    harness.sync(id, &SyncRequest { finished: vec![failure(key, 143, Cause::Canceled)], ..sync_request(4) });
    assert_eq!((harness.state_of("a"), harness.results_of("a").len()), (JobState::Ready, 1));
}

#[test]
fn edits_retries_and_cancellations_keep_the_wait() {
    let (mut harness, plan, id) = busy();
    let a = harness.key("a");
    let workflow = harness.workflow();
    let plan = edited(plan);
    harness.apply(&plan);
    harness.apply(&plan.clone().edit("a", |job| job.version += 1));
    harness.run(|engine, tx| engine.cancel(workflow, tx)).unwrap();
    assert_eq!(harness.state_of("a"), JobState::Canceled);
    harness.run(|engine, tx| engine.retry(workflow, &Retry::All, tx)).unwrap();
    assert_eq!((harness.state_of("a"), harness.job("a").run), (JobState::Blocked, 2));
    harness.sync(id, &SyncRequest { finished: vec![failure(a, 143, Cause::Canceled)], ..sync_request(3) });
    assert_eq!(harness.states(&["a", "b", "c"]), [JobState::Ready, JobState::Ready, JobState::Blocked]);
    assert_eq!((harness.results_of("a")[0].run, harness.results_of("a")[0].attempt), (1, 1));
}

#[test]
fn a_removed_job_and_a_deleted_workflow_have_nothing_that_waits() {
    let (mut harness, plan, id) = busy();
    let a = harness.key("a");
    harness.apply(&edited(plan.clone()));
    assert_eq!(harness.database.detached_leases.len(), 2);
    harness.apply(&plan.without("a"));
    assert_eq!(harness.database.detached_leases.len(), 1);
    let answer = harness.sync(id, &SyncRequest { running: vec![running(a)], ..sync_request(3) });
    assert_eq!(answer.cancel, [a], "it is told all the same");
    let (mut harness, plan, _) = busy();
    harness.apply(&edited(plan));
    let workflow = harness.workflow();
    harness.run(|engine, tx| engine.delete(workflow, tx)).unwrap();
    assert!(harness.database.detached_leases.is_empty());
}

/// A canceled lease may have started before its runner received the cancellation.
#[test]
fn the_result_of_a_canceled_lease_is_recorded() {
    let (mut harness, _, id) = busy();
    let b = harness.key("b");
    let workflow = harness.workflow();
    harness.run(|engine, tx| engine.cancel(workflow, tx)).unwrap();
    assert_eq!(harness.state_of("b"), JobState::Canceled);
    let answer = harness.sync(id, &SyncRequest { finished: vec![failure(b, 143, Cause::Canceled)], ..sync_request(3) });
    assert_eq!(answer.refused, []);
    assert_eq!((harness.results_of("b").len(), harness.results_of("b")[0].state), (1, JobState::Canceled));
}

/// Returns a world in which `a` is lost after a long silence. Its next attempt is ready, leased or running.
fn lost(promised: bool, started: bool) -> (EngineHarness, AttemptKey, RunnerId) {
    let (mut harness, _, _) = busy();
    let a = harness.key("a");
    harness.silence(3_600_001);
    assert_eq!((harness.state_of("a"), harness.job("a").attempt), (JobState::Ready, 2));
    let other = harness.register(&runner("two"));
    if promised {
        let lease = harness.sync(other, &work_request(1, 1)).leases[0].key;
        assert_eq!((lease.job, lease.attempt), (a.job, 2));
        if started {
            harness.sync(other, &SyncRequest { running: vec![running(lease)], ..sync_request(2) });
        }
    }
    (harness, a, other)
}

#[test]
fn late_result_counts_until_a_newer_attempt_starts() {
    for (promised, attempt) in [(false, 2), (true, 3)] {
        let (mut harness, late, other) = lost(promised, false);
        let promise = harness.key("a");
        harness.restart();
        let back = harness.register(&runner("one"));
        let answer = harness.sync(back, &SyncRequest { finished: vec![success(late)], ..sync_request(1) });
        assert_eq!(answer.refused, []);
        assert_eq!(harness.states(&["a", "c"]), [JobState::Completed, JobState::Ready]);
        let results: Vec<_> = harness.results_of("a").into_iter().map(|row| (row.attempt, row.cause)).collect();
        assert_eq!(results, [(1, Some(Cause::Lost)), (attempt, None)], "what was written stays");
        let message = harness.results_of("a")[1].message.as_deref();
        assert_eq!(message, Some("started as attempt 1, marked as lost, and reported later"));
        if promised {
            let answer = harness.sync(other, &SyncRequest { queued: vec![promise], ..sync_request(2) });
            assert_eq!(answer.cancel, [promise], "the promise is taken back");
            harness.sync(other, &SyncRequest { returned: vec![promise], ..sync_request(3) });
        }
        let again = harness.sync(back, &SyncRequest { finished: vec![success(late)], ..sync_request(2) });
        assert_eq!(again.refused, [], "it is known");
        assert_eq!(harness.results_of("a").len(), 2);
        assert!(harness.database.detached_leases.values().all(|lease| lease.job.0 != late.job));
    }
    let (mut harness, late, _) = lost(true, true);
    let back = harness.register(&runner("one"));
    let answer = harness.sync(back, &SyncRequest { finished: vec![success(late)], ..sync_request(1) });
    assert_eq!(answer.refused, [late]);
    assert_eq!(harness.state_of("a"), JobState::Running);
}

#[test]
fn a_lost_attempt_is_adopted_before_the_next_one_starts() {
    let (mut harness, late, _) = lost(false, false);
    let back = harness.register(&runner("one"));
    let answer = harness.sync(back, &SyncRequest { running: vec![running(late)], ..sync_request(1) });
    assert_eq!(answer.cancel, []);
    assert_eq!((harness.state_of("a"), harness.job("a").attempt), (JobState::Running, 2));
    harness.restart();
    let answer = harness.sync(back, &SyncRequest { running: vec![running(late)], ..sync_request(2) });
    assert_eq!(answer.cancel, []);
    harness.sync(back, &SyncRequest { finished: vec![success(late)], ..sync_request(3) });
    assert_eq!((harness.state_of("a"), harness.results_of("a")[1].attempt), (JobState::Completed, 2));
}

/// The next attempt may have started on a runner that has not reported yet.
#[test]
fn a_late_failure_waits_for_the_promise_that_it_took_back() {
    let (mut harness, late, other) = lost(true, false);
    let promise = harness.key("a");
    let back = harness.register(&runner("one"));
    harness.sync(back, &SyncRequest { finished: vec![failure(late, -128, Cause::NodeFailure)], ..sync_request(1) });
    assert_eq!((harness.state_of("a"), harness.job("a").attempt), (JobState::Blocked, 4));
    harness.sync(other, &SyncRequest { finished: vec![failure(promise, 143, Cause::Canceled)], ..sync_request(2) });
    assert_eq!(harness.state_of("a"), JobState::Ready);
    let attempts: Vec<_> = harness.results_of("a").into_iter().map(|row| (row.attempt, row.cause.unwrap())).collect();
    assert_eq!(attempts, [(1, Cause::Lost), (3, Cause::NodeFailure), (2, Cause::Canceled)]);
}

#[test]
fn what_was_lost_before_an_edit_does_not_count_after_it() {
    let (mut harness, plan, _) = busy();
    let a = harness.key("a");
    harness.silence(3_600_001);
    harness.apply(&edited(plan));
    let back = harness.register(&runner("one"));
    let report = SyncRequest { finished: vec![success(a)], ..sync_request(1) };
    assert_eq!(harness.sync(back, &report).refused, [a]);
    assert_eq!(harness.state_of("a"), JobState::Ready);
}

#[test]
fn an_attempt_number_is_reused_only_after_its_runner_confirms() {
    type How = fn(&mut EngineHarness, RunnerId, AttemptKey) -> RunnerId;
    let ways: [(&str, How, i32); 7] = [
        (
            "given back",
            |harness, id, key| {
                harness.sync(id, &SyncRequest { returned: vec![key], ..sync_request(2) });
                id
            },
            1,
        ),
        (
            "not named",
            |harness, id, _| {
                harness.sync(id, &sync_request(2));
                id
            },
            1,
        ),
        (
            "left with it waiting",
            |harness, id, key| {
                harness.sync(id, &SyncRequest { queued: vec![key], leaving: true, ..sync_request(2) });
                harness.register(&runner("two"))
            },
            1,
        ),
        (
            "left without a word",
            |harness, id, _| {
                harness.sync(id, &SyncRequest { leaving: true, acknowledged: 0, ..sync_request(2) });
                harness.register(&runner("two"))
            },
            2,
        ),
        (
            "silent",
            |harness, _, _| {
                harness.silence(120_001);
                harness.register(&runner("two"))
            },
            2,
        ),
        // Only the agent died: its shim reports started jobs to the next agent.
        (
            "taken over",
            |harness, _, _| {
                let id = harness.register(&runner("one"));
                harness.sync(id, &SyncRequest { shim_found: true, ..sync_request(1) });
                id
            },
            1,
        ),
        // Agent and shim died together: their successor does not know what they started.
        (
            "succeeded",
            |harness, _, _| {
                let id = harness.register(&runner("one"));
                harness.sync(id, &sync_request(1));
                id
            },
            2,
        ),
    ];
    for (way, how, attempt) in ways {
        let mut harness = EngineHarness::with(&Plan::new([job("a")]));
        let id = harness.register(&runner("one"));
        harness.sync(id, &work_request(1, 1));
        let key = harness.key("a");
        let next = how(&mut harness, id, key);
        assert_eq!(harness.state_of("a"), JobState::Ready, "{way}");
        harness.restart();
        let lease = harness.sync(next, &work_request(9, 1)).leases[0].key;
        assert_eq!(lease.attempt, attempt, "{way}");
        assert!(harness.results_of("a").is_empty(), "{way}: what never ran has no result");
    }
}

#[test]
fn a_number_that_was_skipped_uses_no_retry_up() {
    let never =
        torc_api::failure::Recovery { policy: Some(torc_api::failure::RecoveryPolicy::Never), ..Default::default() };
    let mut harness = EngineHarness::with(&Plan::new([job("a")]).with(|spec| spec.recovery = Some(never)));
    for attempt in 1..=5 {
        let id = harness.register(&runner("one"));
        harness.sync(id, &sync_request(1));
        let lease = harness.sync(id, &work_request(2, 1)).leases[0].key;
        assert_eq!(lease.attempt, attempt);
    }
    let key = harness.key("a");
    let id = harness.job("a").runner.unwrap();
    harness.sync(id, &SyncRequest { finished: vec![success(key)], ..sync_request(3) });
    assert_eq!(harness.state_of("a"), JobState::Completed);
    assert_eq!(harness.database.result((JobId(key.job), 1, 5)).unwrap().state, JobState::Completed);
}

#[test]
fn a_late_success_undoes_a_failure_that_was_only_a_loss() {
    let never =
        torc_api::failure::Recovery { policy: Some(torc_api::failure::RecoveryPolicy::Never), ..Default::default() };
    for succeeds in [true, false] {
        let plan = Plan::new([job("a"), job("b").after(&["a"]), job("c").after(&["a"]).runs_after_failures()]);
        let mut harness = EngineHarness::with(&plan.with(|spec| spec.recovery = Some(never.clone())));
        let id = harness.register(&runner("one"));
        harness.sync(id, &work_request(1, 1));
        let late = harness.key("a");
        harness.sync(id, &SyncRequest { running: vec![running(late)], ..sync_request(2) });
        harness.silence(3_600_001);
        assert_eq!(harness.states(&["a", "b", "c"]), [JobState::Failed, JobState::Canceled, JobState::Ready]);
        harness.restart();
        let back = harness.register(&runner("one"));
        let report = if succeeds { success(late) } else { failure(late, 1, Cause::ExitCode) };
        let answer = harness.sync(back, &SyncRequest { finished: vec![report], ..sync_request(1) });
        if succeeds {
            assert_eq!(answer.refused, []);
            assert_eq!(harness.states(&["a", "b", "c"]), [JobState::Completed, JobState::Ready, JobState::Ready]);
            let results: Vec<_> = harness.results_of("a").into_iter().map(|row| (row.attempt, row.cause)).collect();
            assert_eq!(results, [(1, Some(Cause::Lost)), (2, None)]);
        } else {
            assert_eq!(answer.refused, [late]);
            assert!(harness.reasons().contains(&"ResultRefused"));
            assert_eq!(harness.states(&["a", "b", "c"]), [JobState::Failed, JobState::Canceled, JobState::Ready]);
        }
    }
}
