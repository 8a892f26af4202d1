//! Tests of conditions and their times.

use torc_api::condition::{Condition, ConditionStatus};
use torc_api::failure::RecoveryPolicy;
use torc_api::state::Cause;
use torc_api::wire::SyncRequest;

use super::plan::{Plan, job};
use super::world::{World, ask, failure, runner, running, say, success};

fn conditions(world: &World) -> Vec<Condition> {
    let row = &world.database.workflows[&world.workflow()];
    serde_json::from_str(&row.conditions).unwrap()
}

/// `Type=Status/Reason` of the conditions that are true, and of Succeeded. None of these workflows needs an allocation.
fn summary(world: &World) -> Vec<String> {
    conditions(world)
        .iter()
        .filter(|condition| (condition.type_.as_str(), condition.reason.as_str()) != ("AllocationsReady", "NotNeeded"))
        .filter(|condition| condition.status == ConditionStatus::True || condition.type_ == "Succeeded")
        .map(|condition| format!("{}={}/{}", condition.type_, condition.status, condition.reason))
        .collect()
}

fn since(world: &World, type_: &str) -> String {
    conditions(world).into_iter().find(|condition| condition.type_ == type_).unwrap().last_transition_time
}

#[test]
fn a_workflow_that_succeeds() {
    let mut world = World::with(&Plan::new([job("a"), job("b").after(&["a"])]));
    assert_eq!(summary(&world), ["Accepted=True/Planned", "Succeeded=Unknown/Pending"]);
    let applied = since(&world, "Finished");
    let id = world.register(&runner("one"));
    world.pass(1_000);
    world.sync(id, &ask(1, 1));
    world.sync(id, &SyncRequest { running: vec![running(world.key("a"))], ..say(2) });
    assert_eq!(summary(&world), ["Accepted=True/Planned", "Succeeded=Unknown/Running"]);
    world.pass(1_000);
    world.sync(id, &SyncRequest { finished: vec![success(world.key("a"))], ..ask(3, 1) });
    assert_eq!(since(&world, "Finished"), applied, "nothing new was said");
    world.pass(1_000);
    world.sync(id, &SyncRequest { finished: vec![success(world.key("b"))], ..say(4) });
    assert_eq!(summary(&world), ["Accepted=True/Planned", "Finished=True/Succeeded", "Succeeded=True/Completed"]);
    assert_eq!(since(&world, "Accepted"), applied);
    assert_eq!(since(&world, "Finished"), crate::time::rfc3339(world.now.wall_ms));
    let row = &world.database.workflows[&world.workflow()];
    assert_eq!(row.completed_ms, Some(world.now.wall_ms));
    assert_eq!(row.started_ms, Some(world.now.wall_ms - 2_010));
    assert!(world.engine.is_idle());
    let status = world.engine.workflow_summary(world.workflow()).unwrap().status;
    assert_eq!((status.progress.as_deref(), status.jobs.completed), (Some("2/2"), 2));
}

#[test]
fn the_end_is_announced_after_the_last_job() {
    let mut world = World::with(&Plan::new([job("a")]));
    let id = world.register(&runner("one"));
    world.sync(id, &ask(1, 1));
    world.sync(id, &SyncRequest { finished: vec![success(world.key("a"))], ..say(2) });
    let reasons = world.reasons();
    assert_eq!(reasons[reasons.len() - 2..], ["JobsChanged", "WorkflowFinished"]);
}

#[test]
fn a_workflow_that_fails_and_is_tried_again() {
    let mut world = World::with(&Plan::new([job("a")]));
    let id = world.register(&runner("one"));
    world.sync(id, &ask(1, 1));
    world.sync(id, &SyncRequest { finished: vec![failure(world.key("a"), 1, Cause::ExitCode)], ..say(2) });
    assert_eq!(summary(&world), ["Accepted=True/Planned", "Finished=True/Failed", "Succeeded=False/JobsFailed"]);
    let failed = since(&world, "Succeeded");
    let workflow = world.workflow();
    world.pass(5_000);
    world.run(|engine, tx| engine.retry(workflow, &crate::engine::Retry::Failed, tx)).unwrap();
    assert_eq!(summary(&world), ["Accepted=True/Planned", "Succeeded=Unknown/Pending"]);
    assert_ne!(since(&world, "Succeeded"), failed);
    assert_eq!(world.database.workflows[&workflow].completed_ms, None);
}

#[test]
fn suspended_stalled_and_canceled() {
    let plan = Plan::new([job("a"), job("b").after(&["a"])]).with(|spec| spec.use_pending_failed = Some(true));
    let mut world = World::with(&plan);
    let workflow = world.workflow();
    world.run(|engine, tx| engine.suspend(workflow, tx)).unwrap();
    assert_eq!(summary(&world), ["Accepted=True/Planned", "Suspended=True/UserRequest", "Succeeded=Unknown/Suspended"]);
    world.run(|engine, tx| engine.resume(workflow, tx)).unwrap();
    let id = world.register(&runner("one"));
    world.sync(id, &ask(1, 1));
    world.sync(id, &SyncRequest { finished: vec![failure(world.key("a"), 1, Cause::ExitCode)], ..say(2) });
    assert_eq!(
        summary(&world),
        ["Accepted=True/Planned", "Stalled=True/PendingFailedJobs", "Succeeded=Unknown/Stalled"]
    );
    world.run(|engine, tx| engine.cancel(workflow, tx)).unwrap();
    assert_eq!(summary(&world), ["Accepted=True/Planned", "Finished=True/Canceled", "Succeeded=False/Canceled"]);
}

#[test]
fn a_workflow_without_jobs_has_succeeded() {
    let world = World::with(&Plan::new([]));
    assert_eq!(summary(&world), ["Accepted=True/Planned", "Finished=True/Succeeded", "Succeeded=True/Completed"]);
}

#[test]
fn a_status_that_says_nothing_new_is_not_written() {
    let mut world = World::with(&Plan::new([job("a"), job("b")]));
    let id = world.register(&runner("one"));
    world.sync(id, &ask(1, 2));
    world.sync(id, &SyncRequest { running: vec![running(world.key("a")), running(world.key("b"))], ..say(2) });
    let before = world.database.workflows.clone();
    let request =
        SyncRequest { finished: vec![success(world.key("a"))], running: vec![running(world.key("b"))], ..say(3) };
    let mut tx = world.engine.begin(world.now);
    world.engine.sync(id, &request, &mut tx).unwrap();
    let changes = world.engine.finish(tx);
    assert!(changes.workflows.is_empty(), "{:?} was {before:?}", changes.workflows);
}

#[test]
fn recovering_holds_until_the_retried_jobs_end() {
    let auto = torc_api::failure::Recovery { policy: Some(RecoveryPolicy::Auto), ..Default::default() };
    let mut world = World::with(&Plan::new([job("a"), job("b")]).with(|spec| spec.recovery = Some(auto.clone())));
    let id = world.register(&runner("one"));
    world.sync(id, &ask(1, 2));
    let recovery = |world: &World| world.engine.workflow_summary(world.workflow()).unwrap().status.recovery;
    assert_eq!(recovery(&world), None);
    let failed = vec![failure(world.key("a"), 137, Cause::OutOfMemory), failure(world.key("b"), -128, Cause::Lost)];
    world.sync(id, &SyncRequest { finished: failed, ..say(2) });
    let expected = ["Accepted=True/Planned", "Recovering=True/OutOfMemory", "Succeeded=Unknown/Recovering"];
    assert_eq!(summary(&world), expected);
    let said = recovery(&world).unwrap();
    assert_eq!((said.round, said.message.as_str()), (1, "2 jobs are retried: 1 after OutOfMemory, 1 after Lost"));
    assert_eq!(world.reasons().iter().filter(|reason| **reason == "RecoveryStarted").count(), 1);
    let begun = since(&world, "Recovering");
    world.pass(1_000);
    world.sync(id, &ask(3, 2));
    world.sync(
        id,
        &SyncRequest { finished: vec![success(world.key("a"))], running: vec![running(world.key("b"))], ..say(4) },
    );
    assert_eq!(summary(&world)[1], "Recovering=True/Lost");
    assert_eq!(since(&world, "Recovering"), begun, "it is the same recovery");
    world.sync(id, &SyncRequest { finished: vec![failure(world.key("b"), -128, Cause::Lost)], ..say(5) });
    assert_eq!(recovery(&world).map(|recovery| recovery.round), Some(2));
    world.sync(id, &ask(6, 1));
    world.sync(id, &SyncRequest { finished: vec![success(world.key("b"))], ..say(7) });
    assert_eq!(summary(&world), ["Accepted=True/Planned", "Finished=True/Succeeded", "Succeeded=True/Completed"]);
    assert_eq!(recovery(&world), None);
}

#[test]
fn permanent_failures_and_canceled_jobs_are_not_recovered() {
    let mut world = World::with(&Plan::new([job("a"), job("b")]));
    let id = world.register(&runner("one"));
    world.sync(id, &ask(1, 2));
    world.sync(id, &SyncRequest { finished: vec![failure(world.key("a"), 137, Cause::OutOfMemory)], ..say(2) });
    assert_eq!(summary(&world)[1], "Succeeded=Unknown/Running");
    world.sync(id, &SyncRequest { finished: vec![failure(world.key("b"), -128, Cause::NodeFailure)], ..say(3) });
    assert_eq!(summary(&world)[1], "Recovering=True/NodeFailure");
    let workflow = world.workflow();
    world.run(|engine, tx| engine.cancel(workflow, tx)).unwrap();
    assert_eq!(summary(&world), ["Accepted=True/Planned", "Finished=True/Canceled", "Succeeded=False/Canceled"]);
}

#[test]
fn a_workflow_is_stopped_at_its_deadline() {
    let plan = Plan::new([job("a"), job("b").after(&["a"])]).with(|spec| spec.active_deadline_seconds = Some(60));
    let mut world = World::with(&plan);
    let id = world.register(&runner("one"));
    world.silence(100_000);
    assert_eq!(summary(&world), ["Accepted=True/Planned", "Succeeded=Unknown/Pending"], "what waits is not running");
    world.sync(id, &ask(1, 1));
    let a = world.key("a");
    world.sync(id, &SyncRequest { running: vec![running(a)], ..say(2) });
    world.silence(59_000);
    assert_eq!(world.sync(id, &SyncRequest { running: vec![running(a)], ..say(3) }).cancel, []);
    world.silence(1_100);
    assert_eq!(world.sync(id, &SyncRequest { running: vec![running(a)], ..say(4) }).cancel, [a]);
    world.sync(id, &SyncRequest { finished: vec![failure(a, 143, Cause::Canceled)], ..say(5) });
    let over = ["Accepted=True/Planned", "Finished=True/DeadlineExceeded", "Succeeded=False/DeadlineExceeded"];
    assert_eq!(summary(&world), over);
    assert!(world.reasons().contains(&"DeadlineExceeded"));
    world.restart();
    world.silence(100_000);
    assert_eq!(summary(&world), over);
    // Tried again, it has its whole time again.
    let workflow = world.workflow();
    world.run(|engine, tx| engine.retry(workflow, &crate::engine::Retry::Failed, tx)).unwrap();
    world.silence(5_000);
    assert_eq!(summary(&world), ["Accepted=True/Planned", "Succeeded=Unknown/Pending"]);
}

#[test]
fn objects_of_another_controller_are_ignored() {
    for (manager, is_ours) in [(None, true), (Some("torc.dev/torc"), true), (Some("example.com/other"), false)] {
        let plan = Plan::new([job("a")]).with(|spec| spec.managed_by = manager.map(str::to_owned));
        let mut world = World::with(&plan);
        let id = world.register(&runner("one"));
        assert_eq!(world.sync(id, &ask(1, 1)).leases.len(), usize::from(is_ours), "{manager:?}");
        assert_eq!(summary(&world).contains(&"Suspended=True/ManagedByOther".to_owned()), !is_ours, "{manager:?}");
    }
}

#[test]
fn a_new_run_goes_on_after_a_cancellation() {
    let mut world = World::with(&Plan::new([job("a")]));
    let workflow = world.workflow();
    world.run(|engine, tx| engine.cancel(workflow, tx)).unwrap();
    assert!(summary(&world).contains(&"Finished=True/Canceled".to_owned()));
    world.apply(&Plan::new([job("a")]).with(|spec| spec.run_id = Some(2)));
    assert_eq!(summary(&world), ["Accepted=True/Planned", "Succeeded=Unknown/Pending"]);
}
