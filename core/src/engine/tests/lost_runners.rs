//! Runners whose processes have ended, or that the user declares lost.

use torc_api::allocation::{OrphanReport, UnreachableReason};
use torc_api::recovery::{MachineMatch, ProcessState, RunnerEvidence, SyncStatusRequest};
use torc_api::state::{Cause, JobState};
use torc_api::wire::{AttemptKey, JournalledResult, ReplayOutcome, RunnerScope, SyncRequest};

use super::plan::{Plan, job};
use super::world::{World, ask, runner, running, say, success};
use crate::engine::{CommandError, Retry};
use crate::ids::RunnerId;

const LEASE_MS: u64 = 120_000;

/// `a` runs and `b` waits in the runner.
fn busy() -> (World, RunnerId) {
    let mut world = World::with(&Plan::new([job("a"), job("b")]).with(|spec| {
        spec.recovery = Some(serde_json::from_str(r#"{"policy": "Never"}"#).unwrap());
    }));
    let id = world.register(&runner("one"));
    world.sync(id, &ask(1, 2));
    let [a, b] = ["a", "b"].map(|name| world.key(name));
    world.sync(id, &SyncRequest { running: vec![running(a)], queued: vec![b], ..say(2) });
    (world, id)
}

fn evidence(runner: RunnerId, shim: ProcessState) -> RunnerEvidence {
    RunnerEvidence {
        runner: runner.0,
        machine: MachineMatch::Same,
        agent: ProcessState::Ended,
        shim,
        left_processes: 0,
        left_results: 0,
    }
}

fn with(evidence: RunnerEvidence) -> SyncStatusRequest {
    SyncStatusRequest { evidence: vec![evidence], ..SyncStatusRequest::default() }
}

fn assuming(runner: RunnerId) -> SyncStatusRequest {
    SyncStatusRequest { assume_lost: vec![runner.0], ..SyncStatusRequest::default() }
}

fn sync(world: &mut World, request: &SyncStatusRequest) -> Result<OrphanReport, CommandError> {
    let workflow = world.workflow();
    world.run(|engine, tx| {
        let mut report = OrphanReport::default();
        let found = engine.find_lost_runners(workflow, request, &[])?;
        engine.report_lost_runners(workflow, &found, &mut report);
        engine.lose_runners(workflow, &found, tx);
        Ok(report)
    })
}

// R03
#[test]
fn a_runner_whose_processes_ended_loses_its_jobs_at_once() {
    let (mut world, id) = busy();
    let report = sync(&mut world, &with(evidence(id, ProcessState::Ended))).unwrap();
    assert_eq!((report.runners, report.jobs.len(), report.unreachable.len()), (vec![id.0], 1, 0));
    assert_eq!((report.jobs[0].job.as_str(), report.jobs[0].cause), ("a", Cause::Lost));
    assert_eq!(world.states(&["a", "b"]), [JobState::Failed, JobState::Ready]);
    assert_eq!(world.results_of("a")[0].return_code, -128);
    assert!(world.engine.runners().is_empty(), "it holds nothing any more");
    assert!(world.reasons().contains(&"OrphansReclaimed"));
    assert_eq!(sync(&mut world, &with(evidence(id, ProcessState::Ended))).unwrap(), OrphanReport::default());
}

// R03. Two attempts of a job never run at once.
#[test]
fn a_living_shim_keeps_its_jobs_whatever_is_assumed() {
    let (mut world, id) = busy();
    world.silence(LEASE_MS + 1);
    let alive = with(evidence(id, ProcessState::Running));
    let report = sync(&mut world, &alive).unwrap();
    assert_eq!((report.unreachable[0].reason, report.jobs.len()), (UnreachableReason::ShimRuns, 0));
    assert_eq!(report.unreachable[0].jobs, ["a"], "what has not started is not running");
    let assumed = SyncStatusRequest { assume_lost: vec![id.0], ..alive };
    assert!(matches!(sync(&mut world, &assumed), Err(CommandError::Conflict(_))));
    assert_eq!(world.state_of("a"), JobState::Running);
}

// R03
#[test]
fn the_user_decides_about_a_silent_runner_and_not_about_others() {
    let (mut world, id) = busy();
    let refused = sync(&mut world, &assuming(id));
    assert!(matches!(&refused, Err(CommandError::Conflict(message)) if message.contains("it reports")), "{refused:?}");
    assert_eq!(sync(&mut world, &assuming(RunnerId(99))), Err(CommandError::NoRunner(RunnerId(99))));
    world.silence(LEASE_MS + 1);
    let told = sync(&mut world, &SyncStatusRequest::default()).unwrap();
    assert_eq!((told.unreachable[0].runner, told.unreachable[0].reason), (id.0, UnreachableReason::NotVerified));
    assert_eq!(world.state_of("a"), JobState::Running, "silence alone loses nothing");
    let report = sync(&mut world, &assuming(id)).unwrap();
    assert_eq!((report.jobs.len(), world.state_of("a")), (1, JobState::Failed));
}

// R03
#[test]
fn a_store_that_was_not_served_names_its_runners_at_once() {
    let (mut world, id) = busy();
    world.restart();
    assert_eq!(sync(&mut world, &SyncStatusRequest::default()).unwrap(), OrphanReport::default(), "it may report yet");
    let unserved = SyncStatusRequest { is_unserved: true, ..SyncStatusRequest::default() };
    assert_eq!(sync(&mut world, &unserved).unwrap().unreachable[0].runner, id.0);
    let assumed = SyncStatusRequest { assume_lost: vec![id.0], ..unserved };
    sync(&mut world, &assumed).unwrap();
    assert_eq!(world.states(&["a", "b"]), [JobState::Failed, JobState::Ready]);
}

#[test]
fn a_result_that_comes_late_undoes_the_loss() {
    let (mut world, id) = busy();
    let key = world.key("a");
    sync(&mut world, &with(evidence(id, ProcessState::Ended))).unwrap();
    let back = world.register(&runner("one"));
    world.sync(back, &SyncRequest { finished: vec![success(key)], ..say(1) });
    assert_eq!(world.state_of("a"), JobState::Completed);
}

/// A request concerns one workflow, so jobs of others keep running.
#[test]
fn jobs_of_other_workflows_stay_with_the_runner() {
    let mut world = World::with(&Plan::new([job("a")]));
    world.apply(&Plan { name: "other".to_owned(), ..Plan::new([job("x")]) });
    let all = runner("one");
    assert_eq!(all.scope, RunnerScope::All);
    let id = world.register(&all);
    world.sync(id, &ask(1, 2));
    let keys = ["a", "x"].map(|name| running(world.key(name)));
    world.sync(id, &SyncRequest { running: keys.to_vec(), ..say(2) });
    let report = sync(&mut world, &with(evidence(id, ProcessState::Ended))).unwrap();
    assert_eq!((report.jobs.len(), world.state_of("x")), (1, JobState::Running));
    assert_eq!(world.engine.runners().len(), 1);
}

/// A new run does not wait for the lease of a lost runner.
#[test]
fn a_retry_goes_on_when_the_runner_is_known_to_be_gone() {
    let (mut world, id) = busy();
    retry_all(&mut world);
    assert_eq!(world.states(&["a", "b"]), [JobState::Blocked, JobState::Blocked]);
    sync(&mut world, &with(evidence(id, ProcessState::Ended))).unwrap();
    assert_eq!(world.states(&["a", "b"]), [JobState::Ready, JobState::Ready]);
}

// J37
#[test]
fn a_journal_of_a_superseded_run_ends_what_is_waited_for() {
    let (mut world, _) = busy();
    let key = world.key("a");
    retry_all(&mut world);
    assert_eq!(replay(&mut world, key), ReplayOutcome::Rejected);
    assert_eq!(world.states(&["a", "b"]), [JobState::Ready, JobState::Blocked], "of b nothing is known");
    assert_eq!(replay(&mut world, key), ReplayOutcome::Rejected);
    assert_eq!(world.state_of("a"), JobState::Ready);
}

fn retry_all(world: &mut World) {
    let workflow = world.workflow();
    world.run(|engine, tx| engine.retry(workflow, &Retry::All, tx)).unwrap();
}

fn replay(world: &mut World, key: AttemptKey) -> ReplayOutcome {
    let (workflow, ended_ms) = (world.workflow(), world.now.wall_ms);
    let result = JournalledResult { ended_ms, runner: Some(1), name: "a".to_owned(), finished: success(key) };
    let replayed = world.run(|engine, tx| engine.replay(workflow, 1, &[result], tx)).unwrap();
    replayed[0].outcome
}

// An idle server exits; a server with a busy runner does not.
#[test]
fn a_runner_with_a_job_is_busy() {
    let (mut world, id) = busy();
    let busy = world.engine.activity(&RunnerScope::All);
    assert!(busy.is_busy);
    let finished = ["a", "b"].map(|name| success(world.key(name))).to_vec();
    world.sync(id, &SyncRequest { finished, ..say(3) });
    let idle = world.engine.activity(&RunnerScope::All);
    assert!(!idle.is_busy && idle.last_event > busy.last_event, "{idle:?}");
    assert_eq!(world.engine.activity(&RunnerScope::All), idle);
}
