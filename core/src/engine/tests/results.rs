//! Reports of attempts that ended: which count, which are refused, and that none counts twice.

use torc_api::state::{Cause, JobState};
use torc_api::wire::SyncRequest;

use super::plan::{Plan, job};
use super::world::{World, ask, failure, runner, running, say, success};
use crate::ids::RunnerId;

fn one_job() -> (World, RunnerId) {
    let mut world = World::with(&Plan::new([job("a"), job("b").after(&["a"])]));
    let id = world.register(&runner("one"));
    world.sync(id, &ask(1, 1));
    (world, id)
}

fn report(sequence: u64, finished: torc_api::wire::FinishedAttempt) -> SyncRequest {
    SyncRequest { finished: vec![finished], ..say(sequence) }
}

#[test]
fn a_success_is_written_once_and_frees_what_waited_for_it() {
    let (mut world, id) = one_job();
    let key = world.key("a");
    world.sync(id, &SyncRequest { running: vec![running(key)], ..say(2) });
    assert_eq!(world.state_of("a"), JobState::Running);
    let answer = world.sync(id, &SyncRequest { want: ask(3, 1).want, ..report(3, success(key)) });
    assert_eq!(answer.refused, []);
    assert_eq!(answer.leases[0].name, "b", "the same answer brings what became ready");
    let result = world.results_of("a")[0];
    assert_eq!((result.state, result.return_code, result.cause), (JobState::Completed, 0, None));
    assert_eq!(result.ended_ms, world.now.wall_ms - 5);
    assert_eq!(result.started_ms, world.now.wall_ms - 105);
    assert_eq!(result.runner, Some(id));
}

#[test]
fn a_start_need_not_be_reported_before_the_end() {
    let (mut world, id) = one_job();
    world.sync(id, &report(2, success(world.key("a"))));
    assert_eq!(world.states(&["a", "b"]), [JobState::Completed, JobState::Ready]);
}

#[test]
fn a_repeated_report_is_answered_and_changes_nothing() {
    let (mut world, id) = one_job();
    let key = world.key("a");
    for sequence in [2, 2, 3] {
        let answer = world.sync(id, &report(sequence, success(key)));
        assert_eq!(answer.refused, [], "message {sequence}");
    }
    // A different story about an attempt that has ended is not believed, and not written.
    world.sync(id, &report(4, failure(key, 1, Cause::ExitCode)));
    assert_eq!(world.results_of("a").len(), 1);
    assert_eq!(world.state_of("a"), JobState::Completed);
}

#[test]
fn a_repeated_report_of_a_pending_failed_job_is_known() {
    let plan = Plan::new([job("a")]).with(|spec| spec.use_pending_failed = Some(true));
    let mut world = World::with(&plan);
    let id = world.register(&runner("one"));
    world.sync(id, &ask(1, 1));
    let key = world.key("a");
    for sequence in [2, 3] {
        let answer = world.sync(id, &report(sequence, failure(key, 1, Cause::ExitCode)));
        assert_eq!(answer.refused, []);
    }
    assert_eq!(world.state_of("a"), JobState::PendingFailed);
    assert_eq!(world.results_of("a").len(), 1);
}

#[test]
fn a_late_result_counts_until_a_newer_attempt_starts() {
    for other_has_it in [false, true] {
        let (mut world, late) = one_job();
        let key = world.key("a");
        world.silence(121_000);
        assert_eq!(world.state_of("a"), JobState::Ready);
        let other = world.register(&runner("two"));
        if other_has_it {
            assert_eq!(world.sync(other, &ask(1, 1)).leases.len(), 1);
        }
        // The silent runner held nothing any more, so it was forgotten and comes back as a new one.
        assert!(world.try_sync(late, &say(2)).is_err());
        let back = world.register(&runner("one"));
        let answer = world.sync(back, &report(1, success(key)));
        assert_eq!(answer.refused, []);
        assert_eq!(world.state_of("a"), JobState::Completed);
        if other_has_it {
            let queued = world.database.results[0].job;
            let stale = torc_api::wire::AttemptKey { attempt: 2, lease_id: key.lease_id + 1, ..key };
            assert_eq!(queued.0, stale.job);
            let answer = world.sync(other, &SyncRequest { queued: vec![stale], ..say(2) });
            assert_eq!(answer.cancel, [stale], "the promise is withdrawn");
        }
    }
}

#[test]
fn a_late_result_is_refused_after_a_newer_attempt_started() {
    let (mut world, _) = one_job();
    let old = world.key("a");
    world.silence(121_000);
    let other = world.register(&runner("two"));
    world.sync(other, &ask(1, 1));
    let new = world.key("a");
    assert_eq!((old.attempt, new.attempt), (1, 2));
    world.sync(other, &SyncRequest { running: vec![running(new)], ..say(2) });
    let back = world.register(&runner("one"));
    let answer = world.sync(back, &report(1, success(old)));
    assert_eq!(answer.refused, [old]);
    let event = world.database.events.iter().find(|event| event.reason == "ResultRefused").unwrap();
    assert_eq!(event.message, "attempt 1 of job 'a' in run 1 ended with 0 and is superseded");
    assert_eq!(event.workflow, Some(world.workflow()));
    assert_eq!(world.state_of("a"), JobState::Running);
    let answer = world.sync(other, &report(3, success(new)));
    assert_eq!(answer.refused, []);
    assert_eq!(world.results_of("a")[0].runner, Some(other));
}

#[test]
fn a_report_of_an_attempt_or_run_of_the_past_is_refused() {
    let (mut world, id) = one_job();
    let key = world.key("a");
    world.sync(id, &report(2, failure(key, -128, Cause::NodeFailure)));
    assert_eq!(world.job("a").attempt, 2);
    assert_eq!(world.sync(id, &report(3, success(key))).refused, [key], "its attempt is over");
    world.sync(id, &ask(4, 1));
    assert_eq!(world.sync(id, &report(5, success(key))).refused, [key], "a newer one is promised");
    let workflow = world.workflow();
    let key = world.key("a");
    world.run(|engine, tx| engine.retry(workflow, &crate::engine::Retry::All, tx)).unwrap();
    assert_eq!(world.sync(id, &report(6, success(key))).refused, [key], "its run is over");
    assert_eq!((world.job("a").run, world.job("a").attempt), (2, 1));
    assert_eq!(world.results_of("a").len(), 1);
}

/// A job that was ready again after its lease ran out must not be ended by what ran before its parent ran again.
#[test]
fn a_result_from_before_the_parents_ran_again_is_refused() {
    let (mut world, id) = one_job();
    world.sync(id, &SyncRequest { want: ask(2, 1).want, ..report(2, success(world.key("a"))) });
    let early = world.key("b");
    world.silence(121_000);
    assert_eq!(world.state_of("b"), JobState::Ready);
    let workflow = world.workflow();
    let again = crate::engine::Retry::Jobs(vec!["a".to_owned()]);
    world.run(|engine, tx| engine.retry(workflow, &again, tx)).unwrap();
    assert_eq!(world.states(&["a", "b"]), [JobState::Ready, JobState::Blocked]);
    let id = world.register(&runner("one"));
    world.sync(id, &ask(1, 1));
    world.sync(id, &report(2, success(world.key("a"))));
    assert_eq!(world.state_of("b"), JobState::Ready);
    assert_eq!(world.sync(id, &report(3, success(early))).refused, [early]);
    let answer = world.sync(id, &SyncRequest { running: vec![running(early)], ..say(4) });
    assert_eq!(answer.cancel, [early]);
    assert_eq!(world.state_of("b"), JobState::Ready);
}

#[test]
fn reports_of_unknown_jobs_and_absurd_durations_do_no_harm() {
    let (mut world, id) = one_job();
    let key = world.key("a");
    for (workflow, job) in [(99, key.job), (key.workflow, 99), (-1, i64::MIN)] {
        let unknown = torc_api::wire::AttemptKey { workflow, job, ..key };
        assert_eq!(world.sync(id, &report(2, success(unknown))).refused, [unknown]);
    }
    let mut absurd = success(key);
    (absurd.duration_ms, absurd.ended_ms_ago) = (u64::MAX, u64::MAX);
    let request = SyncRequest { remaining_ms: Some(u64::MAX), ..report(3, absurd) };
    assert_eq!(world.sync(id, &request).refused, []);
    let elapsed = torc_api::wire::RunningAttempt { key: world.key("b"), elapsed_ms: u64::MAX };
    world.sync(id, &SyncRequest { running: vec![elapsed], ..say(4) });
}
