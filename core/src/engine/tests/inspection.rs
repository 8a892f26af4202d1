//! Answers to users and the controller: reasons, demands, allocations, actions, clusters, accounting.

use torc_api::action::{ActionState, TriggerType};
use torc_api::allocation::{AllocationOrigin, AllocationStatus};
use torc_api::api::{ApplyOutcome, RunnerStatus};
use torc_api::document::{Metadata, SlurmClusterDocument};
use torc_api::explain::{Reason, ReasonKind};
use torc_api::slurm::SlurmState;
use torc_api::slurm_stats::SlurmStats;
use torc_api::state::{Cause, JobState};
use torc_api::wire::{FinishedAttempt, RegisterRequest, Resources, RunnerKind, RunnerScope, SyncRequest};

use super::actions::commands;
use super::allocations::{for_slurm, in_slurm, template};
use super::harness::{EngineHarness, failure, runner, running, success, sync_request, work_request};
use super::plan::{Plan, job, needs};
use crate::engine::{
    AllocationKey, AllocationSummary, CommandError, Observation, PoolDemand, Retry, allocation_view, slurm_name,
};
use crate::explain::EndedAttempt;
use crate::ids::{AllocationId, WorkflowId};
use crate::planning::orphans::SlurmObservation;
use crate::planning::sizing::AllocationStage;
use crate::rows::AllocationRow;
use crate::time::rfc3339;

/// Returns the kind, the count and the named jobs of a reason.
type Shown<'a> = (ReasonKind, Option<i64>, Vec<(&'a str, JobState)>);

fn shown(reasons: &[Reason]) -> Vec<Shown<'_>> {
    let mut told = Vec::new();
    for reason in reasons {
        let jobs = reason.jobs.iter().map(|one| (one.job.as_str(), one.status)).collect();
        told.push((reason.reason, reason.count, jobs));
    }
    told
}

/// Returns a workflow with one job in each of many states: `held` is leased, `busy` runs, `bad` has failed, `late`
/// has timed out.
fn mixed() -> EngineHarness {
    let names = ["bad", "late", "busy", "done", "held"];
    let jobs = names.into_iter().zip(0..).map(|(name, index)| job(name).priority(9 - index));
    let more = [job("next").after(&["busy"]), job("lost").after(&["bad"]), job("wide").needs(needs(99, 0, 1))];
    let mut harness = EngineHarness::with(&Plan::new(jobs.chain(more)));
    let id = harness.register(&runner("one"));
    harness.sync(id, &work_request(1, 5));
    let key = |harness: &EngineHarness, name: &str| harness.key(name);
    let finished = vec![
        failure(key(&harness, "bad"), 3, Cause::ExitCode),
        failure(key(&harness, "late"), 152, Cause::Timeout),
        success(key(&harness, "done")),
    ];
    let (busy, held) = (key(&harness, "busy"), key(&harness, "held"));
    harness.sync(id, &SyncRequest { finished, running: vec![running(busy)], queued: vec![held], ..sync_request(2) });
    harness
}

#[test]
fn a_workflow_is_explained_by_the_states_of_its_jobs() {
    let harness = mixed();
    let told = harness.engine.explain_workflow(harness.workflow(), harness.now).unwrap();
    assert_eq!((told.workflow.as_str(), told.progress.as_str()), ("w", "4/8"));
    use JobState::{Blocked, Canceled, Failed, Leased, Ready, Running, Terminated};
    let expected = vec![
        (ReasonKind::Capacity, Some(1), vec![("wide", Ready)]),
        (ReasonKind::Failed, Some(1), vec![("bad", Failed)]),
        (ReasonKind::Failed, Some(1), vec![("late", Terminated)]),
        (ReasonKind::Running, Some(1), vec![("busy", Running)]),
        (ReasonKind::Promised, Some(1), vec![("held", Leased)]),
        (ReasonKind::Dependency, Some(1), vec![("next", Blocked)]),
        (ReasonKind::Canceled, Some(1), vec![("lost", Canceled)]),
        (ReasonKind::Completed, Some(1), vec![]),
    ];
    assert_eq!(shown(&told.reasons), expected);
    let biggest = "the largest, on one, has 8 CPUs, 64g of memory, 2 GPUs";
    assert!(told.reasons[0].message.ends_with(biggest), "{}", told.reasons[0].message);
    let hint = "`torc recover w --dry-run` shows how it would retry the failed jobs";
    assert_eq!(told.next.last().map(String::as_str), Some(hint));
    assert_eq!(told.next.len(), 3, "two about the biggest job, one about failed ones: {:?}", told.next);
}

#[test]
fn a_workflow_that_is_held_back_says_so_first() {
    let start = commands(TriggerType::OnWorkflowStart, "x");
    let first = |harness: &EngineHarness| {
        let told = harness.engine.explain_workflow(harness.workflow(), harness.now).unwrap();
        told.reasons.first().map(|reason| reason.reason)
    };
    let mut harness = EngineHarness::with(&Plan::new([job("a")]).with(|spec| spec.actions = vec![start]));
    assert_eq!(first(&harness), Some(ReasonKind::StartActions));
    let id = harness.workflow();
    harness.run(|engine, tx| engine.suspend(id, tx)).unwrap();
    assert_eq!(first(&harness), Some(ReasonKind::Suspended));
    let told = harness.engine.explain_workflow(id, harness.now).unwrap();
    assert_eq!(told.reasons.len(), 1, "ready jobs of a suspended workflow wait for nothing else: {:?}", told.reasons);
    harness.run(|engine, tx| engine.cancel(id, tx)).unwrap();
    assert_eq!(shown(&harness.engine.explain_workflow(id, harness.now).unwrap().reasons).len(), 1);
    let mut busy = mixed();
    let id = busy.workflow();
    busy.run(|engine, tx| engine.cancel(id, tx)).unwrap();
    assert_eq!(first(&busy), Some(ReasonKind::Canceled), "a job of it still runs");
}

#[test]
fn ready_jobs_with_the_same_reason_are_told_together() {
    let jobs = (0..7).map(|n| job(&format!("j{n}")).needs(needs(1 + n % 2, 0, 1)));
    let mut harness = EngineHarness::with(&Plan::new(jobs));
    let told =
        |harness: &EngineHarness| harness.engine.explain_workflow(harness.workflow(), harness.now).unwrap().reasons;
    let reasons = told(&harness);
    assert_eq!(reasons.len(), 1, "{reasons:?}");
    assert_eq!((reasons[0].reason, reasons[0].count), (ReasonKind::NoRunner, Some(7)), "two kinds of jobs, one reason");
    let examples: Vec<&str> = reasons[0].jobs.iter().map(|one| one.job.as_str()).collect();
    assert_eq!(examples, ["j0", "j2", "j4", "j6"], "those of the first kind");
    // Neither a runner of another workflow nor a silent one serves this workflow.
    let elsewhere = RegisterRequest { scope: RunnerScope::Workflow("v".to_owned()), ..runner("two") };
    harness.register(&elsewhere);
    assert_eq!(told(&harness)[0].message, "no runner serves its workflow");
    let id = harness.register(&runner("one"));
    assert_eq!(told(&harness)[0].reason, ReasonKind::Busy);
    harness.sync(id, &work_request(1, 1));
    harness.sync(id, &SyncRequest { running: vec![running(harness.key("j1"))], ..sync_request(2) });
    harness.silence(120_001);
    assert_eq!(told(&harness)[0].message, "the only runner of its workflow is silent");
}

#[test]
fn at_most_five_jobs_of_a_state_are_named() {
    let jobs = (0..7).map(|n| job(&format!("j{n}")).after(&["root"]));
    let harness = EngineHarness::with(&Plan::new([job("root")].into_iter().chain(jobs)));
    let reasons = harness.engine.explain_workflow(harness.workflow(), harness.now).unwrap().reasons;
    let blocked = reasons.iter().find(|reason| reason.reason == ReasonKind::Dependency).unwrap();
    assert_eq!((blocked.count, blocked.jobs.len()), (Some(7), 5));
}

#[test]
fn a_job_is_explained_by_where_it_stands() {
    let mut harness = mixed();
    harness.pass(61_990);
    let told = |harness: &EngineHarness, name: &str| {
        let told = harness.engine.explain_job(harness.workflow(), name, &[], harness.now).unwrap();
        (told.reasons[0].reason, told.reasons[0].message.clone())
    };
    let expected = [
        ("busy", ReasonKind::Running, "it has been running on one for 1m2s"),
        ("held", ReasonKind::Promised, "it is leased to the runner on one, which starts it when resources are free"),
        ("next", ReasonKind::Dependency, "it waits for job busy, which is running"),
        ("lost", ReasonKind::DependencyFailed, "it depends on job bad, which is failed"),
        ("bad", ReasonKind::Failed, "its last attempt failed"),
        ("done", ReasonKind::Completed, "it has succeeded"),
    ];
    for (name, kind, message) in expected {
        assert_eq!(told(&harness, name), (kind, message.to_owned()), "{name}");
    }
    let missing = harness.engine.explain_job(harness.workflow(), "nowhere", &[], harness.now);
    assert_eq!(missing, Err(CommandError::NoJob { workflow: "w".to_owned(), job: "nowhere".to_owned() }));
    harness.silence(120_001);
    assert_eq!(told(&harness, "busy").0, ReasonKind::RunnerSilent);
}

#[test]
fn a_job_that_got_more_says_from_what_to_what() {
    let auto = torc_api::failure::Recovery {
        policy: Some(torc_api::failure::RecoveryPolicy::Auto),
        ..torc_api::failure::Recovery::default()
    };
    let mut harness = EngineHarness::with(&Plan::new([job("a")]).with(|spec| spec.recovery = Some(auto)));
    let id = harness.register(&runner("one"));
    for sequence in [1, 3] {
        harness.sync(id, &work_request(sequence, 1));
        let failed = failure(harness.key("a"), 137, Cause::OutOfMemory);
        harness.sync(id, &SyncRequest { finished: vec![failed], ..sync_request(sequence + 1) });
    }
    let rows = harness.results_of("a").into_iter().cloned().collect::<Vec<_>>();
    let attempts: Vec<EndedAttempt<'_>> =
        rows.iter().map(|result| EndedAttempt { result, node: Some("one") }).collect();
    let told = harness.engine.explain_job(harness.workflow(), "a", &attempts, harness.now).unwrap();
    assert_eq!((told.workflow.as_str(), told.job.as_str(), told.status), ("w", "a", Some(JobState::Ready)));
    assert_eq!((told.run_id, told.attempt, told.attempts.len()), (1, 3, 2));
    assert!(told.raised[0].starts_with("memory from 1 GiB to "), "{:?}", told.raised);
    assert!(told.attempts.iter().all(|report| report.then.is_some()), "it is tried again: {:?}", told.attempts);
    harness.sync(id, &work_request(5, 1));
    let failed = SyncRequest { finished: vec![failure(harness.key("a"), 137, Cause::OutOfMemory)], ..sync_request(6) };
    harness.sync(id, &failed);
    let rows = harness.results_of("a").into_iter().cloned().collect::<Vec<_>>();
    let attempts: Vec<EndedAttempt<'_>> = rows.iter().map(|result| EndedAttempt { result, node: None }).collect();
    let told = harness.engine.explain_job(harness.workflow(), "a", &attempts, harness.now).unwrap();
    assert_eq!(told.status, Some(JobState::Failed));
    assert_eq!(told.attempts[2].then, None, "nothing follows the last one");
    assert!(told.next[0].contains("with more memory"), "{:?}", told.next);
    assert!(told.reasons[0].message.contains("out of memory"), "{:?}", told.reasons);
}

#[test]
fn a_job_of_slurm_is_explained_by_its_allocations() {
    let mut harness = EngineHarness::with(&for_slurm());
    let told = |harness: &EngineHarness| {
        let told = harness.engine.explain_job(harness.workflow(), "a", &[], harness.now).unwrap();
        told.reasons.into_iter().map(|reason| (reason.reason, reason.allocations)).collect::<Vec<_>>()
    };
    assert_eq!(told(&harness), [(ReasonKind::NoAllocation, vec![])]);
    let summary = |change: fn(&mut AllocationSummary)| {
        let mut summary = AllocationSummary::default();
        change(&mut summary);
        summary
    };
    let id = harness.workflow();
    for (summary, kind) in [
        (summary(|summary| summary.unplaced = Some("too big".to_owned())), ReasonKind::NoPartition),
        (summary(|summary| summary.refused = Some("no account".to_owned())), ReasonKind::AllocationRefused),
        (summary(|summary| summary.unreachable = Some("timeout".to_owned())), ReasonKind::SlurmUnreachable),
        (summary(|summary| summary.held_back = 1), ReasonKind::AllocationLimit),
    ] {
        harness.run(|engine, tx| engine.set_allocation_summary(id, summary, tx));
        assert_eq!(told(&harness), [(kind, vec![])]);
    }
    harness.run(|engine, tx| engine.set_allocation_summary(id, AllocationSummary::default(), tx));
    let key = harness.allocation("7");
    let start_ms = harness.now.wall_ms + 60_000;
    let seen = Observation {
        observation: SlurmObservation::Queued(SlurmState::Pending),
        reason: Some("Priority".to_owned()),
        start_ms: Some(start_ms),
        ..Observation::unanswered(key)
    };
    harness.run(|engine, tx| engine.observe_allocations(&[seen], tx));
    let reasons = harness.engine.explain_job(id, "a", &[], harness.now).unwrap().reasons;
    assert_eq!(reasons[0].allocations, ["torc-wf1-a1"]);
    let message = format!(
        "its allocation torc-wf1-a1, Slurm job 7, waits in Slurm's queue: reason Priority, expected to start at {}",
        rfc3339(start_ms)
    );
    assert_eq!((reasons[0].reason, &reasons[0].message), (ReasonKind::AllocationPending, &message));
    harness.observe_slurm(key, SlurmObservation::Queued(SlurmState::Running));
    assert_eq!(told(&harness), [(ReasonKind::Busy, vec!["torc-wf1-a1".to_owned()])], "it runs and has no runner yet");
}

#[test]
fn demands_count_what_runs_and_what_could() {
    let labelled = |name: &str| {
        let mut one = job(name);
        one.labels = vec!["gpu".to_owned()];
        one
    };
    let plan = Plan::new([job("a").priority(2), job("b"), job("c").after(&["a"]), labelled("d")]);
    let mut harness = EngineHarness::with(&plan);
    let demand = |labels: &[&str], jobs: i64| PoolDemand {
        workflow: "default/w".to_owned(),
        needs: needs(1, 0, 1),
        labels: labels.iter().map(|label| (*label).to_owned()).collect(),
        jobs,
    };
    assert_eq!(harness.engine.demands(), [demand(&[], 2), demand(&["gpu"], 1)], "c waits");
    let id = harness.register(&runner("one"));
    harness.sync(id, &work_request(1, 1));
    harness.sync(id, &SyncRequest { running: vec![running(harness.key("a"))], ..sync_request(2) });
    assert_eq!(harness.engine.demands(), [demand(&[], 2), demand(&["gpu"], 1)]);
    let workflow = harness.workflow();
    harness.run(|engine, tx| engine.suspend(workflow, tx)).unwrap();
    assert_eq!(harness.engine.demands(), [demand(&[], 1)], "what runs goes on");
    let mut harness = EngineHarness::with(&for_slurm());
    assert_eq!(harness.engine.demands().len(), 1);
    harness.engine.serve_slurm();
    assert_eq!(harness.engine.demands(), [], "its jobs are left to Slurm");
}

fn cluster(name: &str, partition: &str) -> SlurmClusterDocument {
    let metadata = Metadata { name: name.to_owned(), ..Metadata::default() };
    let labels = [("partition".to_owned(), partition.to_owned())].into();
    SlurmClusterDocument {
        api_version: torc_api::API_VERSION.to_owned(),
        metadata: Metadata { labels, ..metadata },
        ..SlurmClusterDocument::default()
    }
}

#[test]
fn a_cluster_is_created_changed_and_deleted() {
    let mut harness = EngineHarness::new();
    let apply = |harness: &mut EngineHarness, name: &str, text: &str| {
        let document = cluster(name, text);
        harness.run(|engine, tx| engine.apply_cluster(&document, tx).unwrap())
    };
    let created_ms = harness.now.wall_ms;
    assert_eq!(apply(&mut harness, "big", "x"), ApplyOutcome::Created);
    harness.pass(1_000);
    assert_eq!(apply(&mut harness, "big", "x"), ApplyOutcome::Unchanged);
    assert_eq!(apply(&mut harness, "big", "y"), ApplyOutcome::Configured);
    assert_eq!(apply(&mut harness, "small", "x"), ApplyOutcome::Created);
    let row = harness.engine.cluster("big").unwrap().clone();
    assert_eq!((row.generation, row.created_ms), (2, created_ms));
    assert!(row.document.contains("\"y\""), "{}", row.document);
    assert_eq!(harness.engine.clusters().map(|row| row.name.as_str()).collect::<Vec<_>>(), ["big", "small"]);
    assert_eq!(harness.reasons(), ["ClusterConfigured"; 3]);
    let delete = |harness: &mut EngineHarness, name: &str| harness.run(|engine, tx| engine.delete_cluster(name, tx));
    assert_eq!(delete(&mut harness, "other"), Err(CommandError::NoCluster("other".to_owned())));
    harness.apply(&for_slurm());
    let id = harness.workflow();
    let row = AllocationRow { cluster: "big".to_owned(), ..template() };
    harness.run(|engine, tx| engine.record_submissions(id, vec![row], tx).unwrap());
    assert!(matches!(delete(&mut harness, "big"), Err(CommandError::Conflict(_))), "an allocation lives in it");
    assert_eq!(delete(&mut harness, "small"), Ok(()));
    assert_eq!(harness.database.clusters.keys().collect::<Vec<_>>(), ["big"]);
    harness.restart();
    assert_eq!(harness.engine.clusters().map(|row| row.name.as_str()).collect::<Vec<_>>(), ["big"]);
}

#[test]
fn a_cluster_that_changes_twice_in_one_group_is_written_once() {
    let mut harness = EngineHarness::new();
    let mut tx = harness.engine.begin(harness.now);
    for text in ["x", "y"] {
        harness.engine.apply_cluster(&cluster("big", text), &mut tx).unwrap();
    }
    harness.engine.apply_cluster(&cluster("gone", "x"), &mut tx).unwrap();
    harness.engine.delete_cluster("gone", &mut tx).unwrap();
    harness.engine.apply_cluster(&cluster("back", "x"), &mut tx).unwrap();
    harness.engine.delete_cluster("back", &mut tx).unwrap();
    harness.engine.apply_cluster(&cluster("back", "y"), &mut tx).unwrap();
    let changes = harness.engine.finish(tx);
    let written: Vec<_> = changes.clusters.iter().map(|row| (row.name.as_str(), row.generation)).collect();
    assert_eq!(written, [("big", 2), ("back", 1)]);
    assert_eq!(changes.removed_clusters, ["gone"]);
}

// S17
#[test]
fn accounting_is_taken_of_attempts_that_there_may_have_been() {
    let mut harness = EngineHarness::with(&Plan::new([job("a")]));
    let workflow = harness.workflow();
    harness.run(|engine, tx| engine.retry(workflow, &Retry::All, tx)).unwrap();
    let good = SlurmStats {
        workflow: workflow.0,
        job: harness.job("a").id.0,
        run: 2,
        attempt: 1,
        max_rss_bytes: Some(5),
        ..SlurmStats::default()
    };
    let known = |stats: &SlurmStats| {
        let mut tx = harness.engine.begin(harness.now);
        let taken = harness.engine.record_slurm_stats(std::slice::from_ref(stats), &mut tx);
        (taken, tx.changes.rows().slurm_stats.clone())
    };
    assert_eq!(known(&good), (Ok(()), vec![good.clone()]));
    let first = SlurmStats { run: 1, ..good.clone() };
    assert_eq!(known(&first), (Ok(()), vec![first]), "of an earlier run");
    for (run, attempt) in [(3, 1), (0, 1), (2, 0)] {
        let (refused, taken) = known(&SlurmStats { run, attempt, ..good.clone() });
        assert!(matches!(refused, Err(CommandError::Invalid(_))), "run {run}, attempt {attempt}: {refused:?}");
        assert_eq!(taken, []);
    }
    let no_job = known(&SlurmStats { job: 99, ..good.clone() });
    assert_eq!(no_job, (Err(CommandError::NoJob { workflow: "w".to_owned(), job: "99".to_owned() }), vec![]));
    let no_workflow = known(&SlurmStats { workflow: 99, ..good });
    assert_eq!(no_workflow, (Err(CommandError::NoWorkflow("99".to_owned())), vec![]));
}

// S17
#[test]
fn accounting_comes_with_reports_and_by_itself() {
    let mut harness = EngineHarness::with(&Plan::new([job("a")]));
    let id = harness.register(&runner("one"));
    harness.sync(id, &work_request(1, 1));
    let key = harness.key("a");
    let stats =
        |attempt: i32| SlurmStats { workflow: key.workflow, job: key.job, run: 1, attempt, ..SlurmStats::default() };
    let finished = FinishedAttempt { slurm_stats: Some(Box::new(stats(1))), ..success(key) };
    let foreign = SlurmStats { workflow: 99, ..stats(3) };
    let request = SyncRequest { finished: vec![finished], slurm_stats: vec![stats(2), foreign], ..sync_request(2) };
    let mut tx = harness.engine.begin(harness.now);
    let answer = harness.engine.sync(id, &request, &mut tx).unwrap();
    assert!(!answer.may_wait);
    assert_eq!(tx.changes.rows().slurm_stats, [stats(1), stats(2)]);
}

#[test]
fn an_allocation_is_shown_field_by_field() {
    let row = AllocationRow {
        id: AllocationId(2),
        workflow: WorkflowId(3),
        cluster: "big".to_owned(),
        scheduler: Some("s".to_owned()),
        origin: AllocationOrigin::Recovery,
        status: AllocationStatus::Active,
        slurm_job_id: Some("77".to_owned()),
        slurm_state: Some("RUNNING".to_owned()),
        slurm_reason: Some("Priority".to_owned()),
        partition: Some("p".to_owned()),
        account: Some("acct".to_owned()),
        nodes: 4,
        seconds: 3_600,
        node_list: Some("n[1-4]".to_owned()),
        created_ms: 1_000,
        called_ms: Some(1_500),
        submitted_ms: Some(2_000),
        started_ms: Some(3_000),
        ended_ms: None,
        estimated_start_ms: Some(5_000),
        expected_end_ms: Some(6_000),
        canceled_ms: Some(7_000),
        message: Some("said".to_owned()),
        ..AllocationRow::default()
    };
    let view = allocation_view(&row, "study");
    assert_eq!((view.name.as_str(), view.id, view.workflow.as_str(), view.workflow_id), ("torc-wf3-a2", 2, "study", 3));
    assert_eq!((view.scheduler.as_deref(), view.cluster.as_str(), view.origin), (Some("s"), "big", row.origin));
    assert_eq!((view.slurm_job_id.as_deref(), view.status), (Some("77"), AllocationStatus::Active));
    assert_eq!((view.slurm_state.as_deref(), view.slurm_reason.as_deref()), (Some("RUNNING"), Some("Priority")));
    assert_eq!((view.nodes, view.node_list.as_deref(), view.walltime_seconds), (4, Some("n[1-4]"), 3_600));
    assert_eq!((view.partition.as_deref(), view.account.as_deref()), (Some("p"), Some("acct")));
    assert_eq!((view.message.as_deref(), view.canceling), (Some("said"), true));
    let times = [
        Some(view.creation_time),
        view.submit_time,
        view.start_time,
        view.end_time,
        view.estimated_start_time,
        view.expected_end_time,
    ];
    let expected = [Some(1_000), Some(2_000), Some(3_000), None, Some(5_000), Some(6_000)].map(|ms| ms.map(rfc3339));
    assert_eq!(times, expected);
    let ended = allocation_view(&AllocationRow { ended_ms: Some(8_000), ..row.clone() }, "study");
    assert_eq!((ended.end_time, ended.canceling), (Some(rfc3339(8_000)), false), "it is over");
    assert!(!allocation_view(&AllocationRow { canceled_ms: None, ..row.clone() }, "study").canceling);
    assert_eq!(slurm_name(&row, "store"), "torc-wf3-a2-store");
}

#[test]
fn an_action_is_shown_field_by_field() {
    let mut action = commands(TriggerType::OnWorkerStart, "x");
    action.persistent = Some(true);
    let plan = Plan::new([job("a")]).with(|spec| spec.actions = vec![action]);
    let mut harness = EngineHarness::with(&plan);
    let id = harness.register(&runner("one"));
    let lease = harness.sync(id, &work_request(1, 1)).leases[0].clone();
    harness.sync(id, &SyncRequest { running: vec![running(lease.key)], ..sync_request(2) });
    let view = |harness: &EngineHarness| harness.engine.actions(harness.workflow()).unwrap().pop().unwrap();
    let shown = view(&harness);
    assert_eq!((shown.id, shown.trigger_type), (lease.key.job, TriggerType::OnWorkerStart));
    assert_eq!((shown.status, shown.worker.is_some()), (ActionState::Running, true));
    assert_eq!((shown.runner, shown.node.as_deref()), (Some(id.0), Some("one")));
    assert_eq!(shown.start_time, Some(rfc3339(harness.now.wall_ms - 10)));
    assert_eq!((shown.run_id, shown.attempt, shown.tries, shown.is_recovery), (1, 1, 0, false));
    assert_eq!((shown.commands, shown.end_time), (vec!["x".to_owned()], None));
    let finished = FinishedAttempt {
        stdout: Some("o".to_owned()),
        stderr: Some("e".to_owned()),
        message: Some("said".to_owned()),
        ..failure(lease.key, 5, Cause::ExitCode)
    };
    let again = harness.sync(id, &SyncRequest { finished: vec![finished], ..sync_request(3) }).leases[0].clone();
    let shown = view(&harness);
    assert_eq!((shown.status, shown.attempt, shown.tries), (ActionState::Pending, 2, 1));
    assert_eq!((shown.return_code, shown.message.as_deref()), (Some(5), Some("said")));
    assert_eq!((shown.stdout.as_deref(), shown.stderr.as_deref()), (Some("o"), Some("e")));
    assert_eq!((shown.runner, shown.start_time), (Some(id.0), None), "it is promised again, and has not started");
    assert_eq!(shown.end_time, Some(rfc3339(harness.now.wall_ms - 5)));
    assert_eq!(again.key.attempt, 2);
    harness.sync(id, &SyncRequest { finished: vec![success(again.key)], ..sync_request(4) });
    let shown = view(&harness);
    assert_eq!((shown.status, shown.tries, shown.return_code), (ActionState::Executed, 2, Some(0)));
    assert_eq!((shown.runner, shown.start_time), (Some(id.0), Some(rfc3339(harness.now.wall_ms - 105))));
}

#[test]
fn a_runner_is_shown_field_by_field() {
    let mut harness = EngineHarness::with(&Plan::new([job("a"), job("b"), job("c")]));
    let request = RegisterRequest {
        version: "1.2".to_owned(),
        pid: 77,
        kind: RunnerKind::Slurm,
        scope: RunnerScope::Workflow("w".to_owned()),
        slurm_job_id: Some("5".to_owned()),
        output_dir: "/logs".to_owned(),
        ..runner("one")
    };
    let id = harness.register(&request);
    let started_ms = harness.now.wall_ms;
    harness.pass(2_000);
    harness.sync(id, &work_request(1, 3));
    let [a, b, c] = ["a", "b", "c"].map(|name| harness.key(name));
    harness.sync(id, &SyncRequest { running: vec![running(a)], queued: vec![b, c], ..sync_request(2) });
    let shown = harness.engine.runners().pop().unwrap();
    assert_eq!((shown.id, shown.host.as_str(), shown.pid, shown.kind), (id.0, "one", 77, RunnerKind::Slurm));
    assert_eq!((shown.status, shown.capacity), (RunnerStatus::Active, request.capacity));
    assert_eq!((shown.workflow.as_deref(), shown.slurm_job_id.as_deref()), (Some("w"), Some("5")));
    assert_eq!((shown.output_dir.as_str(), shown.version.as_str()), ("/logs", "1.2"));
    assert_eq!((shown.queued, shown.running, shown.end_time), (2, 1, None));
    assert_eq!(shown.start_time, rfc3339(started_ms));
    assert_eq!(shown.last_contact_time, Some(rfc3339(started_ms + 2_000)));
}

/// An allocation of two nodes that runs, and its capacity in the sizing of allocations.
fn stage(harness: &EngineHarness, key: AllocationKey) -> AllocationStage {
    let needs = harness.engine.slurm_needs(None, harness.now);
    let found = needs.iter().flat_map(|needs| &needs.allocations).find(|one| one.row.id == key.1);
    found.expect("it is live").stage
}

#[test]
fn an_allocation_is_whole_until_its_runner_should_have_come() {
    let mut harness = EngineHarness::with(&for_slurm());
    let id = harness.workflow();
    let row = AllocationRow { nodes: 2, cpus: 8, memory_bytes: 64, gpus: 3, ..template() };
    let rows = harness.run(|engine, tx| engine.record_submissions(id, vec![row], tx).unwrap());
    let key = (id, rows[0].id);
    harness.submitted(key, "7");
    assert_eq!(stage(&harness, key), AllocationStage::Pending);
    harness.observe_slurm(key, SlurmObservation::Queued(SlurmState::Running));
    let whole = Resources { cpus: 16, memory_bytes: 128, gpus: 6, nodes: 2 };
    harness.pass(179_999);
    let young = AllocationStage::Running { seconds_left: 3_420, free: whole, busy_seconds: 0 };
    assert_eq!(stage(&harness, key), young);
    harness.pass(1);
    let gone = AllocationStage::Running { seconds_left: 0, free: Resources::default(), busy_seconds: 0 };
    assert_eq!(stage(&harness, key), gone, "its runner has not come after three minutes");
}

#[test]
fn an_allocation_has_what_its_runners_leave_free() {
    let plan = Plan::new([job("a").needs(needs(3, 1, 2)), job("b").priority(-1)]);
    let mut harness = EngineHarness::with(&plan.with(|spec| spec.slurm_cluster = Some("local".to_owned())));
    let key = harness.allocation("7");
    let [first, second] = ["n1", "n2"].map(|host| harness.register(&in_slurm(host, "7")));
    harness.register(&in_slurm("n3", "8"));
    let all = runner("").capacity;
    let twice =
        Resources { cpus: 2 * all.cpus, memory_bytes: 2 * all.memory_bytes, gpus: 2 * all.gpus, nodes: 2 * all.nodes };
    assert_eq!(stage(&harness, key), AllocationStage::Running { seconds_left: 3_600, free: twice, busy_seconds: 0 });
    harness.sync(first, &work_request(1, 1));
    harness.sync(second, &work_request(1, 1));
    assert_eq!(harness.states(&["a", "b"]), [JobState::Leased; 2]);
    let promised = stage(&harness, key);
    assert_eq!(
        promised,
        AllocationStage::Running { seconds_left: 3_600, free: twice, busy_seconds: 0 },
        "nothing runs yet"
    );
    harness.sync(first, &SyncRequest { running: vec![running(harness.key("a"))], ..sync_request(2) });
    harness.pass(20_000);
    harness.sync(second, &SyncRequest { running: vec![running(harness.key("b"))], ..sync_request(2) });
    let free = Resources {
        cpus: twice.cpus - 4,
        memory_bytes: twice.memory_bytes - (3 << 30),
        gpus: twice.gpus - 1,
        nodes: twice.nodes,
    };
    assert_eq!(stage(&harness, key), AllocationStage::Running { seconds_left: 3_580, free, busy_seconds: 60 });
    harness.pass(30_000);
    assert_eq!(stage(&harness, key), AllocationStage::Running { seconds_left: 3_550, free, busy_seconds: 30 });
    harness.pass(86_400_000);
    assert_eq!(stage(&harness, key), AllocationStage::Running { seconds_left: 0, free, busy_seconds: 0 });
    assert_eq!(harness.engine.live_allocations(Some(harness.workflow())), 1);
    assert_eq!(harness.engine.live_allocations(Some(WorkflowId(9))), 0);
}

#[test]
fn only_selected_workflows_are_served() {
    let mut harness = EngineHarness::with(&for_slurm());
    let served = |harness: &EngineHarness, scope: Option<RunnerScope>| {
        harness.engine.slurm_needs(scope.as_ref(), harness.now).iter().map(|needs| needs.is_served).collect::<Vec<_>>()
    };
    assert_eq!(served(&harness, None), [false]);
    assert_eq!(served(&harness, Some(RunnerScope::All)), [true]);
    assert_eq!(served(&harness, Some(RunnerScope::Session)), [true]);
    assert_eq!(served(&harness, Some(RunnerScope::Workflow("w".to_owned()))), [true]);
    assert_eq!(served(&harness, Some(RunnerScope::Workflow("v".to_owned()))), [false]);
    harness.restart();
    assert_eq!(served(&harness, Some(RunnerScope::Session)), [false], "another process was not told to run it");
    let id = harness.workflow();
    harness.engine.serve(id).unwrap();
    assert_eq!(served(&harness, Some(RunnerScope::Session)), [true]);
    assert_eq!(harness.engine.serve(WorkflowId(9)), Err(CommandError::NoWorkflow("9".to_owned())));
}

#[test]
fn nothing_follows_an_attempt_that_waits_for_a_decision() {
    let plan = Plan::new([job("a")]).with(|spec| spec.use_pending_failed = Some(true));
    let mut harness = EngineHarness::with(&plan);
    let id = harness.register(&runner("one"));
    harness.sync(id, &work_request(1, 1));
    harness.sync(id, &SyncRequest { finished: vec![failure(harness.key("a"), 3, Cause::ExitCode)], ..sync_request(2) });
    assert_eq!(harness.state_of("a"), JobState::PendingFailed);
    let row = harness.results_of("a")[0].clone();
    let told =
        harness.engine.explain_job(harness.workflow(), "a", &[EndedAttempt { result: &row, node: None }], harness.now);
    let told = told.unwrap();
    assert_eq!((told.reasons[0].reason, &told.attempts[0].then), (ReasonKind::NeedsDecision, &None));
}
