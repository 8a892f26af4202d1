//! Pins the JSON of the runner protocol. Values are built field by field, and no two fields have the same value. So a
//! field that is lost, swapped or renamed changes the JSON.

use serde_json::{Value, json};

use super::*;
use crate::execution::{ExecutionMode, Granularity, MonitorScope, StdioMode};
use crate::testing::{are_named, is_written_as};

fn key(first: i64) -> AttemptKey {
    let small = i32::try_from(first).expect("a small number");
    AttemptKey { workflow: first, job: first + 1, run: small + 2, attempt: small + 3, lease_id: first + 4 }
}

fn key_json(first: i64) -> Value {
    json!({ "workflow": first, "job": first + 1, "run": first + 2, "attempt": first + 3, "leaseId": first + 4 })
}

fn stats() -> SlurmStats {
    SlurmStats {
        workflow: 901,
        job: 902,
        run: 903,
        attempt: 904,
        slurm_job_id: Some("905".to_owned()),
        step: Some("wf901_j902_r903_a904".to_owned()),
        max_rss_bytes: Some(906),
        max_vm_size_bytes: Some(907),
        max_disk_read_bytes: Some(908),
        max_disk_write_bytes: Some(909),
        ave_cpu_seconds: Some(910.5),
        node_list: Some("n[911-912]".to_owned()),
        state: Some("TIMEOUT".to_owned()),
    }
}

fn stats_json() -> Value {
    json!({
        "workflow": 901, "job": 902, "run": 903, "attempt": 904, "slurmJobId": "905", "step": "wf901_j902_r903_a904",
        "maxRssBytes": 906, "maxVmSizeBytes": 907, "maxDiskReadBytes": 908, "maxDiskWriteBytes": 909,
        "aveCpuSeconds": 910.5, "nodeList": "n[911-912]", "state": "TIMEOUT",
    })
}

fn usage() -> Usage {
    Usage {
        peak_memory_bytes: Some(801),
        average_memory_bytes: Some(802),
        peak_cpu_percent: Some(803.5),
        average_cpu_percent: Some(804.5),
        peak_gpu_percent: Some(805.5),
        average_gpu_percent: Some(806.5),
        peak_gpu_memory_bytes: Some(807),
    }
}

fn usage_json() -> Value {
    json!({
        "peakMemoryBytes": 801, "averageMemoryBytes": 802, "peakCpuPercent": 803.5, "averageCpuPercent": 804.5,
        "peakGpuPercent": 805.5, "averageGpuPercent": 806.5, "peakGpuMemoryBytes": 807,
    })
}

fn finished() -> FinishedAttempt {
    FinishedAttempt {
        key: key(700),
        return_code: -128,
        cause: Some(Cause::Preempted),
        duration_ms: 711,
        ended_ms_ago: 712,
        stdout: Some("out/a.o".to_owned()),
        stderr: Some("out/a.e".to_owned()),
        usage: Some(usage()),
        message: Some("the node failed".to_owned()),
        files: vec![FileStat {
            path: "data/x".to_owned(),
            size_bytes: 713,
            modified_ms: 714,
            sha256: Some("ab12".to_owned()),
        }],
        slurm_stats: Some(Box::new(stats())),
    }
}

fn finished_json() -> Value {
    json!({
        "key": key_json(700), "returnCode": -128, "cause": "Preempted", "durationMs": 711, "endedMsAgo": 712,
        "stdout": "out/a.o", "stderr": "out/a.e", "usage": usage_json(), "message": "the node failed",
        "files": [{ "path": "data/x", "sizeBytes": 713, "modifiedMs": 714, "sha256": "ab12" }], "slurmStats": stats_json(),
    })
}

#[test]
fn a_registration_carries_every_field() {
    let request = RegisterRequest {
        protocol: 11,
        version: "1.2.3".to_owned(),
        host: "node7".to_owned(),
        pid: 12,
        kind: RunnerKind::Slurm,
        capacity: Resources { cpus: 13, memory_bytes: 14, gpus: 15, nodes: 16 },
        max_parallel_jobs: Some(17),
        labels: vec!["fast".to_owned(), "big".to_owned()],
        scope: RunnerScope::Workflow("lab/w".to_owned()),
        scheduler: Some("night".to_owned()),
        slurm_job_id: Some("18".to_owned()),
        allocation: Some("torc-wf3-a12".to_owned()),
        output_dir: "/out".to_owned(),
        place: "node7:/run".to_owned(),
        process: Some(ProcessIdentity {
            boot_id: "b".to_owned(),
            pid_namespace: "pid:[1]".to_owned(),
            start_ticks: 19,
        }),
    };
    is_written_as(
        &request,
        json!({
            "protocol": 11, "version": "1.2.3", "host": "node7", "pid": 12, "kind": "slurm",
            "capacity": { "cpus": 13, "memoryBytes": 14, "gpus": 15, "nodes": 16 }, "maxParallelJobs": 17,
            "labels": ["fast", "big"], "scope": { "workflow": "lab/w" }, "scheduler": "night", "slurmJobId": "18",
            "allocation": "torc-wf3-a12", "outputDir": "/out", "place": "node7:/run",
            "process": { "bootId": "b", "pidNamespace": "pid:[1]", "startTicks": 19 },
        }),
    );
    let none = json!({ "cpus": 0, "memoryBytes": 0, "gpus": 0, "nodes": 0 });
    is_written_as(
        &RegisterRequest::default(),
        json!({ "protocol": 0, "version": "", "host": "", "pid": 0, "kind": "local", "capacity": none, "scope": "all" }),
    );
    let short = json!({ "protocol": 1, "version": "1", "host": "h", "pid": 2, "capacity": none });
    let read: RegisterRequest = serde_json::from_value(short).expect("what a server reads");
    assert_eq!((read.kind, read.scope), (RunnerKind::Local, RunnerScope::All));
    let response = RegisterResponse { runner: 21, version: "4.5.6".to_owned(), lease_ms: 22 };
    is_written_as(&response, json!({ "runner": 21, "version": "4.5.6", "leaseMs": 22 }));
}

// P09
#[test]
fn a_report_carries_every_field() {
    let request = SyncRequest {
        sequence: 31,
        acknowledged: 32,
        shim_found: true,
        queued: vec![key(100)],
        running: vec![RunningAttempt { key: key(200), elapsed_ms: 33 }],
        finished: vec![finished()],
        slurm_stats: vec![stats()],
        returned: vec![key(300)],
        out_of_time: vec![key(400)],
        want: WorkRequest {
            free: Resources { cpus: 34, memory_bytes: 35, gpus: 36, nodes: 37 },
            ahead: 38,
            bridge: 43,
            limit: 39,
        },
        wait_ms: 40,
        remaining_ms: Some(41),
        lease_seconds: Some(42),
        stopping: true,
        completing: false,
        leaving: true,
    };
    let mut expected = json!({
        "sequence": 31, "acknowledged": 32, "shimFound": true, "queued": [key_json(100)],
        "running": [{ "key": key_json(200), "elapsedMs": 33 }], "finished": [finished_json()],
        "slurmStats": [stats_json()], "returned": [key_json(300)], "outOfTime": [key_json(400)],
        "want": { "free": { "cpus": 34, "memoryBytes": 35, "gpus": 36, "nodes": 37 }, "ahead": 38, "bridge": 43, "limit": 39 },
        "waitMs": 40, "remainingMs": 41, "leaseSeconds": 42, "stopping": true, "leaving": true,
    });
    is_written_as(&request, expected.clone());
    let flags = [(true, false, false), (false, true, false), (false, false, true)];
    for (flag, (stopping, completing, leaving)) in ["stopping", "completing", "leaving"].into_iter().zip(flags) {
        for other in ["stopping", "completing", "leaving", "shimFound"] {
            expected.as_object_mut().expect("an object").remove(other);
        }
        expected[flag] = json!(true);
        is_written_as(
            &SyncRequest { shim_found: false, stopping, completing, leaving, ..request.clone() },
            expected.clone(),
        );
    }
    let read: SyncRequest = serde_json::from_value(json!({ "sequence": 5 })).expect("what a server reads");
    assert_eq!(read, SyncRequest { sequence: 5, ..SyncRequest::default() });
    let none = WorkRequest { free: Resources::default(), ahead: 0, bridge: 0, limit: 0 };
    is_written_as(&read, json!({ "sequence": 5, "acknowledged": 0, "want": none, "waitMs": 0 }));
    is_written_as(&JournalledResult::default(), json!({ "endedMs": 0, "finished": FinishedAttempt::default() }));
    is_written_as(
        &FinishedAttempt::default(),
        json!({ "key": { "workflow": 0, "job": 0, "run": 0, "attempt": 0, "leaseId": 0 }, "returnCode": 0, "durationMs": 0, "endedMsAgo": 0 }),
    );
    is_written_as(&Usage::default(), json!({}));
    is_written_as(&FileStat::default(), json!({ "path": "", "sizeBytes": 0, "modifiedMs": 0 }));
}

#[test]
fn an_answer_carries_every_field() {
    let response = SyncResponse {
        sequence: 51,
        leases: vec![lease()],
        profiles: vec![profile()],
        job_tokens: vec![JobToken { workflow: 52, token: "secret".to_owned() }],
        cancel: vec![key(400)],
        give_back: vec![key(500)],
        refused: vec![key(600)],
        directive: RunnerDirective::Canceled,
        lease_ms: 53,
        prefetch: Some(prefetch()),
        terms: RunnerPolicy {
            wait_for_new_jobs_seconds: 54,
            ignore_workflow_completion: true,
            min_time_for_new_jobs_seconds: 55,
            wait_for_healthy_database_minutes: 56,
        },
        capacity_expected: true,
    };
    is_written_as(
        &response,
        json!({
            "sequence": 51, "leases": [lease_json()], "profiles": [profile_json()],
            "jobTokens": [{ "workflow": 52, "token": "secret" }], "cancel": [key_json(400)], "giveBack": [key_json(500)],
            "refused": [key_json(600)], "directive": "canceled", "leaseMs": 53,
            "prefetch": {
                "enabled": false, "batchSize": 61, "maxQueued": 62, "refillThreshold": 63, "leaseSeconds": 64, "horizonSeconds": 65,
            },
            "terms": {
                "waitForNewJobsSeconds": 54, "ignoreWorkflowCompletion": true, "minTimeForNewJobsSeconds": 55,
                "waitForHealthyDatabaseMinutes": 56,
            },
            "capacityExpected": true,
        }),
    );
    let read: SyncResponse =
        serde_json::from_value(json!({ "sequence": 6, "leaseMs": 7 })).expect("what a runner reads");
    assert_eq!(read, SyncResponse { sequence: 6, lease_ms: 7, ..SyncResponse::default() });
    is_written_as(
        &read,
        json!({ "sequence": 6, "leaseMs": 7, "directive": "continue", "terms": RunnerPolicy::default() }),
    );
}

fn prefetch() -> Prefetch {
    Prefetch {
        enabled: Some(false),
        batch_size: Some(61),
        max_queued: Some(62),
        refill_threshold: Some(63),
        lease_seconds: Some(64),
        horizon_seconds: Some(65),
    }
}

fn lease() -> Lease {
    Lease {
        key: key(70),
        name: "train".to_owned(),
        command: "python t.py".to_owned(),
        profile: 75,
        role: LeaseRole::Recovery,
        env: BTreeMap::from([("A".to_owned(), "x".to_owned())]),
        priority: 76,
        downstream_seconds: 77,
    }
}

fn lease_json() -> Value {
    json!({
        "key": key_json(70), "name": "train", "command": "python t.py", "profile": 75, "role": "recovery", "env": { "A": "x" },
        "priority": 76, "downstreamSeconds": 77,
    })
}

fn profile() -> Profile {
    Profile {
        resources: Resources { cpus: 81, memory_bytes: 82, gpus: 83, nodes: 84 },
        runtime_seconds: 85,
        unlimited: true,
        workflow_name: "w".to_owned(),
        working_dir: "/work".to_owned(),
        env: BTreeMap::from([("B".to_owned(), "y".to_owned())]),
        invocation_script: Some("nice".to_owned()),
        stdio: Some(Stdio { mode: Some(StdioMode::NoStderr), delete_on_success: Some(true) }),
        input_files: vec!["in".to_owned()],
        hash_large_files: true,
        output_files: vec!["out".to_owned()],
        execution_config: Some(ExecutionConfig {
            mode: Some(ExecutionMode::Direct),
            sigkill_headroom_seconds: Some(86),
            timeout_exit_code: Some(87),
            staggered_start: Some(false),
            stdio: Some(Stdio { mode: Some(StdioMode::Packed), delete_on_success: None }),
            limit_resources: Some(false),
            termination_signal: Some("SIGINT".to_owned()),
            sigterm_lead_seconds: Some(88),
            oom_exit_code: Some(89),
            srun_termination_signal: Some("TERM@90".to_owned()),
            enable_cpu_bind: Some(true),
            srun_mpi: Some("pmix".to_owned()),
            enforce_runtime: Some(true),
        }),
        resource_monitor: Some(ResourceMonitor {
            enabled: Some(false),
            granularity: Some(Granularity::TimeSeries),
            sample_interval_seconds: Some(91),
            flush_interval_seconds: Some(92),
            generate_plots: Some(true),
            jobs: Some(MonitorScope { enabled: Some(true), granularity: None, cpu: Some(false), memory: None }),
            compute_node: Some(MonitorScope {
                enabled: None,
                granularity: Some(Granularity::Summary),
                cpu: None,
                memory: Some(false),
            }),
        }),
        tasks_per_node: Some(93),
    }
}

fn profile_json() -> Value {
    json!({
        "resources": { "cpus": 81, "memoryBytes": 82, "gpus": 83, "nodes": 84 }, "runtimeSeconds": 85, "unlimited": true,
        "workflowName": "w", "workingDir": "/work", "env": { "B": "y" }, "invocationScript": "nice",
        "stdio": { "mode": "no_stderr", "deleteOnSuccess": true }, "inputFiles": ["in"], "hashLargeFiles": true,
        "outputFiles": ["out"],
        "executionConfig": {
            "mode": "direct", "sigkillHeadroomSeconds": 86, "timeoutExitCode": 87, "staggeredStart": false,
            "stdio": { "mode": "packed" }, "limitResources": false, "terminationSignal": "SIGINT", "sigtermLeadSeconds": 88,
            "oomExitCode": 89, "srunTerminationSignal": "TERM@90", "enableCpuBind": true, "srunMpi": "pmix", "enforceRuntime": true,
        },
        "resourceMonitor": {
            "enabled": false, "granularity": "time_series", "sampleIntervalSeconds": 91, "flushIntervalSeconds": 92,
            "generatePlots": true, "jobs": { "enabled": true, "cpu": false },
            "computeNode": { "granularity": "summary", "memory": false },
        },
        "tasksPerNode": 93,
    })
}

#[test]
fn what_a_lease_leaves_out_is_its_default() {
    let plain = Lease { role: LeaseRole::Job, env: BTreeMap::new(), priority: 0, downstream_seconds: 0, ..lease() };
    is_written_as(&plain, json!({ "key": key_json(70), "name": "train", "command": "python t.py", "profile": 75 }));
    is_written_as(
        &Profile::default(),
        json!({
            "resources": { "cpus": 0, "memoryBytes": 0, "gpus": 0, "nodes": 0 }, "runtimeSeconds": 0,
            "workflowName": "", "workingDir": "",
        }),
    );
}

// J36, J37
#[test]
fn replayed_results_carry_every_field() {
    let request = ReplayRequest {
        results: vec![JournalledResult {
            ended_ms: 41,
            runner: Some(42),
            name: "train".to_owned(),
            finished: finished(),
        }],
    };
    is_written_as(
        &request,
        json!({ "results": [{ "endedMs": 41, "runner": 42, "name": "train", "finished": finished_json() }] }),
    );
    let response = ReplayResponse {
        replayed: vec![
            Replayed { key: key(10), outcome: ReplayOutcome::Rejected, reason: Some("superseded".to_owned()) },
            Replayed { key: key(20), outcome: ReplayOutcome::Accepted, reason: None },
        ],
    };
    is_written_as(
        &response,
        json!({ "replayed": [
            { "key": key_json(10), "outcome": "rejected", "reason": "superseded" }, { "key": key_json(20), "outcome": "accepted" },
        ] }),
    );
}

#[test]
fn words_of_the_protocol() {
    are_named(&[
        (RunnerKind::Local, "local"),
        (RunnerKind::Slurm, "slurm"),
        (RunnerKind::Remote, "remote"),
        (RunnerKind::Pod, "pod"),
    ]);
    are_named(&[(RunnerScope::All, "all"), (RunnerScope::Session, "session")]);
    are_named(&[
        (RunnerDirective::Continue, "continue"),
        (RunnerDirective::Complete, "complete"),
        (RunnerDirective::Canceled, "canceled"),
        (RunnerDirective::Leave, "leave"),
    ]);
    are_named(&[
        (ReplayOutcome::Accepted, "accepted"),
        (ReplayOutcome::AlreadyKnown, "alreadyKnown"),
        (ReplayOutcome::Rejected, "rejected"),
    ]);
    let roles =
        [(LeaseRole::Job, "job", true), (LeaseRole::Action, "action", false), (LeaseRole::Recovery, "recovery", false)];
    for (role, name, is_job) in roles {
        are_named(&[(role, name)]);
        assert_eq!((role.as_str(), role.is_job(), name.parse()), (name, is_job, Ok(role)), "{name}");
    }
    assert_eq!("other".parse::<LeaseRole>(), Err("unknown kind of lease 'other'".to_owned()));
    assert_eq!((RunnerDirective::default(), LeaseRole::default()), (RunnerDirective::Continue, LeaseRole::Job));
}

// P05, J20, J25, J31
#[test]
fn numbers_of_the_protocol() {
    assert_eq!((PROTOCOL, LEASE_SECONDS, LONG_POLL_SECONDS), (1, 120, 30));
    let terms = RunnerPolicy {
        wait_for_new_jobs_seconds: 90,
        ignore_workflow_completion: false,
        min_time_for_new_jobs_seconds: 300,
        wait_for_healthy_database_minutes: 20,
    };
    assert_eq!(RunnerPolicy::default(), terms);
    let read: RunnerPolicy = serde_json::from_value(json!({ "waitForNewJobsSeconds": 1 })).expect("terms");
    assert_eq!(read, RunnerPolicy { wait_for_new_jobs_seconds: 1, ..terms });
}

// S01, J22
#[test]
fn an_attempt_is_named_by_all_its_numbers() {
    let key = AttemptKey { workflow: 42, job: 7, run: 3, attempt: 2, lease_id: 9 };
    assert_eq!(key.label(), "wf42_j7_r3_a2");
    for folder in ["out", "out/"] {
        assert_eq!(
            key.log_files(folder),
            [
                "out/job_stdio/job_wf42_j7_r3_a2.o",
                "out/job_stdio/job_wf42_j7_r3_a2.e",
                "out/job_stdio/job_wf42_j7_r3_a2.log"
            ]
        );
    }
    let names = [
        (LeaseRole::Job, "job_wf42_j7_r3_a2"),
        (LeaseRole::Action, "action_wf42_n7_r3_a2"),
        (LeaseRole::Recovery, "recovery_wf42_j7_r3_a2"),
    ];
    for (role, name) in names {
        assert_eq!(role.log_name(&key), name);
    }
}

/// Keys are ordered by workflow, job, run, attempt and lease, in this order.
#[test]
fn keys_are_ordered_by_their_first_difference() {
    let base = AttemptKey { workflow: 5, job: 5, run: 5, attempt: 5, lease_id: 5 };
    let ascending = [
        AttemptKey { workflow: 4, job: 9, run: 9, attempt: 9, lease_id: 9 },
        AttemptKey { job: 4, run: 9, attempt: 9, lease_id: 9, ..base },
        AttemptKey { run: 4, attempt: 9, lease_id: 9, ..base },
        AttemptKey { attempt: 4, lease_id: 9, ..base },
        AttemptKey { lease_id: 4, ..base },
        base,
    ];
    assert!(ascending.is_sorted(), "{ascending:?}");
}

// S17
#[test]
fn stats_are_read_in_both_spellings() {
    is_written_as(&stats(), stats_json());
    let snake = json!({
        "workflow_id": 901, "job_id": 902, "run_id": 903, "attempt_id": 904, "slurm_job_id": "905", "step": "wf901_j902_r903_a904",
        "max_rss_bytes": 906, "max_vm_size_bytes": 907, "max_disk_read_bytes": 908, "max_disk_write_bytes": 909,
        "ave_cpu_seconds": 910.5, "node_list": "n[911-912]", "state": "TIMEOUT",
    });
    assert_eq!(serde_json::from_value::<SlurmStats>(snake).expect("stats"), stats());
    let camel = json!({ "workflowId": 1, "jobId": 2, "runId": 3, "attemptId": 4 });
    let few = SlurmStats { workflow: 1, job: 2, run: 3, attempt: 4, ..SlurmStats::default() };
    assert_eq!(serde_json::from_value::<SlurmStats>(camel).expect("stats"), few);
    is_written_as(&few, json!({ "workflow": 1, "job": 2, "run": 3, "attempt": 4 }));
    assert_eq!(AttemptKey::from(&stats()), AttemptKey { workflow: 901, job: 902, run: 903, attempt: 904, lease_id: 0 });
    use crate::slurm_stats::SlurmStatsRequest;
    let one: SlurmStatsRequest = serde_json::from_value(stats_json()).expect("one");
    assert_eq!(one.into_items(), [stats()]);
    let many: SlurmStatsRequest = serde_json::from_value(json!({ "items": [stats_json(), few] })).expect("several");
    assert_eq!(many.into_items(), [stats(), few]);
}
