//! The contents of a lease, of a result and of a runner's row, field by field; and the times at which leases expire.

use std::collections::BTreeMap;

use torc_api::execution::{ExecutionConfig, ResourceMonitor, Stdio};
use torc_api::failure::Prefetch;
use torc_api::state::{Cause, JobState};
use torc_api::wire::{
    AttemptKey, FileStat, FinishedAttempt, ProcessIdentity, Profile, RegisterRequest, Resources, RunnerKind,
    RunnerScope, SyncRequest, Usage, WorkRequest,
};

use super::harness::{EngineHarness, failure, runner, running, success, sync_request, work_request};
use super::plan::{Plan, job};
use crate::engine::Apply;
use crate::expanded::{Expanded, ExpandedFile, ExpandedUserData, Requirements};
use crate::rows::{FileRow, ResultRow, RunnerRow};

fn apply(harness: &mut EngineHarness, plan: &Plan, expanded: &Expanded) {
    let document = plan.document();
    let apply = Apply { document: &document, expanded, owner: "ada", working_dir: "/here", store_only: false };
    harness.run(|engine, tx| engine.apply(&apply, tx).unwrap());
}

// J07
#[test]
fn a_job_without_requirements_is_leased_as_one_cpu_and_1_mb() {
    let mut harness = EngineHarness::with(&Plan::new([job("a").needs(Requirements::default())]));
    let id = harness.register(&runner("one"));
    let answer = harness.sync(id, &work_request(1, 1));
    let profile = &answer.profiles[answer.leases[0].profile as usize];
    let expected = Resources { cpus: 1, memory_bytes: 1 << 20, gpus: 0, nodes: 1 };
    assert_eq!((profile.resources, profile.runtime_seconds, profile.unlimited), (expected, 60, true));
}

// J06, J07
#[test]
fn jobs_without_requirements_fill_a_node_by_cpu_and_by_memory() {
    let many = || Plan::new((0..12).map(|n| job(&format!("j{n}")).needs(Requirements::default())));
    let leased = |free: Resources| {
        let mut harness = EngineHarness::with(&many());
        let id = harness.register(&RegisterRequest { capacity: free, ..runner("one") });
        harness
            .sync(
                id,
                &SyncRequest { want: WorkRequest { free, limit: 99, ..WorkRequest::default() }, ..sync_request(1) },
            )
            .leases
            .len()
    };
    let mib = 1 << 20;
    assert_eq!(leased(Resources { cpus: 8, memory_bytes: 64 * mib, gpus: 0, nodes: 1 }), 8, "one CPU each");
    assert_eq!(leased(Resources { cpus: 64, memory_bytes: 5 * mib, gpus: 0, nodes: 1 }), 5, "1 MiB each");
    assert_eq!(leased(Resources { cpus: 64, memory_bytes: 5 * mib - 1, gpus: 0, nodes: 1 }), 4);
}

#[test]
fn a_lease_says_everything_about_its_job() {
    let needs = Requirements {
        name: "big".to_owned(),
        num_cpus: 3,
        memory_bytes: 5 << 20,
        num_gpus: 1,
        num_nodes: 1,
        runtime_seconds: 77,
    };
    let execution = ExecutionConfig { timeout_exit_code: Some(99), ..ExecutionConfig::default() };
    let monitor = ResourceMonitor { sample_interval_seconds: Some(13), ..ResourceMonitor::default() };
    let plan = Plan::new([job("a").needs(needs.clone())]).with(|spec| {
        spec.execution_config = Some(execution.clone());
        spec.resource_monitor = Some(monitor.clone());
        spec.enable_ro_crate = Some(true);
    });
    let mut expanded = plan.expanded();
    let file = |name: &str| ExpandedFile { name: name.to_owned(), path: format!("{name}.txt"), identifier: None };
    expanded.files = ["in", "out", "more"].map(file).to_vec();
    let value = Some(serde_json::json!(41));
    expanded.user_data = vec![ExpandedUserData { name: "d".to_owned(), data: value, is_ephemeral: false }];
    let stdio = Stdio { delete_on_success: Some(true), ..Stdio::default() };
    let env = BTreeMap::from([("KEY".to_owned(), "value".to_owned())]);
    let described = &mut expanded.jobs[0];
    described.command = "use ${user_data.input.d}".to_owned();
    described.invocation_script = Some("prepare ${user_data.input.d}".to_owned());
    described.env = env.clone();
    described.stdio = Some(stdio.clone());
    described.input_files = vec![0, 2];
    described.output_files = vec![1];
    described.input_user_data = vec![0];
    described.tasks_per_node = Some(4);
    let mut harness = EngineHarness::new();
    apply(&mut harness, &plan, &expanded);
    let id = harness.register(&runner("one"));
    let answer = harness.sync(id, &work_request(1, 1));
    let lease = &answer.leases[0];
    assert_eq!((lease.name.as_str(), lease.command.as_str()), ("a", "use 41"));
    let expected = Profile {
        resources: Resources { cpus: 3, memory_bytes: 5 << 20, gpus: 1, nodes: 1 },
        runtime_seconds: 77,
        unlimited: false,
        workflow_name: "w".to_owned(),
        working_dir: "/here".to_owned(),
        env,
        invocation_script: Some("prepare 41".to_owned()),
        stdio: Some(stdio),
        input_files: vec!["in.txt".to_owned(), "more.txt".to_owned()],
        hash_large_files: true,
        output_files: vec!["out.txt".to_owned()],
        execution_config: Some(execution),
        resource_monitor: Some(monitor),
        tasks_per_node: Some(4),
    };
    assert_eq!(answer.profiles[lease.profile as usize], expected);
}

#[test]
fn leases_point_to_the_profiles_of_their_own_workflow() {
    let mut harness =
        EngineHarness::with(&Plan::new([job("a").needs(Requirements { num_cpus: 2, ..Requirements::default() })]));
    harness.apply(&Plan { name: "v".to_owned(), ..Plan::new([job("b"), job("c")]) });
    let id = harness.register(&runner("one"));
    let answer = harness.sync(id, &work_request(1, 8));
    let described = |name: &str| {
        let lease = answer.leases.iter().find(|lease| lease.name == name).expect("it was leased");
        let profile = &answer.profiles[lease.profile as usize];
        (profile.workflow_name.as_str(), profile.resources.cpus)
    };
    assert_eq!((described("a"), described("b"), described("c")), (("w", 2), ("v", 1), ("v", 1)));
    assert_eq!(answer.profiles.len(), 2, "jobs that are alike share a profile");
}

#[test]
fn a_result_is_written_field_by_field() {
    let mut harness = EngineHarness::with(&Plan::new([job("a"), job("b")]));
    let id = harness.register(&runner("one"));
    harness.sync(id, &work_request(1, 2));
    let [a, b] = ["a", "b"].map(|name| harness.key(name));
    let usage = Usage { peak_memory_bytes: Some(11), average_cpu_percent: Some(12.5), ..Usage::default() };
    let seen = |path: &str| FileStat {
        path: path.to_owned(),
        size_bytes: 21,
        modified_ms: 22,
        sha256: Some("cafe".to_owned()),
    };
    let told = FinishedAttempt {
        key: a,
        duration_ms: 3_000,
        ended_ms_ago: 400,
        stdout: Some("a.out".to_owned()),
        stderr: Some("a.err".to_owned()),
        usage: Some(usage),
        message: Some("said".to_owned()),
        files: vec![seen("x")],
        ..FinishedAttempt::default()
    };
    let failed = FinishedAttempt { key: b, return_code: 9, files: vec![seen("y")], ..told.clone() };
    harness.pass(10_000);
    harness.sync(id, &SyncRequest { finished: vec![told, failed], ..sync_request(2) });
    let now = harness.now.wall_ms;
    let expected = ResultRow {
        workflow: harness.workflow(),
        job: harness.job("a").id,
        run: 1,
        attempt: 1,
        state: JobState::Completed,
        return_code: 0,
        cause: None,
        message: Some("said".to_owned()),
        started_ms: now - 3_400,
        ended_ms: now - 400,
        runner: Some(id),
        stdout: Some("a.out".to_owned()),
        stderr: Some("a.err".to_owned()),
        usage,
    };
    assert_eq!(harness.results_of("a"), [&expected]);
    let of_b = harness.results_of("b")[0];
    let failure = (of_b.job, of_b.state, of_b.return_code, of_b.cause);
    assert_eq!(failure, (harness.job("b").id, JobState::Failed, 9, Some(Cause::ExitCode)));
    let files: Vec<&FileRow> = harness.database.files.values().collect();
    let file = FileRow {
        workflow: harness.workflow(),
        job: harness.job("a").id,
        path: "x".to_owned(),
        size_bytes: 21,
        modified_ms: 22,
        sha256: Some("cafe".to_owned()),
        seen_ms: now,
    };
    assert_eq!(files, [&file], "only what a job that succeeded saw is written down");
    assert_eq!(harness.database.workflows[&harness.workflow()].started_ms, Some(now - 3_400));
}

/// Two attempts in each of two runs: every result and file belongs to the attempt that wrote it.
#[test]
fn every_attempt_of_every_run_has_its_own_result() {
    let mut harness = EngineHarness::with(&Plan::new([job("a")]));
    let workflow = harness.workflow();
    let seen = FileStat { path: "x".to_owned(), size_bytes: 1, modified_ms: 1, sha256: None };
    for run in 1..=2 {
        let id = harness.register(&runner("one"));
        harness.sync(id, &work_request(1, 1));
        harness
            .sync(id, &SyncRequest { finished: vec![failure(harness.key("a"), -128, Cause::Lost)], ..sync_request(2) });
        harness.sync(id, &work_request(3, 1));
        let written = FileStat { size_bytes: run, ..seen.clone() };
        let done = FinishedAttempt { files: vec![written], ..success(harness.key("a")) };
        harness.sync(id, &SyncRequest { finished: vec![done], ..sync_request(4) });
        let file = &harness.database.files[&(harness.workflow(), harness.job("a").id, "x".to_owned())];
        assert_eq!(file.size_bytes, run, "of the latest success");
        if run == 1 {
            let again = crate::engine::Retry::All;
            harness.run(|engine, tx| engine.retry(workflow, &again, tx)).unwrap();
        }
    }
    let told: Vec<_> = harness.results_of("a").iter().map(|row| (row.run, row.attempt, row.cause)).collect();
    assert_eq!(told, [(1, 1, Some(Cause::Lost)), (1, 2, None), (2, 1, Some(Cause::Lost)), (2, 2, None)]);
}

#[test]
fn a_runner_is_written_field_by_field() {
    let request = RegisterRequest {
        version: "1.2.3".to_owned(),
        host: "n7".to_owned(),
        pid: 4_711,
        kind: RunnerKind::Slurm,
        capacity: Resources { cpus: 3, memory_bytes: 5, gpus: 7, nodes: 2 },
        max_parallel_jobs: Some(11),
        labels: vec!["z".to_owned(), "b".to_owned(), "z".to_owned()],
        scope: RunnerScope::Workflow("lab/w".to_owned()),
        scheduler: Some("s".to_owned()),
        slurm_job_id: Some("99".to_owned()),
        output_dir: "/logs".to_owned(),
        place: "n7:/shim".to_owned(),
        process: Some(ProcessIdentity { start_ticks: 3, ..ProcessIdentity::default() }),
        ..runner("n7")
    };
    let mut harness = EngineHarness::new();
    let id = harness.register(&request);
    let expected = RunnerRow {
        id,
        host: "n7".to_owned(),
        pid: 4_711,
        kind: RunnerKind::Slurm,
        capacity: request.capacity,
        max_parallel_jobs: Some(11),
        labels: vec!["b".to_owned(), "z".to_owned()],
        scope: request.scope.clone(),
        scheduler: Some("s".to_owned()),
        slurm_job_id: Some("99".to_owned()),
        output_dir: "/logs".to_owned(),
        place: "n7:/shim".to_owned(),
        process: request.process.clone(),
        version: "1.2.3".to_owned(),
        started_ms: harness.now.wall_ms,
        ended_ms: None,
    };
    assert_eq!(harness.database.runners[&id], expected);
}

/// The lease duration that a workflow or a runner requests, and its minimum.
// P05, P08
#[test]
fn leases_end_right_after_their_time() {
    for (asked, own, lease_ms) in [
        (None, None, 120_000),
        (Some(45), None, 45_000),
        (Some(45), Some(600), 600_000),
        (None, Some(6), 6_000),
        (None, Some(5), 5_000),
        (None, Some(4), 5_000),
        (None, Some(0), 5_000),
    ] {
        let prefetch = asked.map(|lease_seconds| Prefetch { lease_seconds: Some(lease_seconds), ..Default::default() });
        let mut harness = EngineHarness::with(&Plan::new([job("a")]).with(|spec| spec.prefetch = prefetch));
        let id = harness.register(&runner("one"));
        let answer = harness.sync(id, &SyncRequest { lease_seconds: own, ..work_request(1, 1) });
        assert_eq!(answer.lease_ms, lease_ms, "{asked:?} {own:?}");
        harness.silence(lease_ms);
        assert_eq!(harness.state_of("a"), JobState::Leased, "{asked:?} {own:?}");
        harness.silence(1);
        assert_eq!(harness.state_of("a"), JobState::Ready, "{asked:?} {own:?}");
    }
}

/// A lost or failed attempt is retried at once: the engine has no backoff.
#[test]
fn a_retried_job_is_ready_in_the_same_message() {
    for cause in [Cause::Lost, Cause::NodeFailure, Cause::Preempted, Cause::Stopped] {
        let mut harness = EngineHarness::with(&Plan::new([job("a")]));
        let id = harness.register(&runner("one"));
        harness.sync(id, &work_request(1, 1));
        let failed = SyncRequest { finished: vec![failure(harness.key("a"), 1, cause)], ..work_request(2, 1) };
        let leases = harness.sync(id, &failed).leases;
        assert_eq!(leases.iter().map(|lease| lease.key.attempt).collect::<Vec<_>>(), [2], "{cause}");
    }
}

#[test]
fn a_runner_that_speaks_has_its_whole_lease_again() {
    let mut harness = EngineHarness::with(&Plan::new([job("a"), job("b")]));
    let id = harness.register(&runner("one"));
    harness.sync(id, &work_request(1, 2));
    let [a, b] = ["a", "b"].map(|name| harness.key(name));
    for sequence in 2..5 {
        harness.silence(119_999);
        harness.sync(id, &SyncRequest { running: vec![running(a)], queued: vec![b], ..sync_request(sequence) });
        assert_eq!(harness.states(&["a", "b"]), [JobState::Running, JobState::Leased], "message {sequence}");
    }
    harness.silence(120_000);
    assert_eq!(harness.state_of("b"), JobState::Leased);
    harness.silence(1);
    assert_eq!(harness.states(&["a", "b"]), [JobState::Running, JobState::Ready]);
    let silent: Vec<&str> = harness
        .database
        .events
        .iter()
        .filter(|event| event.reason == "RunnerSilent")
        .map(|event| event.message.as_str())
        .collect();
    assert_eq!(silent, ["runner 1 on one has been silent for 120 s"]);
}

/// Declared runtimes are estimates: a job may start with two minutes less than its runtime left before its first
/// signal. In direct mode the signal comes 90 s before the end of the runner. Steps of this workflow get it 120 s
/// before their limit, which is a whole number of minutes and 60 s before the end.
// J39, X05, X10, X11
#[test]
fn a_runner_gets_only_jobs_that_end_in_its_time() {
    let needs = Requirements { name: "hour".to_owned(), runtime_seconds: 3_600, ..Requirements::default() };
    let mut plan = Plan::new([job("a").needs(needs)]);
    plan.spec.execution_config =
        Some(ExecutionConfig { srun_termination_signal: Some("TERM@120".to_owned()), ..ExecutionConfig::default() });
    let cases = [
        (RunnerKind::Local, None, 1),
        (RunnerKind::Local, Some(3_570_000), 1),
        (RunnerKind::Local, Some(3_569_999), 0),
        (RunnerKind::Local, Some(0), 0),
        (RunnerKind::Slurm, Some(3_660_000), 1),
        (RunnerKind::Slurm, Some(3_659_999), 0),
    ];
    for (kind, remaining_ms, leases) in cases {
        let mut harness = EngineHarness::with(&plan);
        let id = harness.register(&RegisterRequest { kind, ..runner("one") });
        let answer = harness.sync(id, &SyncRequest { remaining_ms, ..work_request(1, 1) });
        assert_eq!(answer.leases.len(), leases, "{kind:?} {remaining_ms:?}");
    }
}

/// The event gives the reason once, even if the runner repeats the returned lease.
#[test]
fn a_lease_returned_for_lack_of_time_says_so() {
    let mut harness = EngineHarness::with(&Plan::new([job("a"), job("b")]));
    let id = harness.register(&runner("one"));
    let keys: Vec<AttemptKey> = harness.sync(id, &work_request(1, 2)).leases.iter().map(|lease| lease.key).collect();
    for sequence in 2..4 {
        let request = SyncRequest { returned: keys.clone(), out_of_time: vec![keys[1]], ..sync_request(sequence) };
        harness.sync(id, &request);
    }
    assert_eq!(harness.states(&["a", "b"]), [JobState::Ready, JobState::Ready]);
    let events = harness.database.events.iter().filter(|event| event.reason == "LeaseReturned");
    let messages: Vec<&str> = events.map(|event| event.message.as_str()).collect();
    let expected =
        "the runner on one returned job 'b' without starting it: its remaining time is too short for a runtime of 1m";
    assert_eq!(messages, [expected]);
}
