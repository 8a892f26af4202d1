//! Rules that no other test file covers: events, counters of actions, ends of allocations, writes of one group.

use torc_api::action::{ActionState, TriggerType};
use torc_api::failure::{FailureHandler, FailureRule};
use torc_api::slurm::SlurmState;
use torc_api::state::{Cause, JobState};
use torc_api::wire::SyncRequest;
use torc_api::workflow::RerunPolicy;

use super::actions::commands;
use super::allocations::{for_slurm, in_slurm};
use super::harness::{EngineHarness, failure, runner, running, success, sync_request, work_request};
use super::plan::{Plan, job};
use crate::engine::{Observation, Retry};
use crate::planning::orphans::SlurmObservation;
use crate::time::rfc3339;

fn with_action(trigger: TriggerType) -> Plan {
    Plan::new([job("a")]).with(|spec| spec.actions = vec![commands(trigger, "x")])
}

#[test]
fn every_command_is_told_under_its_own_reason() {
    let mut harness = EngineHarness::with(&Plan::new([job("a"), job("b")]));
    let (id, workflow) = (harness.register(&runner("one")), harness.workflow());
    harness.run(|engine, tx| engine.suspend(workflow, tx)).unwrap();
    harness.run(|engine, tx| engine.suspend(workflow, tx)).unwrap();
    harness.run(|engine, tx| engine.resume(workflow, tx)).unwrap();
    harness.run(|engine, tx| engine.resume(workflow, tx)).unwrap();
    harness.sync(id, &SyncRequest { leaving: true, ..sync_request(1) });
    harness.run(|engine, tx| engine.cancel(workflow, tx)).unwrap();
    harness.run(|engine, tx| engine.retry(workflow, &Retry::Failed, tx)).unwrap();
    let told: Vec<&str> = harness.reasons().into_iter().filter(|reason| *reason != "JobsChanged").collect();
    let expected = [
        "WorkflowCreated",
        "RunnerRegistered",
        "WorkflowSuspended",
        "WorkflowResumed",
        "RunnerLeft",
        "WorkflowCanceled",
        "WorkflowFailed",
        "WorkflowRetried",
    ];
    assert_eq!(told, expected);
    // A deletion takes the workflow's other events with it.
    harness.run(|engine, tx| engine.delete(workflow, tx)).unwrap();
    assert_eq!(harness.reasons(), ["RunnerRegistered", "RunnerLeft", "WorkflowDeleted"]);
}

#[test]
fn a_workflow_is_shown_field_by_field() {
    let plan = Plan { namespace: Some("lab".to_owned()), ..Plan::new([job("a"), job("b")]) };
    let mut harness = EngineHarness::with(&plan.with(|spec| spec.enable_ro_crate = Some(true)));
    let created = rfc3339(harness.now.wall_ms);
    let id = harness.engine.find("lab", "w").unwrap();
    let runner = harness.register(&runner("one"));
    harness.sync(runner, &work_request(1, 1));
    harness.pass(5_000);
    harness.sync(runner, &SyncRequest { finished: vec![success(harness.key("a"))], ..sync_request(2) });
    let shown = harness.engine.workflow_summary(id).unwrap();
    assert_eq!((shown.id, shown.name.as_str(), shown.namespace.as_str()), (id.0, "w", "lab"));
    assert_eq!((shown.owner.as_str(), shown.working_dir.as_str()), ("ada", "/here"));
    assert_eq!((shown.generation, shown.creation_time), (1, created));
    assert_eq!((shown.suspended, shown.canceled, shown.enable_ro_crate), (false, false, true));
    assert_eq!((shown.slurm_cluster, shown.document), (None, None));
    let status = shown.status;
    assert_eq!((status.observed_generation, status.run_id), (Some(1), Some(1)));
    assert_eq!(status.start_time, Some(rfc3339(harness.now.wall_ms - 105)));
    assert_eq!((status.completion_time, status.progress.as_deref()), (None, Some("1/2")));
    assert_eq!(status.plan.map(|plan| plan.job_count), Some(2));
    assert_eq!((status.allocations, status.recovery), (None, None));
}

#[test]
fn an_action_that_is_armed_again_may_fail_three_times_again() {
    let mut harness = EngineHarness::with(&with_action(TriggerType::OnWorkflowComplete));
    let (id, workflow) = (harness.register(&runner("one")), harness.workflow());
    let mut sequence = 1;
    let mut next = |harness: &mut EngineHarness, finished| {
        let request = SyncRequest { finished, ..work_request(sequence, 1) };
        sequence += 1;
        harness.sync(id, &request).leases
    };
    let lease = next(&mut harness, vec![])[0].clone();
    let mut action = next(&mut harness, vec![success(lease.key)])[0].clone();
    for _ in 0..2 {
        action = next(&mut harness, vec![failure(action.key, 1, Cause::ExitCode)])[0].clone();
    }
    harness.run(|engine, tx| engine.retry(workflow, &Retry::Jobs(vec!["a".to_owned()]), tx)).unwrap();
    let shown = |harness: &EngineHarness| {
        let action = &harness.engine.actions(workflow).unwrap()[0];
        (action.status, action.tries)
    };
    assert_eq!(shown(&harness), (ActionState::Waiting, 0));
    let lease = next(&mut harness, vec![failure(action.key, 143, Cause::Canceled)]);
    let lease = lease.iter().find(|lease| lease.name == "a").unwrap().clone();
    let mut action = next(&mut harness, vec![success(lease.key)])[0].clone();
    for tries in 1..=2 {
        action = next(&mut harness, vec![failure(action.key, 1, Cause::ExitCode)])[0].clone();
        assert_eq!(shown(&harness), (ActionState::Pending, tries));
    }
    assert_eq!(next(&mut harness, vec![failure(action.key, 1, Cause::ExitCode)]), []);
    assert_eq!(shown(&harness), (ActionState::Failed, 3));
}

#[test]
fn a_new_run_has_its_actions_from_the_first_attempt_on() {
    let mut harness = EngineHarness::with(&with_action(TriggerType::OnWorkflowStart));
    let (id, workflow) = (harness.register(&runner("one")), harness.workflow());
    let lease = harness.sync(id, &work_request(1, 1)).leases[0].clone();
    let failed = SyncRequest { finished: vec![failure(lease.key, 1, Cause::ExitCode)], ..sync_request(2) };
    let again = harness.sync(id, &failed).leases[0].clone();
    assert_eq!((again.key.run, again.key.attempt), (1, 2));
    let done = SyncRequest { finished: vec![success(again.key)], ..sync_request(3) };
    assert_eq!(harness.sync(id, &done).refused, [], "a report of an action is taken in");
    harness.run(|engine, tx| engine.retry(workflow, &Retry::All, tx)).unwrap();
    let lease = harness.sync(id, &work_request(4, 1)).leases[0].clone();
    assert_eq!((lease.name.as_str(), lease.key.run, lease.key.attempt), ("on_workflow_start", 2, 1));
}

#[test]
fn an_action_that_is_given_back_goes_to_another_runner() {
    let mut harness = EngineHarness::with(&with_action(TriggerType::OnWorkflowStart));
    let [one, two] = ["one", "two"].map(|host| harness.register(&runner(host)));
    let lease = harness.sync(one, &work_request(1, 1)).leases[0].clone();
    assert_eq!(harness.sync(two, &work_request(1, 1)).leases, []);
    let returned = SyncRequest { returned: vec![lease.key], stopping: true, ..sync_request(2) };
    harness.sync(one, &returned);
    let leases = harness.sync(two, &work_request(2, 1)).leases;
    assert_eq!(leases.iter().map(|lease| lease.key.attempt).collect::<Vec<_>>(), [1], "it was not started");
}

#[test]
fn an_action_that_was_lost_says_why() {
    let mut harness = EngineHarness::with(&with_action(TriggerType::OnWorkflowStart));
    let id = harness.register(&runner("one"));
    let lease = harness.sync(id, &work_request(1, 1)).leases[0].clone();
    harness.sync(id, &SyncRequest { running: vec![running(lease.key)], ..sync_request(2) });
    harness.sync(id, &SyncRequest { stopping: true, ..sync_request(3) });
    let action = &harness.engine.actions(harness.workflow()).unwrap()[0];
    assert_eq!(action.message.as_deref(), Some("its runner no longer has it"));
    assert_eq!((action.return_code, action.tries, action.status), (Some(-128), 1, ActionState::Pending));
}

#[test]
fn a_retry_takes_away_the_actions_of_its_own_workflow_only() {
    let mut harness = EngineHarness::with(&with_action(TriggerType::OnWorkflowStart));
    harness.apply(&Plan { name: "v".to_owned(), ..with_action(TriggerType::OnWorkflowStart) });
    let (id, workflow) = (harness.register(&runner("one")), harness.workflow());
    let keys: Vec<_> = harness.sync(id, &work_request(1, 1)).leases.iter().map(|lease| lease.key).collect();
    assert_eq!(keys.len(), 2);
    harness.sync(id, &SyncRequest { running: keys.iter().copied().map(running).collect(), ..sync_request(2) });
    harness.run(|engine, tx| engine.retry(workflow, &Retry::All, tx)).unwrap();
    let answer =
        harness.sync(id, &SyncRequest { running: keys.iter().copied().map(running).collect(), ..sync_request(3) });
    let own: Vec<_> = keys.into_iter().filter(|key| key.workflow == workflow.0).collect();
    assert_eq!(answer.cancel, own);
}

/// `b` waits for `a` and for the end of its own earlier attempt. One end does not count as the other.
#[test]
fn the_end_of_an_old_attempt_does_not_free_a_job_that_waits() {
    let plan = Plan::new([job("a"), job("b").after(&["a"])]);
    let mut harness = EngineHarness::with(&plan);
    let id = harness.register(&runner("one"));
    harness.sync(id, &work_request(1, 1));
    harness.sync(id, &SyncRequest { finished: vec![success(harness.key("a"))], ..work_request(2, 1) });
    let b = harness.key("b");
    harness.sync(id, &SyncRequest { running: vec![running(b)], ..sync_request(3) });
    harness.apply(&plan.edit("a", |job| job.version += 1));
    assert_eq!(harness.states(&["a", "b"]), [JobState::Ready, JobState::Blocked]);
    harness.sync(id, &SyncRequest { finished: vec![failure(b, 143, Cause::Canceled)], ..sync_request(4) });
    assert_eq!(harness.states(&["a", "b"]), [JobState::Ready, JobState::Blocked], "a has not run again");
}

#[test]
fn an_allocation_never_ends_before_it_started() {
    let mut harness = EngineHarness::with(&for_slurm());
    let key = harness.allocation("7");
    harness.pass(60_000);
    harness.observe_slurm(key, SlurmObservation::Queued(SlurmState::Running));
    let started_ms = harness.row(key).started_ms.unwrap();
    let seen = Observation {
        observation: SlurmObservation::Recorded(SlurmState::Completed),
        end_ms: Some(started_ms - 5_000),
        ..Observation::unanswered(key)
    };
    harness.run(|engine, tx| engine.observe_allocations(&[seen], tx));
    assert_eq!(harness.row(key).ended_ms, Some(started_ms));
}

/// The end times that Slurm reports count unless they are in the future.
#[test]
fn an_allocation_ends_when_slurm_says_and_not_later_than_now() {
    for (ahead_ms, expected_ms) in [(-3_000, -3_000), (0, 0), (1, 0)] {
        let mut harness = EngineHarness::with(&for_slurm());
        let key = harness.allocation("7");
        harness.pass(60_000);
        let end_ms = Some(harness.now.wall_ms + ahead_ms);
        let observation = SlurmObservation::Recorded(SlurmState::Failed);
        let seen = Observation { observation, end_ms, ..Observation::unanswered(key) };
        harness.run(|engine, tx| engine.observe_allocations(&[seen], tx));
        assert_eq!(harness.row(key).ended_ms, Some(harness.now.wall_ms + expected_ms), "{ahead_ms}");
    }
}

#[test]
fn an_edit_keeps_allocations_and_forgives_those_in_vain() {
    let mut harness = EngineHarness::with(&for_slurm());
    for number in 1..=5 {
        let key = harness.allocation(&number.to_string());
        harness.observe_slurm(key, SlurmObservation::Recorded(SlurmState::Failed));
    }
    let live = harness.allocation("9");
    let exhausted = |harness: &EngineHarness| harness.engine.slurm_needs(None, harness.now)[0].is_exhausted;
    assert!(exhausted(&harness));
    harness.apply(&for_slurm().with(|spec| spec.project = Some("x".to_owned())));
    assert!(!exhausted(&harness));
    let counts = harness.engine.workflow_summary(harness.workflow()).unwrap().status.allocations.unwrap();
    assert_eq!((counts.finished, counts.pending, counts.active), (5, 1, 0));
    assert_eq!(harness.row(live).slurm_job_id.as_deref(), Some("9"));
}

#[test]
fn an_allocation_without_its_runners_is_left_after_two_polls() {
    let mut harness = EngineHarness::with(&for_slurm());
    let key = harness.allocation("7");
    let id = harness.register(&in_slurm("n1", "7"));
    harness.sync(id, &work_request(1, 1));
    let looks = |harness: &mut EngineHarness| {
        harness.observe_slurm(key, SlurmObservation::Queued(SlurmState::Running));
        let one = &harness.engine.slurm_needs(None, harness.now)[0].allocations[0];
        (one.idle_polls, one.is_left())
    };
    assert_eq!(looks(&mut harness), (0, false), "its runner is there");
    harness.sync(id, &SyncRequest { finished: vec![success(harness.key("a"))], leaving: true, ..sync_request(2) });
    assert_eq!(looks(&mut harness), (1, false));
    assert_eq!(looks(&mut harness), (2, true));
    harness.observe_slurm(key, SlurmObservation::Queued(SlurmState::Suspended));
    assert_eq!(looks(&mut harness), (1, false), "only looks in a row count");
    harness.register(&in_slurm("n2", "7"));
    assert_eq!(looks(&mut harness), (0, false), "another runner has come");
}

#[test]
fn no_answer_says_nothing() {
    let key = (crate::ids::WorkflowId(1), crate::ids::AllocationId(2));
    let expected = Observation {
        key,
        observation: SlurmObservation::NoAnswer,
        unseen_ms: 0,
        state_text: None,
        reason: None,
        start_ms: None,
        end_ms: None,
        node_list: None,
        partition: None,
        former_end: None,
    };
    assert_eq!(Observation::unanswered(key), expected);
}

#[test]
fn a_preview_counts_what_a_new_run_takes() {
    let plan = Plan::new([job("good"), job("bad"), job("open"), job("below").after(&["good"])]);
    let mut harness = EngineHarness::with(&plan);
    let id = harness.register(&runner("one"));
    harness.sync(id, &work_request(1, 2));
    let finished = vec![success(harness.key("good")), failure(harness.key("bad"), 1, Cause::ExitCode)];
    harness.sync(id, &SyncRequest { finished, ..sync_request(2) });
    for (policy, rerun, downstream, unchanged) in
        [(RerunPolicy::All, 4, 0, 0), (RerunPolicy::Incomplete, 3, 0, 1), (RerunPolicy::Failed, 1, 0, 3)]
    {
        let again = plan.clone().with(|spec| {
            spec.run_id = Some(2);
            spec.rerun_policy = Some(policy);
        });
        let changes = harness.engine.preview(&again.document(), &again.expanded());
        let counts = (changes.rerun.count, changes.downstream.count, changes.unchanged);
        assert_eq!(counts, (rerun, downstream, unchanged), "{policy:?}");
    }
    let same = harness.engine.preview(&plan.document(), &plan.expanded());
    assert_eq!((same.rerun.count, same.unchanged), (0, 4), "no new run");
}

#[test]
fn jobs_are_listed_by_name() {
    let harness = EngineHarness::with(&Plan::new([job("a1"), job("b1"), job("a2")]));
    let known = harness.engine.known_jobs(harness.workflow(), |name| name.starts_with('a')).unwrap();
    assert_eq!(known, ["a1", "a2"]);
}

#[test]
fn a_group_writes_the_last_state_of_a_job_once() {
    let mut harness = EngineHarness::with(&Plan::new([job("a"), job("b")]));
    let id = harness.register(&runner("one"));
    let now = harness.now;
    let mut tx = harness.engine.begin(now);
    harness.engine.sync(id, &work_request(1, 1), &mut tx).unwrap();
    let workflow = harness.workflow();
    let key = harness.engine.workflows.get(&workflow).unwrap().graph.key(0);
    harness.engine.sync(id, &SyncRequest { running: vec![running(key)], ..sync_request(2) }, &mut tx).unwrap();
    harness.engine.sync(id, &SyncRequest { finished: vec![success(key)], ..sync_request(3) }, &mut tx).unwrap();
    let changes = harness.engine.finish(tx);
    let updates: Vec<_> = changes.job_updates.iter().map(|update| (update.id.0, update.state)).collect();
    assert_eq!(updates, [(key.job, JobState::Completed)]);
    let moves: Vec<JobState> = changes.events[0].jobs.iter().map(|(_, _, state)| *state).collect();
    assert_eq!(moves, [JobState::Leased, JobState::Running, JobState::Completed], "events tell every move");
}

/// Everything that a workflow can have in one group: jobs, actions, a recovery script, detached leases, data, allocations.
#[test]
fn a_workflow_deleted_in_its_group_writes_nothing() {
    let rule = FailureRule {
        exit_codes: vec![1],
        recovery_script: Some("mend".to_owned()),
        max_retries: Some(2),
        ..FailureRule::default()
    };
    let handler = FailureHandler { name: "mend".to_owned(), rules: vec![rule] };
    let mut jobs = [job("a"), job("b")];
    jobs[0].handler = Some("mend".to_owned());
    let plan = Plan::new(jobs).with(|spec| {
        spec.failure_handlers = vec![handler];
        spec.actions = vec![commands(TriggerType::OnWorkflowComplete, "x")];
    });
    let mut harness = EngineHarness::with(&plan);
    harness.apply(&Plan { name: "v".to_owned(), ..Plan::new([job("c").priority(-1)]) });
    let id = harness.register(&runner("one"));
    harness.sync(id, &work_request(1, 3));
    let [a, b, c] = ["a", "b", "c"].map(|name| harness.key(name));
    let (now, workflow) = (harness.now, harness.workflow());
    let mut tx = harness.engine.begin(now);
    let request = SyncRequest {
        finished: vec![failure(a, 1, Cause::ExitCode)],
        running: vec![running(b), running(c)],
        stopping: true,
        ..sync_request(2)
    };
    harness.engine.sync(id, &request, &mut tx).unwrap();
    let value = Some(serde_json::json!(1));
    harness.engine.write_data(workflow, "d", value, None, &mut tx).unwrap();
    harness.engine.retry(workflow, &Retry::Jobs(vec!["b".to_owned()]), &mut tx).unwrap();
    let rows = vec![super::allocations::template()];
    harness.engine.record_submissions(workflow, rows, &mut tx).unwrap();
    harness.engine.delete(workflow, &mut tx).unwrap();
    let changes = harness.engine.finish(tx);
    assert_eq!(changes.deleted_workflows, [workflow]);
    assert_eq!(changes.job_updates.iter().map(|update| update.id.0).collect::<Vec<_>>(), [c.job]);
    assert!(changes.workflows.iter().all(|row| row.id != workflow));
    assert_eq!((changes.recoveries.len(), changes.detached_leases.len(), changes.actions.len()), (0, 0, 0));
    assert_eq!((changes.user_data.len(), changes.allocations.len(), changes.jobs.len()), (0, 0, 0));
    assert!(changes.results.iter().all(|row| row.workflow != workflow), "{:?}", changes.results);
    let of_it = |event: &&crate::rows::EventRow| event.workflow == Some(workflow);
    assert_eq!(changes.events.iter().filter(of_it).filter(|event| event.reason == "JobsChanged").count(), 0);
}

#[test]
fn only_the_latest_twenty_failures_are_shown() {
    let plan = Plan::new((0..22).map(|n| job(&format!("j{n:02}")).priority(-n)));
    let mut harness = EngineHarness::with(&plan);
    let id = harness.register(&runner("one"));
    for sequence in 0..22 {
        let lease = harness.sync(id, &work_request(2 * sequence + 1, 1)).leases[0].clone();
        let failed = vec![failure(lease.key, 1, Cause::ExitCode)];
        harness.sync(id, &SyncRequest { finished: failed, ..sync_request(2 * sequence + 2) });
    }
    let shown = harness.engine.workflow_summary(harness.workflow()).unwrap().status.failures;
    let names: Vec<&str> = shown.iter().map(|sample| sample.job.as_str()).collect();
    assert_eq!((names.len(), names[0], names[19]), (20, "j02", "j21"));
    harness.restart();
    assert_eq!(harness.engine.workflow_summary(harness.workflow()).unwrap().status.failures, shown);
}

#[test]
fn a_runner_that_comes_and_goes_in_one_group_is_written_once() {
    let mut harness = EngineHarness::with(&Plan::new([job("a")]));
    let now = harness.now;
    let mut tx = harness.engine.begin(now);
    let id = crate::ids::RunnerId(harness.engine.register(&runner("one"), &mut tx).unwrap().runner);
    harness.engine.sync(id, &SyncRequest { leaving: true, ..sync_request(1) }, &mut tx).unwrap();
    let changes = harness.engine.finish(tx);
    let written: Vec<_> = changes.runners.iter().map(|row| (row.id, row.ended_ms)).collect();
    assert_eq!(written, [(id, Some(now.wall_ms))]);
}

// J11
#[test]
fn actions_of_jobs_wait_for_the_start_of_workflow_and_worker() {
    let mut actions = [TriggerType::OnJobsReady, TriggerType::OnWorkerStart, TriggerType::OnWorkflowStart]
        .map(|trigger| commands(trigger, "x"));
    actions[0].jobs = Some(vec!["a".to_owned()]);
    let mut harness = EngineHarness::with(&Plan::new([job("a")]).with(|spec| spec.actions = actions.to_vec()));
    let id = harness.register(&runner("one"));
    let mut finished = Vec::new();
    let mut order = Vec::new();
    for sequence in 1..=4 {
        let leases = harness.sync(id, &SyncRequest { finished: finished.clone(), ..work_request(sequence, 1) }).leases;
        order.push(leases.iter().map(|lease| lease.name.clone()).collect::<Vec<_>>());
        finished = leases.iter().map(|lease| success(lease.key)).collect();
    }
    assert_eq!(order[..3], [vec!["on_workflow_start"], vec!["on_worker_start"], vec!["on_jobs_ready", "a"]]);
}

// J11
#[test]
fn actions_of_jobs_wait_for_the_start_of_the_workflow_alone() {
    let mut actions = [TriggerType::OnJobsReady, TriggerType::OnWorkflowStart].map(|trigger| commands(trigger, "x"));
    actions[0].jobs = Some(vec!["a".to_owned()]);
    let mut harness = EngineHarness::with(&Plan::new([job("a")]).with(|spec| spec.actions = actions.to_vec()));
    let id = harness.register(&runner("one"));
    let first = harness.sync(id, &work_request(1, 1)).leases;
    assert_eq!(first.iter().map(|lease| lease.name.as_str()).collect::<Vec<_>>(), ["on_workflow_start"]);
    let next = harness.sync(id, &SyncRequest { finished: vec![success(first[0].key)], ..work_request(2, 1) }).leases;
    assert_eq!(next.iter().map(|lease| lease.name.as_str()).collect::<Vec<_>>(), ["on_jobs_ready", "a"]);
}

#[test]
fn the_needs_of_a_workflow_are_told_field_by_field() {
    let plan = Plan::new([job("a").priority(1), job("b"), job("c").after(&["a"])]);
    let mut harness = EngineHarness::with(&plan.with(|spec| spec.slurm_cluster = Some("big".to_owned())));
    let id = harness.register(&runner("one"));
    harness.sync(id, &SyncRequest { want: super::harness::want(1), ..sync_request(1) });
    let needs = harness.engine.slurm_needs(None, harness.now).remove(0);
    assert_eq!((needs.workflow, needs.name.as_str(), needs.working_dir.as_str()), (harness.workflow(), "w", "/here"));
    assert_eq!((needs.cluster.as_deref(), needs.has_explicit_requests, needs.open_jobs), (Some("big"), false, 3));
    assert_eq!((needs.is_canceled, needs.is_suspended, needs.finished_ms), (false, false, None));
    let kinds: Vec<_> = needs.kinds.iter().map(|kind| (kind.ready, kind.waiting)).collect();
    assert_eq!(kinds, [(2, 1)], "what is promised has not started");
    let workflow = harness.workflow();
    harness.run(|engine, tx| engine.suspend(workflow, tx)).unwrap();
    assert!(harness.engine.slurm_needs(None, harness.now)[0].is_suspended);
    harness.allocation("7");
    harness.run(|engine, tx| engine.cancel(workflow, tx)).unwrap();
    let needs = harness.engine.slurm_needs(None, harness.now).remove(0);
    assert_eq!((needs.is_canceled, needs.open_jobs, needs.kinds.len()), (true, 0, 0));
    assert_eq!(needs.finished_ms, Some(harness.now.wall_ms));
}
