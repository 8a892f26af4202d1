//! Tests of conditions and their times.

use torc_api::condition::{Condition, ConditionStatus};
use torc_api::failure::RecoveryPolicy;
use torc_api::state::Cause;
use torc_api::wire::SyncRequest;

use super::harness::{EngineHarness, failure, runner, running, success, sync_request, work_request};
use super::plan::{Plan, job};

fn conditions(harness: &EngineHarness) -> Vec<Condition> {
    let row = &harness.database.workflows[&harness.workflow()];
    serde_json::from_str(&row.conditions).unwrap()
}

/// `Type=Status/Reason` of the conditions that are true, and of Succeeded. None of these workflows needs an allocation.
fn summary(harness: &EngineHarness) -> Vec<String> {
    conditions(harness)
        .iter()
        .filter(|condition| (condition.type_.as_str(), condition.reason.as_str()) != ("AllocationsReady", "NotNeeded"))
        .filter(|condition| condition.status == ConditionStatus::True || condition.type_ == "Succeeded")
        .map(|condition| format!("{}={}/{}", condition.type_, condition.status, condition.reason))
        .collect()
}

fn since(harness: &EngineHarness, type_: &str) -> String {
    conditions(harness).into_iter().find(|condition| condition.type_ == type_).unwrap().last_transition_time
}

#[test]
fn a_workflow_that_succeeds() {
    let mut harness = EngineHarness::with(&Plan::new([job("a"), job("b").after(&["a"])]));
    assert_eq!(summary(&harness), ["Accepted=True/Planned", "Succeeded=Unknown/Pending"]);
    let applied = since(&harness, "Finished");
    let id = harness.register(&runner("one"));
    harness.pass(1_000);
    harness.sync(id, &work_request(1, 1));
    harness.sync(id, &SyncRequest { running: vec![running(harness.key("a"))], ..sync_request(2) });
    assert_eq!(summary(&harness), ["Accepted=True/Planned", "Succeeded=Unknown/Running"]);
    harness.pass(1_000);
    harness.sync(id, &SyncRequest { finished: vec![success(harness.key("a"))], ..work_request(3, 1) });
    assert_eq!(since(&harness, "Finished"), applied, "nothing new was said");
    harness.pass(1_000);
    harness.sync(id, &SyncRequest { finished: vec![success(harness.key("b"))], ..sync_request(4) });
    assert_eq!(summary(&harness), ["Accepted=True/Planned", "Finished=True/Succeeded", "Succeeded=True/Completed"]);
    assert_eq!(since(&harness, "Accepted"), applied);
    assert_eq!(since(&harness, "Finished"), crate::time::rfc3339(harness.now.wall_ms));
    let row = &harness.database.workflows[&harness.workflow()];
    assert_eq!(row.completed_ms, Some(harness.now.wall_ms));
    assert_eq!(row.started_ms, Some(harness.now.wall_ms - 2_010));
    assert!(harness.engine.is_idle());
    let status = harness.engine.workflow_summary(harness.workflow()).unwrap().status;
    assert_eq!((status.progress.as_deref(), status.jobs.completed), (Some("2/2"), 2));
}

#[test]
fn the_end_is_announced_after_the_last_job() {
    let mut harness = EngineHarness::with(&Plan::new([job("a")]));
    let id = harness.register(&runner("one"));
    harness.sync(id, &work_request(1, 1));
    harness.sync(id, &SyncRequest { finished: vec![success(harness.key("a"))], ..sync_request(2) });
    let reasons = harness.reasons();
    assert_eq!(reasons[reasons.len() - 2..], ["JobsChanged", "WorkflowFinished"]);
}

#[test]
fn a_workflow_that_fails_and_is_tried_again() {
    let mut harness = EngineHarness::with(&Plan::new([job("a")]));
    let id = harness.register(&runner("one"));
    harness.sync(id, &work_request(1, 1));
    harness.sync(id, &SyncRequest { finished: vec![failure(harness.key("a"), 1, Cause::ExitCode)], ..sync_request(2) });
    assert_eq!(summary(&harness), ["Accepted=True/Planned", "Finished=True/Failed", "Succeeded=False/JobsFailed"]);
    let failed = since(&harness, "Succeeded");
    let workflow = harness.workflow();
    harness.pass(5_000);
    harness.run(|engine, tx| engine.retry(workflow, &crate::engine::Retry::Failed, tx)).unwrap();
    assert_eq!(summary(&harness), ["Accepted=True/Planned", "Succeeded=Unknown/Pending"]);
    assert_ne!(since(&harness, "Succeeded"), failed);
    assert_eq!(harness.database.workflows[&workflow].completed_ms, None);
}

#[test]
fn suspended_stalled_and_canceled() {
    let plan = Plan::new([job("a"), job("b").after(&["a"])]).with(|spec| spec.use_pending_failed = Some(true));
    let mut harness = EngineHarness::with(&plan);
    let workflow = harness.workflow();
    harness.run(|engine, tx| engine.suspend(workflow, tx)).unwrap();
    assert_eq!(
        summary(&harness),
        ["Accepted=True/Planned", "Suspended=True/UserRequest", "Succeeded=Unknown/Suspended"]
    );
    harness.run(|engine, tx| engine.resume(workflow, tx)).unwrap();
    let id = harness.register(&runner("one"));
    harness.sync(id, &work_request(1, 1));
    harness.sync(id, &SyncRequest { finished: vec![failure(harness.key("a"), 1, Cause::ExitCode)], ..sync_request(2) });
    assert_eq!(
        summary(&harness),
        ["Accepted=True/Planned", "Stalled=True/PendingFailedJobs", "Succeeded=Unknown/Stalled"]
    );
    harness.run(|engine, tx| engine.cancel(workflow, tx)).unwrap();
    assert_eq!(summary(&harness), ["Accepted=True/Planned", "Finished=True/Canceled", "Succeeded=False/Canceled"]);
}

#[test]
fn a_workflow_without_jobs_has_succeeded() {
    let harness = EngineHarness::with(&Plan::new([]));
    assert_eq!(summary(&harness), ["Accepted=True/Planned", "Finished=True/Succeeded", "Succeeded=True/Completed"]);
}

#[test]
fn a_status_that_says_nothing_new_is_not_written() {
    let mut harness = EngineHarness::with(&Plan::new([job("a"), job("b")]));
    let id = harness.register(&runner("one"));
    harness.sync(id, &work_request(1, 2));
    harness.sync(
        id,
        &SyncRequest { running: vec![running(harness.key("a")), running(harness.key("b"))], ..sync_request(2) },
    );
    let before = harness.database.workflows.clone();
    let request = SyncRequest {
        finished: vec![success(harness.key("a"))],
        running: vec![running(harness.key("b"))],
        ..sync_request(3)
    };
    let mut tx = harness.engine.begin(harness.now);
    harness.engine.sync(id, &request, &mut tx).unwrap();
    let changes = harness.engine.finish(tx);
    assert!(changes.workflows.is_empty(), "{:?} was {before:?}", changes.workflows);
}

#[test]
fn recovering_holds_until_the_retried_jobs_end() {
    let auto = torc_api::failure::Recovery { policy: Some(RecoveryPolicy::Auto), ..Default::default() };
    let mut harness =
        EngineHarness::with(&Plan::new([job("a"), job("b")]).with(|spec| spec.recovery = Some(auto.clone())));
    let id = harness.register(&runner("one"));
    harness.sync(id, &work_request(1, 2));
    let recovery =
        |harness: &EngineHarness| harness.engine.workflow_summary(harness.workflow()).unwrap().status.recovery;
    assert_eq!(recovery(&harness), None);
    let failed = vec![failure(harness.key("a"), 137, Cause::OutOfMemory), failure(harness.key("b"), -128, Cause::Lost)];
    harness.sync(id, &SyncRequest { finished: failed, ..sync_request(2) });
    let expected = ["Accepted=True/Planned", "Recovering=True/OutOfMemory", "Succeeded=Unknown/Recovering"];
    assert_eq!(summary(&harness), expected);
    let said = recovery(&harness).unwrap();
    assert_eq!((said.round, said.message.as_str()), (1, "2 jobs are retried: 1 after OutOfMemory, 1 after Lost"));
    assert_eq!(harness.reasons().iter().filter(|reason| **reason == "RecoveryStarted").count(), 1);
    let begun = since(&harness, "Recovering");
    harness.pass(1_000);
    harness.sync(id, &work_request(3, 2));
    harness.sync(
        id,
        &SyncRequest {
            finished: vec![success(harness.key("a"))],
            running: vec![running(harness.key("b"))],
            ..sync_request(4)
        },
    );
    assert_eq!(summary(&harness)[1], "Recovering=True/Lost");
    assert_eq!(since(&harness, "Recovering"), begun, "it is the same recovery");
    harness.sync(id, &SyncRequest { finished: vec![failure(harness.key("b"), -128, Cause::Lost)], ..sync_request(5) });
    assert_eq!(recovery(&harness).map(|recovery| recovery.round), Some(2));
    harness.sync(id, &work_request(6, 1));
    harness.sync(id, &SyncRequest { finished: vec![success(harness.key("b"))], ..sync_request(7) });
    assert_eq!(summary(&harness), ["Accepted=True/Planned", "Finished=True/Succeeded", "Succeeded=True/Completed"]);
    assert_eq!(recovery(&harness), None);
}

#[test]
fn permanent_failures_and_canceled_jobs_are_not_recovered() {
    let mut harness = EngineHarness::with(&Plan::new([job("a"), job("b")]));
    let id = harness.register(&runner("one"));
    harness.sync(id, &work_request(1, 2));
    harness.sync(
        id,
        &SyncRequest { finished: vec![failure(harness.key("a"), 137, Cause::OutOfMemory)], ..sync_request(2) },
    );
    assert_eq!(summary(&harness)[1], "Succeeded=Unknown/Running");
    harness.sync(
        id,
        &SyncRequest { finished: vec![failure(harness.key("b"), -128, Cause::NodeFailure)], ..sync_request(3) },
    );
    assert_eq!(summary(&harness)[1], "Recovering=True/NodeFailure");
    let workflow = harness.workflow();
    harness.run(|engine, tx| engine.cancel(workflow, tx)).unwrap();
    assert_eq!(summary(&harness), ["Accepted=True/Planned", "Finished=True/Canceled", "Succeeded=False/Canceled"]);
}

#[test]
fn a_workflow_is_stopped_at_its_deadline() {
    let plan = Plan::new([job("a"), job("b").after(&["a"])]).with(|spec| spec.active_deadline_seconds = Some(60));
    let mut harness = EngineHarness::with(&plan);
    let id = harness.register(&runner("one"));
    harness.silence(100_000);
    assert_eq!(summary(&harness), ["Accepted=True/Planned", "Succeeded=Unknown/Pending"], "what waits is not running");
    harness.sync(id, &work_request(1, 1));
    let a = harness.key("a");
    harness.sync(id, &SyncRequest { running: vec![running(a)], ..sync_request(2) });
    harness.silence(59_000);
    assert_eq!(harness.sync(id, &SyncRequest { running: vec![running(a)], ..sync_request(3) }).cancel, []);
    harness.silence(1_100);
    assert_eq!(harness.sync(id, &SyncRequest { running: vec![running(a)], ..sync_request(4) }).cancel, [a]);
    harness.sync(id, &SyncRequest { finished: vec![failure(a, 143, Cause::Canceled)], ..sync_request(5) });
    let over = ["Accepted=True/Planned", "Finished=True/DeadlineExceeded", "Succeeded=False/DeadlineExceeded"];
    assert_eq!(summary(&harness), over);
    assert!(harness.reasons().contains(&"DeadlineExceeded"));
    harness.restart();
    harness.silence(100_000);
    assert_eq!(summary(&harness), over);
    // After a retry, its whole deadline applies again.
    let workflow = harness.workflow();
    harness.run(|engine, tx| engine.retry(workflow, &crate::engine::Retry::Failed, tx)).unwrap();
    harness.silence(5_000);
    assert_eq!(summary(&harness), ["Accepted=True/Planned", "Succeeded=Unknown/Pending"]);
}

#[test]
fn objects_of_another_controller_are_ignored() {
    for (manager, is_ours) in [(None, true), (Some("torc.dev/torc"), true), (Some("example.com/other"), false)] {
        let plan = Plan::new([job("a")]).with(|spec| spec.managed_by = manager.map(str::to_owned));
        let mut harness = EngineHarness::with(&plan);
        let id = harness.register(&runner("one"));
        assert_eq!(harness.sync(id, &work_request(1, 1)).leases.len(), usize::from(is_ours), "{manager:?}");
        assert_eq!(summary(&harness).contains(&"Suspended=True/ManagedByOther".to_owned()), !is_ours, "{manager:?}");
    }
}

#[test]
fn a_new_run_goes_on_after_a_cancellation() {
    let mut harness = EngineHarness::with(&Plan::new([job("a")]));
    let workflow = harness.workflow();
    harness.run(|engine, tx| engine.cancel(workflow, tx)).unwrap();
    assert!(summary(&harness).contains(&"Finished=True/Canceled".to_owned()));
    harness.apply(&Plan::new([job("a")]).with(|spec| spec.run_id = Some(2)));
    assert_eq!(summary(&harness), ["Accepted=True/Planned", "Succeeded=Unknown/Pending"]);
}
