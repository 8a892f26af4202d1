//! Runners whose processes have ended, or that the user declares lost.

use torc_api::allocation::{OrphanReport, UnreachableReason};
use torc_api::recovery::{MachineMatch, ProcessState, RunnerEvidence, SyncStatusRequest};
use torc_api::state::{Cause, JobState};
use torc_api::wire::{AttemptKey, JournalledResult, ReplayOutcome, RunnerScope, SyncRequest};

use super::harness::{EngineHarness, runner, running, success, sync_request, work_request};
use super::plan::{Plan, job};
use crate::engine::{CommandError, Retry};
use crate::ids::RunnerId;

const LEASE_MS: u64 = 120_000;

/// `a` runs and `b` waits in the runner.
fn busy() -> (EngineHarness, RunnerId) {
    let mut harness = EngineHarness::with(&Plan::new([job("a"), job("b")]).with(|spec| {
        spec.recovery = Some(serde_json::from_str(r#"{"policy": "Never"}"#).unwrap());
    }));
    let id = harness.register(&runner("one"));
    harness.sync(id, &work_request(1, 2));
    let [a, b] = ["a", "b"].map(|name| harness.key(name));
    harness.sync(id, &SyncRequest { running: vec![running(a)], queued: vec![b], ..sync_request(2) });
    (harness, id)
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

fn sync(harness: &mut EngineHarness, request: &SyncStatusRequest) -> Result<OrphanReport, CommandError> {
    let workflow = harness.workflow();
    harness.run(|engine, tx| {
        let mut report = OrphanReport::default();
        let found = engine.find_lost_runners(workflow, request, &[])?;
        engine.report_lost_runners(workflow, &found, &mut report);
        engine.mark_runners_lost(workflow, &found, tx);
        Ok(report)
    })
}

// R03
#[test]
fn a_runner_whose_processes_ended_loses_its_jobs_at_once() {
    let (mut harness, id) = busy();
    let report = sync(&mut harness, &with(evidence(id, ProcessState::Ended))).unwrap();
    assert_eq!((report.runners, report.jobs.len(), report.unreachable.len()), (vec![id.0], 1, 0));
    assert_eq!((report.jobs[0].job.as_str(), report.jobs[0].cause), ("a", Cause::Lost));
    assert_eq!(harness.states(&["a", "b"]), [JobState::Failed, JobState::Ready]);
    assert_eq!(harness.results_of("a")[0].return_code, -128);
    assert!(harness.engine.runners().is_empty(), "it holds nothing any more");
    assert!(harness.reasons().contains(&"OrphansReclaimed"));
    assert_eq!(sync(&mut harness, &with(evidence(id, ProcessState::Ended))).unwrap(), OrphanReport::default());
}

// R03. Two attempts of a job never run at once.
#[test]
fn a_living_shim_keeps_its_jobs_whatever_is_assumed() {
    let (mut harness, id) = busy();
    harness.silence(LEASE_MS + 1);
    let alive = with(evidence(id, ProcessState::Running));
    let report = sync(&mut harness, &alive).unwrap();
    assert_eq!((report.unreachable[0].reason, report.jobs.len()), (UnreachableReason::ShimRuns, 0));
    assert_eq!(report.unreachable[0].jobs, ["a"], "what has not started is not running");
    let assumed = SyncStatusRequest { assume_lost: vec![id.0], ..alive };
    assert!(matches!(sync(&mut harness, &assumed), Err(CommandError::Conflict(_))));
    assert_eq!(harness.state_of("a"), JobState::Running);
}

// R03
#[test]
fn the_user_decides_about_a_silent_runner_and_not_about_others() {
    let (mut harness, id) = busy();
    let refused = sync(&mut harness, &assuming(id));
    assert!(matches!(&refused, Err(CommandError::Conflict(message)) if message.contains("it reports")), "{refused:?}");
    assert_eq!(sync(&mut harness, &assuming(RunnerId(99))), Err(CommandError::NoRunner(RunnerId(99))));
    harness.silence(LEASE_MS + 1);
    let told = sync(&mut harness, &SyncStatusRequest::default()).unwrap();
    assert_eq!((told.unreachable[0].runner, told.unreachable[0].reason), (id.0, UnreachableReason::NotVerified));
    assert_eq!(harness.state_of("a"), JobState::Running, "silence alone loses nothing");
    let report = sync(&mut harness, &assuming(id)).unwrap();
    assert_eq!((report.jobs.len(), harness.state_of("a")), (1, JobState::Failed));
}

// R03
#[test]
fn a_store_that_was_not_served_names_its_runners_at_once() {
    let (mut harness, id) = busy();
    harness.restart();
    assert_eq!(
        sync(&mut harness, &SyncStatusRequest::default()).unwrap(),
        OrphanReport::default(),
        "it may report yet"
    );
    let unserved = SyncStatusRequest { is_unserved: true, ..SyncStatusRequest::default() };
    assert_eq!(sync(&mut harness, &unserved).unwrap().unreachable[0].runner, id.0);
    let assumed = SyncStatusRequest { assume_lost: vec![id.0], ..unserved };
    sync(&mut harness, &assumed).unwrap();
    assert_eq!(harness.states(&["a", "b"]), [JobState::Failed, JobState::Ready]);
}

#[test]
fn a_result_that_comes_late_undoes_the_loss() {
    let (mut harness, id) = busy();
    let key = harness.key("a");
    sync(&mut harness, &with(evidence(id, ProcessState::Ended))).unwrap();
    let back = harness.register(&runner("one"));
    harness.sync(back, &SyncRequest { finished: vec![success(key)], ..sync_request(1) });
    assert_eq!(harness.state_of("a"), JobState::Completed);
}

/// A request concerns one workflow, so jobs of others keep running.
#[test]
fn jobs_of_other_workflows_stay_with_the_runner() {
    let mut harness = EngineHarness::with(&Plan::new([job("a")]));
    harness.apply(&Plan { name: "other".to_owned(), ..Plan::new([job("x")]) });
    let all = runner("one");
    assert_eq!(all.scope, RunnerScope::All);
    let id = harness.register(&all);
    harness.sync(id, &work_request(1, 2));
    let keys = ["a", "x"].map(|name| running(harness.key(name)));
    harness.sync(id, &SyncRequest { running: keys.to_vec(), ..sync_request(2) });
    let report = sync(&mut harness, &with(evidence(id, ProcessState::Ended))).unwrap();
    assert_eq!((report.jobs.len(), harness.state_of("x")), (1, JobState::Running));
    assert_eq!(harness.engine.runners().len(), 1);
}

/// A new run does not wait for the lease of a lost runner.
#[test]
fn a_retry_goes_on_when_the_runner_is_known_to_be_gone() {
    let (mut harness, id) = busy();
    retry_all(&mut harness);
    assert_eq!(harness.states(&["a", "b"]), [JobState::Blocked, JobState::Blocked]);
    sync(&mut harness, &with(evidence(id, ProcessState::Ended))).unwrap();
    assert_eq!(harness.states(&["a", "b"]), [JobState::Ready, JobState::Ready]);
}

// J37
#[test]
fn a_journal_of_a_superseded_run_ends_what_is_waited_for() {
    let (mut harness, _) = busy();
    let key = harness.key("a");
    retry_all(&mut harness);
    assert_eq!(replay(&mut harness, key), ReplayOutcome::Rejected);
    assert_eq!(harness.states(&["a", "b"]), [JobState::Ready, JobState::Blocked], "of b nothing is known");
    assert_eq!(replay(&mut harness, key), ReplayOutcome::Rejected);
    assert_eq!(harness.state_of("a"), JobState::Ready);
}

fn retry_all(harness: &mut EngineHarness) {
    let workflow = harness.workflow();
    harness.run(|engine, tx| engine.retry(workflow, &Retry::All, tx)).unwrap();
}

fn replay(harness: &mut EngineHarness, key: AttemptKey) -> ReplayOutcome {
    let (workflow, ended_ms) = (harness.workflow(), harness.now.wall_ms);
    let result = JournalledResult { ended_ms, runner: Some(1), name: "a".to_owned(), finished: success(key) };
    let replayed = harness.run(|engine, tx| engine.replay(workflow, 1, &[result], tx)).unwrap();
    replayed[0].outcome
}

// An idle server exits; a server with a busy runner does not.
#[test]
fn a_runner_with_a_job_is_busy() {
    let (mut harness, id) = busy();
    let busy = harness.engine.activity(&RunnerScope::All);
    assert!(busy.is_busy);
    let finished = ["a", "b"].map(|name| success(harness.key(name))).to_vec();
    harness.sync(id, &SyncRequest { finished, ..sync_request(3) });
    let idle = harness.engine.activity(&RunnerScope::All);
    assert!(!idle.is_busy && idle.last_event > busy.last_event, "{idle:?}");
    assert_eq!(harness.engine.activity(&RunnerScope::All), idle);
}
