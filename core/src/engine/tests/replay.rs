//! Replay of journaled results that could not be reported while the server was away.

use torc_api::state::{Cause, JobState};
use torc_api::wire::{AttemptKey, FinishedAttempt, JournalledResult, ReplayOutcome, SyncRequest};

use super::harness::{EngineHarness, failure, runner, running, success, sync_request, work_request};
use super::plan::{Plan, job};
use crate::engine::{CommandError, Retry};
use crate::ids::{RunnerId, WorkflowId};

const DAY_MS: u64 = 86_400_000;

/// Returns a runner that runs `a` and is silent for days; `b` depends on `a`.
fn drained() -> (EngineHarness, RunnerId, AttemptKey) {
    let plan = Plan::new([job("a"), job("b").after(&["a"])]).with(|spec| spec.orphan_after = Some("never".to_owned()));
    let mut harness = EngineHarness::with(&plan);
    let id = harness.register(&runner("one"));
    harness.sync(id, &work_request(1, 1));
    let key = harness.key("a");
    harness.sync(id, &SyncRequest { running: vec![running(key)], ..sync_request(2) });
    harness.pass(1_000);
    (harness, id, key)
}

fn written(harness: &EngineHarness, finished: FinishedAttempt) -> JournalledResult {
    JournalledResult { ended_ms: harness.now.wall_ms, runner: Some(1), name: "a".to_owned(), finished }
}

fn replay(harness: &mut EngineHarness, results: &[JournalledResult]) -> Vec<(ReplayOutcome, Option<String>)> {
    let (workflow, run) = (harness.workflow(), 1);
    let replayed = harness.run(|engine, tx| engine.replay(workflow, run, results, tx)).unwrap();
    replayed.into_iter().map(|replayed| (replayed.outcome, replayed.reason)).collect()
}

fn rejected(reason: &str) -> (ReplayOutcome, Option<String>) {
    (ReplayOutcome::Rejected, Some(reason.to_owned()))
}

// J36, J37
#[test]
fn a_result_of_days_ago_counts_once_with_the_time_it_had() {
    let (mut harness, id, key) = drained();
    let result = written(&harness, success(key));
    let ended_ms = harness.now.wall_ms;
    harness.silence(3 * DAY_MS);
    assert_eq!(harness.state_of("a"), JobState::Running, "in doubt, but not given up");
    assert_eq!(replay(&mut harness, std::slice::from_ref(&result)), [(ReplayOutcome::Accepted, None)]);
    assert_eq!(harness.states(&["a", "b"]), [JobState::Completed, JobState::Ready]);
    let row = harness.results_of("a")[0];
    assert_eq!((row.ended_ms, row.started_ms, row.runner), (ended_ms, ended_ms - 100, Some(id)));
    for _ in 0..2 {
        assert_eq!(replay(&mut harness, std::slice::from_ref(&result)), [(ReplayOutcome::AlreadyKnown, None)]);
    }
    assert_eq!(harness.results_of("a").len(), 1);
    // The runner returns and reports the same result.
    let back = harness.register(&runner("one"));
    let answer = harness.sync(back, &SyncRequest { finished: vec![success(key)], ..sync_request(1) });
    assert_eq!(answer.refused, []);
    assert_eq!(harness.results_of("a").len(), 1);
}

// J37
#[test]
fn results_of_a_superseded_run_are_rejected_and_change_nothing() {
    let (mut harness, _, key) = drained();
    let result = written(&harness, success(key));
    let workflow = harness.workflow();
    harness.run(|engine, tx| engine.retry(workflow, &Retry::All, tx)).unwrap();
    let reason = "run 1 is superseded: the workflow is at run 2";
    assert_eq!(replay(&mut harness, &[result]), [rejected(reason)]);
    assert_eq!((harness.job("a").run, harness.state_of("b")), (2, JobState::Blocked));
    assert_eq!(harness.results_of("a").len(), 0);
}

// J37
#[test]
fn once_a_newer_attempt_has_started_the_old_result_is_too_late() {
    let (mut harness, id, key) = drained();
    let result = written(&harness, success(key));
    // The runner returned without the job, so the attempt was lost, and another runner runs the job.
    harness.sync(id, &work_request(3, 1));
    let newer = harness.key("a");
    assert_eq!(newer.attempt, 2);
    harness.sync(id, &SyncRequest { running: vec![running(newer)], ..sync_request(4) });
    assert_eq!(replay(&mut harness, &[result]), [rejected("a newer attempt has been started")]);
    assert_eq!(harness.state_of("a"), JobState::Running);
}

// J37
#[test]
fn what_belongs_elsewhere_is_rejected_one_by_one() {
    let (mut harness, _, key) = drained();
    let good = written(&harness, failure(key, 4, Cause::ExitCode));
    let with = |change: fn(&mut JournalledResult)| {
        let mut result = good.clone();
        change(&mut result);
        result
    };
    let results = [
        with(|result| result.finished.key.run = 7),
        with(|result| result.finished.key.job = 99),
        with(|result| result.finished.key.workflow = 99),
        with(|result| result.name = "z".to_owned()),
        with(|result| result.ended_ms -= 90_000),
        good.clone(),
        with(|result| result.ended_ms = i64::MAX),
    ];
    let expected = [
        rejected("it belongs to run 7 of workflow 1"),
        rejected("the workflow has no job 99"),
        rejected("it belongs to run 1 of workflow 99"),
        rejected("job 1 is 'a' here, not 'z'"),
        rejected("it ended before this workflow was created"),
        (ReplayOutcome::Accepted, None),
        (ReplayOutcome::AlreadyKnown, None),
    ];
    assert_eq!(replay(&mut harness, &results), expected);
    assert_eq!(harness.results_of("a")[0].return_code, 4);
    let unknown = WorkflowId(9);
    let refused = harness.run(|engine, tx| engine.replay(unknown, 1, &[good], tx));
    assert_eq!(refused, Err(CommandError::NoWorkflow("9".to_owned())));
}

// J36
#[test]
fn a_result_counts_if_it_ended_up_to_a_minute_before_creation() {
    for (before_ms, expected) in [
        (59_999, (ReplayOutcome::Accepted, None)),
        (60_000, (ReplayOutcome::Accepted, None)),
        (60_001, rejected("it ended before this workflow was created")),
    ] {
        let (mut harness, _, key) = drained();
        let created_ms = harness.now.wall_ms - 1_000;
        let result = JournalledResult { ended_ms: created_ms - before_ms, ..written(&harness, success(key)) };
        assert_eq!(replay(&mut harness, &[result]), [expected], "{before_ms}");
    }
}

/// A store was deleted and created again, and a runner still has the journal of the earlier store.
#[test]
fn a_report_from_before_the_workflow_existed_is_refused() {
    let (mut harness, id, key) = drained();
    let mut old = success(key);
    old.ended_ms_ago = 120_000;
    let answer = harness.sync(id, &SyncRequest { running: vec![running(key)], finished: vec![old], ..sync_request(3) });
    assert_eq!(answer.refused, [key]);
    assert_eq!(harness.state_of("a"), JobState::Running);
}

// J14
#[test]
fn a_drained_runner_stays_until_its_results_arrive() {
    let (mut harness, id, key) = drained();
    let result = written(&harness, success(key));
    harness.silence(DAY_MS);
    assert_eq!(harness.engine.runners().iter().map(|runner| runner.id).collect::<Vec<_>>(), [id.0]);
    replay(&mut harness, &[result]);
    harness.silence(1_000);
    assert_eq!(harness.engine.runners().len(), 0, "it holds nothing more and is silent");
}

#[test]
fn an_agent_replays_results_of_its_predecessor() {
    let (mut harness, id, key) = drained();
    let result = JournalledResult { runner: None, ..written(&harness, success(key)) };
    assert_eq!(replay(&mut harness, &[result]), [(ReplayOutcome::Accepted, None)]);
    assert_eq!(harness.results_of("a")[0].runner, Some(id));
}
