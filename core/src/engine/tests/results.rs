//! Reports of attempts that ended: which count, which are refused, and that no report counts twice.

use torc_api::state::{Cause, JobState};
use torc_api::wire::SyncRequest;

use super::harness::{EngineHarness, failure, runner, running, success, sync_request, work_request};
use super::plan::{Plan, job};
use crate::ids::RunnerId;

fn one_job() -> (EngineHarness, RunnerId) {
    let mut harness = EngineHarness::with(&Plan::new([job("a"), job("b").after(&["a"])]));
    let id = harness.register(&runner("one"));
    harness.sync(id, &work_request(1, 1));
    (harness, id)
}

fn report(sequence: u64, finished: torc_api::wire::FinishedAttempt) -> SyncRequest {
    SyncRequest { finished: vec![finished], ..sync_request(sequence) }
}

#[test]
fn a_success_is_written_once_and_frees_what_waited_for_it() {
    let (mut harness, id) = one_job();
    let key = harness.key("a");
    harness.sync(id, &SyncRequest { running: vec![running(key)], ..sync_request(2) });
    assert_eq!(harness.state_of("a"), JobState::Running);
    let answer = harness.sync(id, &SyncRequest { want: work_request(3, 1).want, ..report(3, success(key)) });
    assert_eq!(answer.refused, []);
    assert_eq!(answer.leases[0].name, "b", "the same answer brings what became ready");
    let result = harness.results_of("a")[0];
    assert_eq!((result.state, result.return_code, result.cause), (JobState::Completed, 0, None));
    assert_eq!(result.ended_ms, harness.now.wall_ms - 5);
    assert_eq!(result.started_ms, harness.now.wall_ms - 105);
    assert_eq!(result.runner, Some(id));
}

#[test]
fn a_start_need_not_be_reported_before_the_end() {
    let (mut harness, id) = one_job();
    harness.sync(id, &report(2, success(harness.key("a"))));
    assert_eq!(harness.states(&["a", "b"]), [JobState::Completed, JobState::Ready]);
}

#[test]
fn a_repeated_report_is_answered_and_changes_nothing() {
    let (mut harness, id) = one_job();
    let key = harness.key("a");
    for sequence in [2, 2, 3] {
        let answer = harness.sync(id, &report(sequence, success(key)));
        assert_eq!(answer.refused, [], "message {sequence}");
    }
    // A different result for an attempt that has ended is ignored and not written.
    harness.sync(id, &report(4, failure(key, 1, Cause::ExitCode)));
    assert_eq!(harness.results_of("a").len(), 1);
    assert_eq!(harness.state_of("a"), JobState::Completed);
}

#[test]
fn a_repeated_report_of_a_pending_failed_job_is_known() {
    let plan = Plan::new([job("a")]).with(|spec| spec.use_pending_failed = Some(true));
    let mut harness = EngineHarness::with(&plan);
    let id = harness.register(&runner("one"));
    harness.sync(id, &work_request(1, 1));
    let key = harness.key("a");
    for sequence in [2, 3] {
        let answer = harness.sync(id, &report(sequence, failure(key, 1, Cause::ExitCode)));
        assert_eq!(answer.refused, []);
    }
    assert_eq!(harness.state_of("a"), JobState::PendingFailed);
    assert_eq!(harness.results_of("a").len(), 1);
}

#[test]
fn a_late_result_counts_until_a_newer_attempt_starts() {
    for other_has_it in [false, true] {
        let (mut harness, late) = one_job();
        let key = harness.key("a");
        harness.silence(121_000);
        assert_eq!(harness.state_of("a"), JobState::Ready);
        let other = harness.register(&runner("two"));
        if other_has_it {
            assert_eq!(harness.sync(other, &work_request(1, 1)).leases.len(), 1);
        }
        // The silent runner held no leases, so the server forgot it, and it registers again.
        assert!(harness.try_sync(late, &sync_request(2)).is_err());
        let back = harness.register(&runner("one"));
        let answer = harness.sync(back, &report(1, success(key)));
        assert_eq!(answer.refused, []);
        assert_eq!(harness.state_of("a"), JobState::Completed);
        if other_has_it {
            let queued = harness.database.results[0].job;
            let stale = torc_api::wire::AttemptKey { attempt: 2, lease_id: key.lease_id + 1, ..key };
            assert_eq!(queued.0, stale.job);
            let answer = harness.sync(other, &SyncRequest { queued: vec![stale], ..sync_request(2) });
            assert_eq!(answer.cancel, [stale], "the promise is withdrawn");
        }
    }
}

#[test]
fn a_late_result_is_refused_after_a_newer_attempt_started() {
    let (mut harness, _) = one_job();
    let old = harness.key("a");
    harness.silence(121_000);
    let other = harness.register(&runner("two"));
    harness.sync(other, &work_request(1, 1));
    let new = harness.key("a");
    assert_eq!((old.attempt, new.attempt), (1, 2));
    harness.sync(other, &SyncRequest { running: vec![running(new)], ..sync_request(2) });
    let back = harness.register(&runner("one"));
    let answer = harness.sync(back, &report(1, success(old)));
    assert_eq!(answer.refused, [old]);
    let event = harness.database.events.iter().find(|event| event.reason == "ResultRefused").unwrap();
    assert_eq!(event.message, "attempt 1 of job 'a' in run 1 ended with 0 and is superseded");
    assert_eq!(event.workflow, Some(harness.workflow()));
    assert_eq!(harness.state_of("a"), JobState::Running);
    let answer = harness.sync(other, &report(3, success(new)));
    assert_eq!(answer.refused, []);
    assert_eq!(harness.results_of("a")[0].runner, Some(other));
}

#[test]
fn a_report_of_an_attempt_or_run_of_the_past_is_refused() {
    let (mut harness, id) = one_job();
    let key = harness.key("a");
    harness.sync(id, &report(2, failure(key, -128, Cause::NodeFailure)));
    assert_eq!(harness.job("a").attempt, 2);
    assert_eq!(harness.sync(id, &report(3, success(key))).refused, [key], "its attempt is over");
    harness.sync(id, &work_request(4, 1));
    assert_eq!(harness.sync(id, &report(5, success(key))).refused, [key], "a newer one is promised");
    let workflow = harness.workflow();
    let key = harness.key("a");
    harness.run(|engine, tx| engine.retry(workflow, &crate::engine::Retry::All, tx)).unwrap();
    assert_eq!(harness.sync(id, &report(6, success(key))).refused, [key], "its run is over");
    assert_eq!((harness.job("a").run, harness.job("a").attempt), (2, 1));
    assert_eq!(harness.results_of("a").len(), 1);
}

/// A job that is ready again after its lease expired must not end by an attempt from before its parent ran again.
#[test]
fn a_result_from_before_the_parents_ran_again_is_refused() {
    let (mut harness, id) = one_job();
    harness.sync(id, &SyncRequest { want: work_request(2, 1).want, ..report(2, success(harness.key("a"))) });
    let early = harness.key("b");
    harness.silence(121_000);
    assert_eq!(harness.state_of("b"), JobState::Ready);
    let workflow = harness.workflow();
    let again = crate::engine::Retry::Jobs(vec!["a".to_owned()]);
    harness.run(|engine, tx| engine.retry(workflow, &again, tx)).unwrap();
    assert_eq!(harness.states(&["a", "b"]), [JobState::Ready, JobState::Blocked]);
    let id = harness.register(&runner("one"));
    harness.sync(id, &work_request(1, 1));
    harness.sync(id, &report(2, success(harness.key("a"))));
    assert_eq!(harness.state_of("b"), JobState::Ready);
    assert_eq!(harness.sync(id, &report(3, success(early))).refused, [early]);
    let answer = harness.sync(id, &SyncRequest { running: vec![running(early)], ..sync_request(4) });
    assert_eq!(answer.cancel, [early]);
    assert_eq!(harness.state_of("b"), JobState::Ready);
}

#[test]
fn reports_of_unknown_jobs_and_absurd_durations_do_no_harm() {
    let (mut harness, id) = one_job();
    let key = harness.key("a");
    for (workflow, job) in [(99, key.job), (key.workflow, 99), (-1, i64::MIN)] {
        let unknown = torc_api::wire::AttemptKey { workflow, job, ..key };
        assert_eq!(harness.sync(id, &report(2, success(unknown))).refused, [unknown]);
    }
    let mut absurd = success(key);
    (absurd.duration_ms, absurd.ended_ms_ago) = (u64::MAX, u64::MAX);
    let request = SyncRequest { remaining_ms: Some(u64::MAX), ..report(3, absurd) };
    assert_eq!(harness.sync(id, &request).refused, []);
    let elapsed = torc_api::wire::RunningAttempt { key: harness.key("b"), elapsed_ms: u64::MAX };
    harness.sync(id, &SyncRequest { running: vec![elapsed], ..sync_request(4) });
}
