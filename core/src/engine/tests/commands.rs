//! Commands other than apply.

use torc_api::state::{Cause, JobState};
use torc_api::wire::{RunnerDirective, SyncRequest};
use torc_api::workflow::StopPolicy;

use super::harness::{EngineHarness, failure, runner, running, success, sync_request, work_request};
use super::plan::{Plan, job};
use crate::engine::{CommandError, Retry};
use crate::ids::{RunnerId, WorkflowId};

/// `a` runs, `b` waits in the runner, `c` is ready, `d` is blocked.
fn busy() -> (EngineHarness, WorkflowId, RunnerId) {
    let jobs = [job("a").priority(2), job("b").priority(1), job("c"), job("d").after(&["a"])];
    let mut harness = EngineHarness::with(&Plan::new(jobs));
    let id = harness.register(&runner("one"));
    harness.sync(id, &work_request(1, 2));
    let [a, b] = ["a", "b"].map(|name| harness.key(name));
    harness.sync(id, &SyncRequest { running: vec![running(a)], queued: vec![b], ..sync_request(2) });
    let workflow = harness.workflow();
    (harness, workflow, id)
}

fn suspend(harness: &mut EngineHarness, workflow: WorkflowId, suspended: bool) -> Result<(), CommandError> {
    harness.run(|engine, tx| match suspended {
        true => engine.suspend(workflow, tx),
        false => engine.resume(workflow, tx),
    })
}

fn cancel(harness: &mut EngineHarness, workflow: WorkflowId) -> Result<i64, CommandError> {
    harness.run(|engine, tx| engine.cancel(workflow, tx))
}

fn retry(harness: &mut EngineHarness, workflow: WorkflowId, which: &Retry) -> Result<i64, CommandError> {
    harness.run(|engine, tx| engine.retry(workflow, which, tx))
}

fn hold(harness: &EngineHarness, sequence: u64) -> SyncRequest {
    let [a, b] = ["a", "b"].map(|name| harness.key(name));
    SyncRequest { running: vec![running(a)], queued: vec![b], ..work_request(sequence, 8) }
}

#[test]
fn resume_goes_on_after_a_cancellation() {
    let (mut harness, workflow, id) = busy();
    cancel(&mut harness, workflow).unwrap();
    suspend(&mut harness, workflow, false).unwrap();
    let summary = harness.engine.workflow_summary(workflow).unwrap();
    assert!(!summary.canceled);
    // `a` and `b` are held by a runner that has not ended them yet.
    assert_eq!((summary.status.jobs.ready, summary.status.jobs.blocked, summary.status.jobs.canceled), (1, 3, 0));
    let old = harness.key("a");
    assert_eq!(old.attempt, 2, "the attempt that ran was canceled, so the next one has another number");
    assert_eq!(harness.sync(id, &work_request(9, 8)).leases.len(), 3, "it says that it has nothing any more");
    let result = harness.results_of("a")[0];
    assert_eq!((result.attempt, result.state, result.return_code), (1, JobState::Canceled, -128));
    assert_eq!(harness.results_of("b"), Vec::<&crate::rows::ResultRow>::new(), "it never started");
}

#[test]
fn suspend_gives_no_new_leases_and_resume_does() {
    let (mut harness, workflow, id) = busy();
    suspend(&mut harness, workflow, true).unwrap();
    let request = hold(&harness, 3);
    let answer = harness.sync(id, &request);
    assert_eq!((answer.leases.len(), answer.cancel.len()), (0, 0), "what runs goes on");
    assert_eq!(answer.give_back, request.queued, "what waits in a runner does not start");
    harness.restart();
    let request = hold(&harness, 4);
    assert_eq!(harness.sync(id, &request).leases.len(), 0, "it is stored");
    let b = harness.key("b");
    let returned = SyncRequest { queued: vec![], returned: vec![b], ..hold(&harness, 5) };
    assert_eq!(harness.sync(id, &returned).give_back, []);
    assert_eq!((harness.state_of("b"), harness.job("b").attempt), (JobState::Ready, 1));
    let wake_version = harness.engine.wake_version();
    suspend(&mut harness, workflow, false).unwrap();
    assert!(harness.engine.wake_version() > wake_version, "who waits is told");
    let a = running(harness.key("a"));
    let leases = harness.sync(id, &SyncRequest { running: vec![a], ..work_request(6, 8) }).leases;
    assert_eq!(leases.iter().map(|lease| lease.name.as_str()).collect::<Vec<_>>(), ["b", "c"]);
}

#[test]
fn a_waiting_runner_gives_back_at_once_what_was_suspended() {
    let (mut harness, workflow, id) = busy();
    let request = SyncRequest { want: torc_api::wire::WorkRequest::default(), ..hold(&harness, 3) };
    assert!(harness.try_sync(id, &request).unwrap().may_wait);
    let wake_version = harness.engine.wake_version();
    suspend(&mut harness, workflow, true).unwrap();
    assert!(harness.engine.wake_version() > wake_version);
    let told = harness.run(|engine, tx| engine.poll(id, &request, tx)).expect("an answer");
    assert_eq!(told.give_back, request.queued);
    // Every answer repeats the key, but a runner that has acknowledged it may wait for other changes.
    let unheard = SyncRequest { sequence: 4, acknowledged: 2, ..request.clone() };
    assert!(!harness.try_sync(id, &unheard).unwrap().may_wait);
    let heard = SyncRequest { sequence: 5, acknowledged: 4, ..request };
    let answer = harness.try_sync(id, &heard).unwrap();
    assert_eq!((answer.response.give_back, answer.may_wait), (heard.queued, true));
}

#[test]
fn a_verb_does_not_overrule_the_document() {
    let plan = Plan::new([job("a")]).with(|spec| spec.suspend = Some(true));
    let mut harness = EngineHarness::with(&plan);
    let workflow = harness.workflow();
    assert!(matches!(suspend(&mut harness, workflow, false), Err(CommandError::Conflict(_))));
    let plan = Plan::new([job("a")]).with(|spec| spec.stop_policy = Some(StopPolicy::Cancel));
    harness.apply(&plan);
    assert_eq!(harness.state_of("a"), JobState::Canceled);
    assert!(matches!(retry(&mut harness, workflow, &Retry::All), Err(CommandError::Conflict(_))));
}

#[test]
fn drain_lets_running_jobs_end_and_starts_none() {
    let plan = Plan::new([job("a")]).with(|spec| spec.stop_policy = Some(StopPolicy::Drain));
    let mut harness = EngineHarness::with(&plan);
    let id = harness.register(&runner("one"));
    assert_eq!(harness.sync(id, &work_request(1, 1)).leases, []);
}

#[test]
fn cancel_ends_everything_and_tells_the_runner() {
    let (mut harness, workflow, id) = busy();
    let [a, b] = ["a", "b"].map(|name| harness.key(name));
    assert_eq!(cancel(&mut harness, workflow), Ok(4));
    use JobState::{Canceled, Running};
    assert_eq!(harness.states(&["a", "b", "c", "d"]), [Running, Canceled, Canceled, Canceled]);
    harness.restart();
    let request = SyncRequest { running: vec![running(a)], queued: vec![b], ..work_request(3, 8) };
    let answer = harness.sync(id, &request);
    assert_eq!((answer.cancel.clone(), answer.leases.len()), (vec![a, b], 0));
    assert_eq!(answer.directive, RunnerDirective::Continue, "something still runs");
    let ended = SyncRequest { finished: vec![failure(a, 143, Cause::ExitCode)], ..sync_request(4) };
    let answer = harness.sync(id, &ended);
    assert_eq!(answer.directive, RunnerDirective::Canceled);
    let result = harness.results_of("a")[0];
    assert_eq!((result.state, result.cause), (Canceled, Some(Cause::Canceled)));
    assert_eq!(cancel(&mut harness, workflow), Ok(0), "there is nothing left to cancel");
}

#[test]
fn a_started_lease_of_a_canceled_workflow_is_ended() {
    let (mut harness, workflow, id) = busy();
    let [a, b] = ["a", "b"].map(|name| harness.key(name));
    cancel(&mut harness, workflow).unwrap();
    let answer = harness.sync(id, &SyncRequest { running: vec![running(a), running(b)], ..sync_request(3) });
    assert_eq!(answer.cancel, [a, b]);
    assert_eq!(harness.state_of("b"), JobState::Canceled);
}

#[test]
fn retry_after_cancel_also_takes_what_is_being_ended() {
    let (mut harness, workflow, id) = busy();
    let old = harness.key("a");
    cancel(&mut harness, workflow).unwrap();
    assert_eq!(retry(&mut harness, workflow, &Retry::Failed), Ok(4));
    use JobState::{Blocked, Ready};
    assert_eq!(harness.states(&["a", "b", "c", "d"]), [Blocked, Blocked, Ready, Blocked]);
    assert_eq!(["a", "b", "c", "d"].map(|name| harness.job(name).attempt), [2, 2, 1, 1]);
    let answer = harness.sync(id, &SyncRequest { running: vec![running(old)], ..sync_request(3) });
    assert_eq!(answer.cancel, [old]);
    assert_eq!(harness.states(&["a", "b", "c", "d"]), [Blocked, Ready, Ready, Blocked], "b is nowhere");
}

#[test]
fn retry_of_one_job_lets_another_that_was_not_told_go_on() {
    let (mut harness, workflow, id) = busy();
    cancel(&mut harness, workflow).unwrap();
    retry(&mut harness, workflow, &Retry::Jobs(vec!["c".to_owned()])).unwrap();
    let a = harness.key("a");
    let answer = harness.sync(id, &SyncRequest { running: vec![running(a)], ..sync_request(3) });
    assert_eq!(answer.cancel, []);
    harness.sync(id, &SyncRequest { finished: vec![failure(a, 1, Cause::ExitCode)], ..sync_request(4) });
    assert_eq!(harness.state_of("a"), JobState::Failed);
}

#[test]
fn a_deleted_workflow_is_gone_and_its_jobs_are_ended() {
    let (mut harness, workflow, id) = busy();
    let [a, b] = ["a", "b"].map(|name| harness.key(name));
    harness.run(|engine, tx| engine.delete(workflow, tx)).unwrap();
    assert!(harness.database.workflows.is_empty() && harness.database.jobs.is_empty());
    let answer = harness.sync(id, &SyncRequest { running: vec![running(a)], queued: vec![b], ..work_request(3, 8) });
    assert_eq!((answer.cancel, answer.leases), (vec![a, b], vec![]));
    let answer = harness.sync(id, &SyncRequest { finished: vec![success(a)], ..sync_request(4) });
    assert_eq!(answer.refused, [a]);
    let again = harness.run(|engine, tx| engine.delete(workflow, tx));
    assert_eq!(again, Err(CommandError::NoWorkflow(workflow.to_string())));
    harness.apply(&Plan::new([job("a")]));
    assert!(harness.workflow() > workflow, "numbers are never given out again");
    assert!(harness.job("a").id.0 > b.job);
}

#[test]
fn a_workflow_may_come_and_go_within_one_group() {
    let mut harness = EngineHarness::new();
    harness.open();
    harness.apply(&Plan::new([job("a"), job("b").after(&["a"])]));
    let workflow = harness.workflow();
    harness.run(|engine, tx| engine.delete(workflow, tx)).unwrap();
    harness.apply(&Plan::new([job("c")]));
    harness.commit();
    assert_eq!(harness.database.jobs.len(), 1);
    assert_eq!(harness.state_of("c"), JobState::Ready);
}

#[test]
fn workflows_are_found_by_name_and_then_by_number() {
    let mut harness = EngineHarness::with(&Plan::new([job("a")]));
    harness.apply(&Plan { name: "1".to_owned(), ..Plan::new([job("b")]) });
    assert_eq!(harness.engine.find("default", "1"), Ok(WorkflowId(2)), "a name comes first");
    assert_eq!(harness.engine.find("default", "2"), Ok(WorkflowId(2)));
    assert_eq!(harness.engine.find("default", "3"), Err(CommandError::NoWorkflow("3".to_owned())));
    assert!(harness.engine.find("other", "w").is_err());
    assert_eq!(harness.engine.job(WorkflowId(1), "a").unwrap().0, crate::ids::JobId(1));
    assert_eq!(harness.engine.job(WorkflowId(1), "1").unwrap().1.name, "a");
}

#[test]
fn a_waiting_runner_is_told_at_once_to_end_what_was_deleted() {
    let (mut harness, workflow, id) = busy();
    let request = SyncRequest { want: torc_api::wire::WorkRequest::default(), ..hold(&harness, 3) };
    assert!(harness.try_sync(id, &request).unwrap().may_wait);
    harness.run(|engine, tx| engine.delete(workflow, tx)).unwrap();
    let told = harness.run(|engine, tx| engine.poll(id, &request, tx)).expect("an answer");
    assert_eq!(told.cancel, [request.running[0].key, request.queued[0]]);
}
