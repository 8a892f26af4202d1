//! Results that were written down while the server was away.

use torc_api::state::{Cause, JobState};
use torc_api::wire::{AttemptKey, FinishedAttempt, JournalledResult, ReplayOutcome, SyncRequest};

use super::plan::{Plan, job};
use super::world::{World, ask, failure, runner, running, say, success};
use crate::engine::{CommandError, Retry};
use crate::ids::{RunnerId, WorkflowId};

const DAY_MS: u64 = 86_400_000;

/// A runner that runs `a` and is silent for days; `b` waits for `a`.
fn drained() -> (World, RunnerId, AttemptKey) {
    let plan = Plan::new([job("a"), job("b").after(&["a"])]).with(|spec| spec.orphan_after = Some("never".to_owned()));
    let mut world = World::with(&plan);
    let id = world.register(&runner("one"));
    world.sync(id, &ask(1, 1));
    let key = world.key("a");
    world.sync(id, &SyncRequest { running: vec![running(key)], ..say(2) });
    world.pass(1_000);
    (world, id, key)
}

fn written(world: &World, finished: FinishedAttempt) -> JournalledResult {
    JournalledResult { ended_ms: world.now.wall_ms, runner: Some(1), name: "a".to_owned(), finished }
}

fn replay(world: &mut World, results: &[JournalledResult]) -> Vec<(ReplayOutcome, Option<String>)> {
    let (workflow, run) = (world.workflow(), 1);
    let replayed = world.run(|engine, tx| engine.replay(workflow, run, results, tx)).unwrap();
    replayed.into_iter().map(|replayed| (replayed.outcome, replayed.reason)).collect()
}

fn rejected(reason: &str) -> (ReplayOutcome, Option<String>) {
    (ReplayOutcome::Rejected, Some(reason.to_owned()))
}

// J36, J37
#[test]
fn a_result_of_days_ago_counts_once_with_the_time_it_had() {
    let (mut world, id, key) = drained();
    let result = written(&world, success(key));
    let ended_ms = world.now.wall_ms;
    world.silence(3 * DAY_MS);
    assert_eq!(world.state_of("a"), JobState::Running, "in doubt, but not given up");
    assert_eq!(replay(&mut world, std::slice::from_ref(&result)), [(ReplayOutcome::Accepted, None)]);
    assert_eq!(world.states(&["a", "b"]), [JobState::Completed, JobState::Ready]);
    let row = world.results_of("a")[0];
    assert_eq!((row.ended_ms, row.started_ms, row.runner), (ended_ms, ended_ms - 100, Some(id)));
    for _ in 0..2 {
        assert_eq!(replay(&mut world, std::slice::from_ref(&result)), [(ReplayOutcome::AlreadyKnown, None)]);
    }
    assert_eq!(world.results_of("a").len(), 1);
    // The runner comes back and says the same.
    let back = world.register(&runner("one"));
    let answer = world.sync(back, &SyncRequest { finished: vec![success(key)], ..say(1) });
    assert_eq!(answer.refused, []);
    assert_eq!(world.results_of("a").len(), 1);
}

// J37
#[test]
fn results_of_a_superseded_run_are_rejected_and_change_nothing() {
    let (mut world, _, key) = drained();
    let result = written(&world, success(key));
    let workflow = world.workflow();
    world.run(|engine, tx| engine.retry(workflow, &Retry::All, tx)).unwrap();
    let reason = "run 1 is superseded: the workflow is at run 2";
    assert_eq!(replay(&mut world, &[result]), [rejected(reason)]);
    assert_eq!((world.job("a").run, world.state_of("b")), (2, JobState::Blocked));
    assert_eq!(world.results_of("a").len(), 0);
}

// J37
#[test]
fn once_a_newer_attempt_has_started_the_old_result_is_too_late() {
    let (mut world, id, key) = drained();
    let result = written(&world, success(key));
    // The runner came back without it, so it was lost, and another runner runs it.
    world.sync(id, &ask(3, 1));
    let newer = world.key("a");
    assert_eq!(newer.attempt, 2);
    world.sync(id, &SyncRequest { running: vec![running(newer)], ..say(4) });
    assert_eq!(replay(&mut world, &[result]), [rejected("a newer attempt has been started")]);
    assert_eq!(world.state_of("a"), JobState::Running);
}

// J37
#[test]
fn what_belongs_elsewhere_is_rejected_one_by_one() {
    let (mut world, _, key) = drained();
    let good = written(&world, failure(key, 4, Cause::ExitCode));
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
    assert_eq!(replay(&mut world, &results), expected);
    assert_eq!(world.results_of("a")[0].return_code, 4);
    let unknown = WorkflowId(9);
    let refused = world.run(|engine, tx| engine.replay(unknown, 1, &[good], tx));
    assert_eq!(refused, Err(CommandError::NoWorkflow("9".to_owned())));
}

/// A store was deleted and created again; a runner's journal of the earlier store still exists.
#[test]
fn a_report_from_before_the_workflow_existed_is_refused() {
    let (mut world, id, key) = drained();
    let mut old = success(key);
    old.ended_ms_ago = 120_000;
    let answer = world.sync(id, &SyncRequest { running: vec![running(key)], finished: vec![old], ..say(3) });
    assert_eq!(answer.refused, [key]);
    assert_eq!(world.state_of("a"), JobState::Running);
}

// J14
#[test]
fn a_drained_runner_stays_until_its_results_arrive() {
    let (mut world, id, key) = drained();
    let result = written(&world, success(key));
    world.silence(DAY_MS);
    assert_eq!(world.engine.runners().iter().map(|runner| runner.id).collect::<Vec<_>>(), [id.0]);
    replay(&mut world, &[result]);
    world.silence(1_000);
    assert_eq!(world.engine.runners().len(), 0, "it holds nothing more and is silent");
}

#[test]
fn an_agent_replays_results_of_its_predecessor() {
    let (mut world, id, key) = drained();
    let result = JournalledResult { runner: None, ..written(&world, success(key)) };
    assert_eq!(replay(&mut world, &[result]), [(ReplayOutcome::Accepted, None)]);
    assert_eq!(world.results_of("a")[0].runner, Some(id));
}
