//! Pins the JSON of answers of the HTTP API. Values are built field by field, and no two fields have the same value.

use serde_json::json;

use super::*;
use crate::cluster::Partition;
use crate::testing::is_written_as;

#[test]
fn a_workflow_carries_every_field() {
    let workflow = Workflow {
        id: 1,
        name: "w".to_owned(),
        namespace: "lab".to_owned(),
        owner: "ada".to_owned(),
        generation: 2,
        creation_time: "t3".to_owned(),
        working_dir: "/d4".to_owned(),
        suspended: true,
        canceled: false,
        slurm_cluster: Some("c5".to_owned()),
        enable_ro_crate: true,
        document: None,
        status: WorkflowStatus { run_id: Some(6), ..WorkflowStatus::default() },
    };
    let status = json!({ "runId": 6, "jobs": crate::status::JobCounts::default() });
    is_written_as(
        &workflow,
        json!({
            "id": 1, "name": "w", "namespace": "lab", "owner": "ada", "generation": 2, "creationTime": "t3",
            "workingDir": "/d4", "suspended": true, "canceled": false, "slurmCluster": "c5", "enableRoCrate": true, "status": status,
        }),
    );
    is_written_as(
        &Workflow { suspended: false, canceled: true, slurm_cluster: None, enable_ro_crate: false, ..workflow },
        json!({
            "id": 1, "name": "w", "namespace": "lab", "owner": "ada", "generation": 2, "creationTime": "t3",
            "workingDir": "/d4", "suspended": false, "canceled": true, "status": status,
        }),
    );
}

#[test]
fn a_job_carries_every_field() {
    let job = Job {
        id: 11,
        workflow: "w".to_owned(),
        name: "train".to_owned(),
        status: JobState::Leased,
        run_id: 12,
        attempt: 13,
        command: "c".to_owned(),
        priority: 14,
        resources: JobResources { num_cpus: 15, memory_bytes: 16, num_gpus: 17, num_nodes: 18, runtime_seconds: 19 },
        depends_on: vec!["a".to_owned()],
        waiting_for: 20,
        labels: vec!["l".to_owned()],
        node: Some("n".to_owned()),
        runner: Some(21),
        in_doubt: true,
        start_time: Some("t".to_owned()),
        origin: Some("spawn".to_owned()),
        lineage: Some("loop".to_owned()),
    };
    is_written_as(
        &job,
        json!({
            "id": 11, "workflow": "w", "name": "train", "status": "leased", "runId": 12, "attempt": 13, "command": "c",
            "priority": 14,
            "resources": { "numCpus": 15, "memoryBytes": 16, "numGpus": 17, "numNodes": 18, "runtimeSeconds": 19 },
            "dependsOn": ["a"], "waitingFor": 20, "labels": ["l"], "node": "n", "runner": 21, "inDoubt": true, "startTime": "t",
            "origin": "spawn", "lineage": "loop",
        }),
    );
    let plain = Job {
        depends_on: Vec::new(),
        waiting_for: 0,
        labels: Vec::new(),
        node: None,
        runner: None,
        in_doubt: false,
        start_time: None,
        origin: None,
        lineage: None,
        resources: JobResources::default(),
        ..job
    };
    is_written_as(
        &plain,
        json!({
            "id": 11, "workflow": "w", "name": "train", "status": "leased", "runId": 12, "attempt": 13, "command": "c",
            "priority": 14,
            "resources": { "numCpus": 0, "memoryBytes": 0, "numGpus": 0, "numNodes": 0, "runtimeSeconds": 0 },
        }),
    );
}

// S12, S13
#[test]
fn a_result_carries_every_field() {
    let result = JobResult {
        workflow: "w".to_owned(),
        job: "j".to_owned(),
        job_id: 31,
        run_id: 32,
        attempt: 33,
        status: JobState::Terminated,
        return_code: Some(152),
        cause: Some(Cause::Timeout),
        message: Some("m".to_owned()),
        start_time: Some("t1".to_owned()),
        end_time: "t2".to_owned(),
        duration_seconds: 34.5,
        node: Some("n".to_owned()),
        runner: Some(35),
        stdout: Some("o".to_owned()),
        stderr: Some("e".to_owned()),
        usage: Usage {
            peak_memory_bytes: Some(36),
            average_memory_bytes: Some(37),
            peak_cpu_percent: Some(38.5),
            average_cpu_percent: Some(39.5),
            peak_gpu_percent: Some(40.5),
            average_gpu_percent: Some(41.5),
            peak_gpu_memory_bytes: Some(42),
        },
    };
    is_written_as(
        &result,
        json!({
            "workflow": "w", "job": "j", "jobId": 31, "runId": 32, "attempt": 33, "status": "terminated", "returnCode": 152,
            "cause": "Timeout", "message": "m", "startTime": "t1", "endTime": "t2", "durationSeconds": 34.5, "node": "n",
            "runner": 35, "stdout": "o", "stderr": "e", "peakMemoryBytes": 36, "averageMemoryBytes": 37, "peakCpuPercent": 38.5,
            "averageCpuPercent": 39.5, "peakGpuPercent": 40.5, "averageGpuPercent": 41.5, "peakGpuMemoryBytes": 42,
        }),
    );
}

#[test]
fn an_action_carries_every_field() {
    let action = WorkflowAction {
        id: 51,
        trigger_type: TriggerType::OnJobsReady,
        action_type: ActionType::ScheduleNodes,
        status: ActionState::Executed,
        every_worker: true,
        is_recovery: false,
        scheduler: Some("s".to_owned()),
        num_allocations: Some(52),
        worker: Some(53),
        run_id: 54,
        attempt: 55,
        tries: 56,
        runner: Some(57),
        node: Some("n".to_owned()),
        start_time: Some("t1".to_owned()),
        end_time: Some("t2".to_owned()),
        return_code: Some(58),
        message: Some("m".to_owned()),
        stdout: Some("o".to_owned()),
        stderr: Some("e".to_owned()),
        commands: vec!["c".to_owned()],
    };
    let mut expected = json!({
        "id": 51, "triggerType": "on_jobs_ready", "actionType": "schedule_nodes", "status": "executed", "everyWorker": true,
        "isRecovery": false, "scheduler": "s", "numAllocations": 52, "worker": 53, "runId": 54, "attempt": 55, "tries": 56,
        "runner": 57, "node": "n", "startTime": "t1", "endTime": "t2", "returnCode": 58, "message": "m", "stdout": "o",
        "stderr": "e", "commands": ["c"],
    });
    is_written_as(&action, expected.clone());
    expected["isRecovery"] = json!(true);
    expected.as_object_mut().expect("an object").remove("everyWorker");
    // R11
    is_written_as(&WorkflowAction { every_worker: false, is_recovery: true, ..action }, expected);
}

#[test]
fn a_runner_carries_every_field() {
    let runner = Runner {
        id: 61,
        host: "h".to_owned(),
        pid: 62,
        kind: RunnerKind::Pod,
        status: RunnerStatus::Silent,
        capacity: Resources { cpus: 63, memory_bytes: 64, gpus: 65, nodes: 66 },
        labels: vec!["l".to_owned()],
        workflow: Some("w".to_owned()),
        slurm_job_id: Some("67".to_owned()),
        output_dir: "/o".to_owned(),
        place: "h:/p".to_owned(),
        process: Some(ProcessIdentity { boot_id: "b".to_owned(), pid_namespace: "n".to_owned(), start_ticks: 60 }),
        version: "v".to_owned(),
        queued: 68,
        running: 69,
        start_time: "t1".to_owned(),
        last_contact_time: Some("t2".to_owned()),
        end_time: Some("t3".to_owned()),
    };
    is_written_as(
        &runner,
        json!({
            "id": 61, "host": "h", "pid": 62, "kind": "pod", "status": "silent",
            "capacity": { "cpus": 63, "memoryBytes": 64, "gpus": 65, "nodes": 66 }, "labels": ["l"], "workflow": "w",
            "slurmJobId": "67", "outputDir": "/o", "place": "h:/p",
            "process": { "bootId": "b", "pidNamespace": "n", "startTicks": 60 }, "version": "v", "queued": 68, "running": 69, "startTime": "t1",
            "lastContactTime": "t2", "endTime": "t3",
        }),
    );
}

#[test]
fn events_and_audit_entries_carry_every_field() {
    let event = Event {
        sequence: 71,
        time: "t".to_owned(),
        workflow: Some("w".to_owned()),
        workflow_id: Some(72),
        reason: "JobsChanged".to_owned(),
        message: "m".to_owned(),
        jobs: vec![JobTransition { id: 73, name: "j".to_owned(), attempt: 74, status: JobState::Ready }],
    };
    is_written_as(
        &event,
        json!({
            "sequence": 71, "time": "t", "workflow": "w", "workflowId": 72, "reason": "JobsChanged", "message": "m",
            "jobs": [{ "id": 73, "name": "j", "attempt": 74, "status": "ready" }],
        }),
    );
    let plain = Event { workflow: None, workflow_id: None, message: String::new(), jobs: Vec::new(), ..event };
    is_written_as(&plain, json!({ "sequence": 71, "time": "t", "reason": "JobsChanged" }));
    let entry = AuditEntry {
        sequence: 75,
        time: "t".to_owned(),
        who: "ada".to_owned(),
        scope: "owner".to_owned(),
        verb: "cancel".to_owned(),
        object: "workflow/w".to_owned(),
        outcome: "ok".to_owned(),
    };
    is_written_as(
        &entry,
        json!({
            "sequence": 75, "time": "t", "who": "ada", "scope": "owner", "verb": "cancel", "object": "workflow/w", "outcome": "ok",
        }),
    );
}

#[test]
fn an_apply_and_its_answer_carry_every_field() {
    let document: WorkflowDocument = WorkflowDocument { api_version: "v".to_owned(), ..WorkflowDocument::default() };
    let request =
        ApplyRequest { document: document.clone(), working_dir: "/d".to_owned(), dry_run: true, store_only: false };
    is_written_as(&request, json!({ "document": document, "workingDir": "/d", "dryRun": true }));
    is_written_as(
        &ApplyRequest { dry_run: false, store_only: true, ..request },
        json!({ "document": document, "workingDir": "/d", "dryRun": false, "storeOnly": true }),
    );
    let names = |count: i64, name: &str| JobNames { count, names: vec![name.to_owned()] };
    let response = ApplyResponse {
        name: "w".to_owned(),
        namespace: "lab".to_owned(),
        id: Some(81),
        outcome: ApplyOutcome::Configured,
        changes: JobChanges {
            added: names(82, "a"),
            removed: names(83, "b"),
            changed: names(84, "c"),
            rerun: names(85, "d"),
            downstream: names(86, "e"),
            adjusted: names(87, "f"),
            unchanged: 88,
        },
    };
    is_written_as(
        &response,
        json!({
            "name": "w", "namespace": "lab", "id": 81, "outcome": "configured",
            "changes": {
                "added": { "count": 82, "names": ["a"] }, "removed": { "count": 83, "names": ["b"] },
                "changed": { "count": 84, "names": ["c"] }, "rerun": { "count": 85, "names": ["d"] },
                "downstream": { "count": 86, "names": ["e"] }, "adjusted": { "count": 87, "names": ["f"] }, "unchanged": 88,
            },
        }),
    );
}

#[test]
fn names_are_listed_up_to_a_thousand_and_counted_beyond() {
    let mut names = JobNames::default();
    for job in 0..1_001 {
        names.push(&format!("j{job}"));
    }
    assert_eq!((names.count, names.names.len(), names.names[999].as_str()), (1_001, 1_000, "j999"));
}

#[test]
fn requests_carry_every_field() {
    let retry = |jobs: &[&str], all, changed, dry_run| RetryRequest {
        jobs: jobs.iter().map(|job| (*job).to_owned()).collect(),
        all,
        changed,
        dry_run,
    };
    is_written_as(
        &retry(&["j"], true, false, false),
        json!({ "jobs": ["j"], "all": true, "changed": false, "dryRun": false }),
    );
    is_written_as(
        &retry(&[], false, true, false),
        json!({ "jobs": [], "all": false, "changed": true, "dryRun": false }),
    );
    is_written_as(
        &retry(&[], false, false, true),
        json!({ "jobs": [], "all": false, "changed": false, "dryRun": true }),
    );
    assert_eq!(serde_json::from_value::<RetryRequest>(json!({})).expect("a request"), RetryRequest::default());
    is_written_as(&AffectedJobs { jobs: 1, names: vec!["a".to_owned()] }, json!({ "jobs": 1, "names": ["a"] }));
    is_written_as(&AffectedJobs { jobs: 2, names: Vec::new() }, json!({ "jobs": 2 }));
    is_written_as(
        &GcRequest { older_than_seconds: 3, dry_run: true },
        json!({ "olderThanSeconds": 3, "dryRun": true }),
    );
    let gone = GcResponse { results: 4, events: 5, runners: 6, allocations: 7, log_files: vec!["l".to_owned()] };
    is_written_as(&gone, json!({ "results": 4, "events": 5, "runners": 6, "allocations": 7, "logFiles": ["l"] }));
    is_written_as(&BackupRequest { path: "/b".to_owned() }, json!({ "path": "/b" }));
    is_written_as(&Version { version: "v".to_owned(), protocol: 8 }, json!({ "version": "v", "protocol": 8 }));
    is_written_as(&Page { items: vec![1], next: Some("n".to_owned()) }, json!({ "items": [1], "next": "n" }));
    is_written_as(&Page::whole(vec![2]), json!({ "items": [2] }));
}

#[test]
fn an_error_carries_every_problem() {
    let error = ErrorBody {
        code: ErrorCode::Invalid,
        message: "m".to_owned(),
        field: Some("spec.x".to_owned()),
        hint: Some("h".to_owned()),
        problems: vec![Problem {
            severity: crate::problem::Severity::Warning,
            field: "f".to_owned(),
            message: "odd".to_owned(),
            hint: Some("i".to_owned()),
            position: Some(crate::problem::Position { line: 9, column: 10 }),
            kind: crate::problem::ProblemKind::Cycle,
        }],
    };
    is_written_as(
        &error,
        json!({
            "code": "Invalid", "message": "m", "field": "spec.x", "hint": "h",
            "problems": [{
                "severity": "Warning", "field": "f", "message": "odd", "hint": "i",
                "position": { "line": 9, "column": 10 }, "kind": "Cycle",
            }],
        }),
    );
    is_written_as(&Problem::error("f", "m"), json!({ "severity": "Error", "field": "f", "message": "m" }));
    is_written_as(&ErrorBody::default(), json!({ "code": "", "message": "" }));
}

#[test]
fn a_cluster_carries_every_field() {
    let partition = Partition {
        name: "p".to_owned(),
        cpus_per_node: 91,
        memory_mb: 92,
        max_walltime: "1h".to_owned(),
        gpus_per_node: Some(93),
        gpu_type: Some("h100".to_owned()),
        nodes: Some(94),
        shared: Some(true),
        requires_explicit_request: Some(false),
    };
    let cluster = SlurmCluster {
        name: "k".to_owned(),
        generation: 95,
        creation_time: Some("t1".to_owned()),
        spec: SlurmClusterSpec {
            command_prefix: vec!["ssh".to_owned()],
            default_account: Some("a".to_owned()),
            secret_name: Some("s".to_owned()),
            partitions: vec![partition.clone()],
        },
        status: Some(SlurmClusterStatus {
            last_contact_time: Some("t2".to_owned()),
            partition_count: Some(96),
            partitions: Vec::new(),
            conditions: vec![crate::condition::Condition {
                type_: "Ready".to_owned(),
                status: crate::condition::ConditionStatus::False,
                reason: "r".to_owned(),
                message: "m".to_owned(),
                last_transition_time: "t3".to_owned(),
                observed_generation: Some(97),
            }],
        }),
    };
    let expected = json!({
        "name": "p", "cpusPerNode": 91, "memoryMb": 92, "maxWalltime": "1h", "gpusPerNode": 93, "gpuType": "h100", "nodes": 94,
        "shared": true, "requiresExplicitRequest": false,
    });
    is_written_as(&partition, expected.clone());
    is_written_as(
        &cluster,
        json!({
            "name": "k", "generation": 95, "creationTime": "t1",
            "spec": { "commandPrefix": ["ssh"], "defaultAccount": "a", "secretName": "s", "partitions": [expected] },
            "status": {
                "lastContactTime": "t2", "partitionCount": 96,
                "conditions": [{
                    "type": "Ready", "status": "False", "reason": "r", "message": "m", "lastTransitionTime": "t3",
                    "observedGeneration": 97,
                }],
            },
        }),
    );
    is_written_as(
        &ClusterApplied { name: "k".to_owned(), outcome: ApplyOutcome::Unchanged },
        json!({ "name": "k", "outcome": "unchanged" }),
    );
}

/// Absent values are omitted and read as absent.
#[test]
fn what_is_absent_is_left_out() {
    let result = json!({
        "workflow": "w", "job": "j", "jobId": 1, "runId": 2, "attempt": 3, "status": "completed", "endTime": "t",
        "durationSeconds": 4.5,
    });
    let read: JobResult = serde_json::from_value(result.clone()).expect("a result");
    is_written_as(&read, result);
    let action = json!({
        "id": 1, "triggerType": "on_worker_start", "actionType": "run_commands", "status": "waiting", "isRecovery": false,
        "runId": 2, "attempt": 3, "tries": 4,
    });
    let read: WorkflowAction = serde_json::from_value(action.clone()).expect("an action");
    is_written_as(&read, action);
    let runner = json!({
        "id": 1, "host": "h", "pid": 2, "kind": "local", "status": "active", "capacity": Resources::default(), "version": "v",
        "queued": 3, "running": 4, "startTime": "t",
    });
    let read: Runner = serde_json::from_value(runner.clone()).expect("a runner");
    is_written_as(&read, runner);
    is_written_as(
        &JobTransition { id: 1, name: String::new(), attempt: 2, status: JobState::Failed },
        json!({ "id": 1, "attempt": 2, "status": "failed" }),
    );
    let applied = json!({ "name": "w", "namespace": "n", "outcome": "created", "changes": JobChanges::default() });
    let read: ApplyResponse = serde_json::from_value(applied.clone()).expect("an answer");
    is_written_as(&read, applied);
    is_written_as(&SlurmCluster::default(), json!({ "name": "", "generation": 0, "spec": {} }));
}
