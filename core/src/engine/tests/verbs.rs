//! Tests of commands beside apply.

use torc_api::state::{Cause, JobState};
use torc_api::wire::{RunnerDirective, SyncRequest};
use torc_api::workflow::StopPolicy;

use super::plan::{Plan, job};
use super::world::{World, ask, failure, runner, running, say, success};
use crate::engine::{CommandError, Retry};
use crate::ids::{RunnerId, WorkflowId};

/// `a` runs, `b` waits in the runner, `c` is ready, `d` is blocked.
fn busy() -> (World, WorkflowId, RunnerId) {
    let jobs = [job("a").priority(2), job("b").priority(1), job("c"), job("d").after(&["a"])];
    let mut world = World::with(&Plan::new(jobs));
    let id = world.register(&runner("one"));
    world.sync(id, &ask(1, 2));
    let [a, b] = ["a", "b"].map(|name| world.key(name));
    world.sync(id, &SyncRequest { running: vec![running(a)], queued: vec![b], ..say(2) });
    let workflow = world.workflow();
    (world, workflow, id)
}

fn suspend(world: &mut World, workflow: WorkflowId, suspended: bool) -> Result<(), CommandError> {
    world.run(|engine, tx| match suspended {
        true => engine.suspend(workflow, tx),
        false => engine.resume(workflow, tx),
    })
}

fn cancel(world: &mut World, workflow: WorkflowId) -> Result<i64, CommandError> {
    world.run(|engine, tx| engine.cancel(workflow, tx))
}

fn retry(world: &mut World, workflow: WorkflowId, which: &Retry) -> Result<i64, CommandError> {
    world.run(|engine, tx| engine.retry(workflow, which, tx))
}

fn hold(world: &World, sequence: u64) -> SyncRequest {
    let [a, b] = ["a", "b"].map(|name| world.key(name));
    SyncRequest { running: vec![running(a)], queued: vec![b], ..ask(sequence, 8) }
}

#[test]
fn resume_goes_on_after_a_cancellation() {
    let (mut world, workflow, id) = busy();
    cancel(&mut world, workflow).unwrap();
    suspend(&mut world, workflow, false).unwrap();
    let summary = world.engine.workflow_summary(workflow).unwrap();
    assert!(!summary.canceled);
    // `a` and `b` are with a runner that has not ended them yet.
    assert_eq!((summary.status.jobs.ready, summary.status.jobs.blocked, summary.status.jobs.canceled), (1, 3, 0));
    let old = world.key("a");
    assert_eq!(old.attempt, 2, "the attempt that ran was canceled, so the next one has another number");
    assert_eq!(world.sync(id, &ask(9, 8)).leases.len(), 3, "it says that it has nothing any more");
    let result = world.results_of("a")[0];
    assert_eq!((result.attempt, result.state, result.return_code), (1, JobState::Canceled, -128));
    assert_eq!(world.results_of("b"), Vec::<&crate::rows::ResultRow>::new(), "it never started");
}

#[test]
fn suspend_gives_no_new_leases_and_resume_does() {
    let (mut world, workflow, id) = busy();
    suspend(&mut world, workflow, true).unwrap();
    let request = hold(&world, 3);
    let answer = world.sync(id, &request);
    assert_eq!((answer.leases.len(), answer.cancel.len()), (0, 0), "what runs goes on");
    assert_eq!(answer.give_back, request.queued, "what waits in a runner does not start");
    world.restart();
    let request = hold(&world, 4);
    assert_eq!(world.sync(id, &request).leases.len(), 0, "it is stored");
    let b = world.key("b");
    let returned = SyncRequest { queued: vec![], returned: vec![b], ..hold(&world, 5) };
    assert_eq!(world.sync(id, &returned).give_back, []);
    assert_eq!((world.state_of("b"), world.job("b").attempt), (JobState::Ready, 1));
    let wake_version = world.engine.wake_version();
    suspend(&mut world, workflow, false).unwrap();
    assert!(world.engine.wake_version() > wake_version, "who waits is told");
    let a = running(world.key("a"));
    let leases = world.sync(id, &SyncRequest { running: vec![a], ..ask(6, 8) }).leases;
    assert_eq!(leases.iter().map(|lease| lease.name.as_str()).collect::<Vec<_>>(), ["b", "c"]);
}

#[test]
fn a_waiting_runner_gives_back_at_once_what_was_suspended() {
    let (mut world, workflow, id) = busy();
    let request = SyncRequest { want: torc_api::wire::WorkRequest::default(), ..hold(&world, 3) };
    assert!(world.try_sync(id, &request).unwrap().may_wait);
    let wake_version = world.engine.wake_version();
    suspend(&mut world, workflow, true).unwrap();
    assert!(world.engine.wake_version() > wake_version);
    let told = world.run(|engine, tx| engine.poll(id, &request, tx)).expect("there is wake_version");
    assert_eq!(told.give_back, request.queued);
    // Every answer repeats it, but a runner that knows it may wait for other news.
    let unheard = SyncRequest { sequence: 4, acknowledged: 2, ..request.clone() };
    assert!(!world.try_sync(id, &unheard).unwrap().may_wait);
    let heard = SyncRequest { sequence: 5, acknowledged: 4, ..request };
    let answer = world.try_sync(id, &heard).unwrap();
    assert_eq!((answer.response.give_back, answer.may_wait), (heard.queued, true));
}

#[test]
fn a_verb_does_not_overrule_the_document() {
    let plan = Plan::new([job("a")]).with(|spec| spec.suspend = Some(true));
    let mut world = World::with(&plan);
    let workflow = world.workflow();
    assert!(matches!(suspend(&mut world, workflow, false), Err(CommandError::Conflict(_))));
    let plan = Plan::new([job("a")]).with(|spec| spec.stop_policy = Some(StopPolicy::Cancel));
    world.apply(&plan);
    assert_eq!(world.state_of("a"), JobState::Canceled);
    assert!(matches!(retry(&mut world, workflow, &Retry::All), Err(CommandError::Conflict(_))));
}

#[test]
fn drain_lets_running_jobs_end_and_starts_none() {
    let plan = Plan::new([job("a")]).with(|spec| spec.stop_policy = Some(StopPolicy::Drain));
    let mut world = World::with(&plan);
    let id = world.register(&runner("one"));
    assert_eq!(world.sync(id, &ask(1, 1)).leases, []);
}

#[test]
fn cancel_ends_everything_and_tells_the_runner() {
    let (mut world, workflow, id) = busy();
    let [a, b] = ["a", "b"].map(|name| world.key(name));
    assert_eq!(cancel(&mut world, workflow), Ok(4));
    use JobState::{Canceled, Running};
    assert_eq!(world.states(&["a", "b", "c", "d"]), [Running, Canceled, Canceled, Canceled]);
    world.restart();
    let request = SyncRequest { running: vec![running(a)], queued: vec![b], ..ask(3, 8) };
    let answer = world.sync(id, &request);
    assert_eq!((answer.cancel.clone(), answer.leases.len()), (vec![a, b], 0));
    assert_eq!(answer.directive, RunnerDirective::Continue, "something still runs");
    let ended = SyncRequest { finished: vec![failure(a, 143, Cause::ExitCode)], ..say(4) };
    let answer = world.sync(id, &ended);
    assert_eq!(answer.directive, RunnerDirective::Canceled);
    let result = world.results_of("a")[0];
    assert_eq!((result.state, result.cause), (Canceled, Some(Cause::Canceled)));
    assert_eq!(cancel(&mut world, workflow), Ok(0), "there is nothing left to cancel");
}

#[test]
fn a_started_lease_of_a_canceled_workflow_is_ended() {
    let (mut world, workflow, id) = busy();
    let [a, b] = ["a", "b"].map(|name| world.key(name));
    cancel(&mut world, workflow).unwrap();
    let answer = world.sync(id, &SyncRequest { running: vec![running(a), running(b)], ..say(3) });
    assert_eq!(answer.cancel, [a, b]);
    assert_eq!(world.state_of("b"), JobState::Canceled);
}

#[test]
fn retry_after_cancel_also_takes_what_is_being_ended() {
    let (mut world, workflow, id) = busy();
    let old = world.key("a");
    cancel(&mut world, workflow).unwrap();
    assert_eq!(retry(&mut world, workflow, &Retry::Failed), Ok(4));
    use JobState::{Blocked, Ready};
    assert_eq!(world.states(&["a", "b", "c", "d"]), [Blocked, Blocked, Ready, Blocked]);
    assert_eq!(["a", "b", "c", "d"].map(|name| world.job(name).attempt), [2, 2, 1, 1]);
    let answer = world.sync(id, &SyncRequest { running: vec![running(old)], ..say(3) });
    assert_eq!(answer.cancel, [old]);
    assert_eq!(world.states(&["a", "b", "c", "d"]), [Blocked, Ready, Ready, Blocked], "b is nowhere");
}

#[test]
fn retry_of_one_job_lets_another_that_was_not_told_go_on() {
    let (mut world, workflow, id) = busy();
    cancel(&mut world, workflow).unwrap();
    retry(&mut world, workflow, &Retry::Jobs(vec!["c".to_owned()])).unwrap();
    let a = world.key("a");
    let answer = world.sync(id, &SyncRequest { running: vec![running(a)], ..say(3) });
    assert_eq!(answer.cancel, []);
    world.sync(id, &SyncRequest { finished: vec![failure(a, 1, Cause::ExitCode)], ..say(4) });
    assert_eq!(world.state_of("a"), JobState::Failed);
}

#[test]
fn a_deleted_workflow_is_gone_and_its_jobs_are_ended() {
    let (mut world, workflow, id) = busy();
    let [a, b] = ["a", "b"].map(|name| world.key(name));
    world.run(|engine, tx| engine.delete(workflow, tx)).unwrap();
    assert!(world.database.workflows.is_empty() && world.database.jobs.is_empty());
    let answer = world.sync(id, &SyncRequest { running: vec![running(a)], queued: vec![b], ..ask(3, 8) });
    assert_eq!((answer.cancel, answer.leases), (vec![a, b], vec![]));
    let answer = world.sync(id, &SyncRequest { finished: vec![success(a)], ..say(4) });
    assert_eq!(answer.refused, [a]);
    let again = world.run(|engine, tx| engine.delete(workflow, tx));
    assert_eq!(again, Err(CommandError::NoWorkflow(workflow.to_string())));
    world.apply(&Plan::new([job("a")]));
    assert!(world.workflow() > workflow, "numbers are never given out again");
    assert!(world.job("a").id.0 > b.job);
}

#[test]
fn a_workflow_may_come_and_go_within_one_group() {
    let mut world = World::new();
    world.open();
    world.apply(&Plan::new([job("a"), job("b").after(&["a"])]));
    let workflow = world.workflow();
    world.run(|engine, tx| engine.delete(workflow, tx)).unwrap();
    world.apply(&Plan::new([job("c")]));
    world.commit();
    assert_eq!(world.database.jobs.len(), 1);
    assert_eq!(world.state_of("c"), JobState::Ready);
}

#[test]
fn workflows_are_found_by_name_and_then_by_number() {
    let mut world = World::with(&Plan::new([job("a")]));
    world.apply(&Plan { name: "1".to_owned(), ..Plan::new([job("b")]) });
    assert_eq!(world.engine.find("default", "1"), Ok(WorkflowId(2)), "a name comes first");
    assert_eq!(world.engine.find("default", "2"), Ok(WorkflowId(2)));
    assert_eq!(world.engine.find("default", "3"), Err(CommandError::NoWorkflow("3".to_owned())));
    assert!(world.engine.find("other", "w").is_err());
    assert_eq!(world.engine.job(WorkflowId(1), "a").unwrap().0, crate::ids::JobId(1));
    assert_eq!(world.engine.job(WorkflowId(1), "1").unwrap().1.name, "a");
}

#[test]
fn a_waiting_runner_is_told_at_once_to_end_what_was_deleted() {
    let (mut world, workflow, id) = busy();
    let request = SyncRequest { want: torc_api::wire::WorkRequest::default(), ..hold(&world, 3) };
    assert!(world.try_sync(id, &request).unwrap().may_wait);
    world.run(|engine, tx| engine.delete(workflow, tx)).unwrap();
    let told = world.run(|engine, tx| engine.poll(id, &request, tx)).expect("there is wake_version");
    assert_eq!(told.cancel, [request.running[0].key, request.queued[0]]);
}
