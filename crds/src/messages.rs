//! Pins the JSON of the remaining messages. Values are built field by field, and no two fields have the same value.

use serde_json::json;

use crate::allocation::{
    Allocation, AllocationOrigin, AllocationStatus, OrphanReport, OrphanedAllocation, OrphanedJob, UnreachableReason,
    UnreachableRunner,
};
use crate::condition::{Condition, ConditionStatus};
use crate::data::{
    DataUse, File, FileRole, FileStatus, FileUse, SpawnRequest, SpawnResponse, Staleness, UserData, UserDataWritten,
    WriteUserData,
};
use crate::explain::{AttemptReport, JobExplanation, JobPhase, Reason, ReasonKind, WorkflowExplanation};
use crate::logs::{LogChunk, LogChunkRequest, LogSyncRequest, LogSyncResponse};
use crate::recovery::{
    ClassifyRequest, CorrectResourcesReport, CorrectResourcesRequest, Correction, FailureClass, MachineMatch,
    NodesScheduled, ProcessState, RecoverReport, RecoverRequest, RecoveredJob, RecoveryDecision, RecoveryScheduler,
    RegenerateReport, RegenerateRequest, RunnerEvidence, ScheduleNodesRequest, SyncStatusRequest, UnplacedJob,
};
use crate::remote::{RemoteWorker, RemoteWorkersRequest};
use crate::slurm::SlurmState;
use crate::state::{Cause, JobState};
use crate::status::{AllocationCounts, FailureSample, JobCounts, PlanSummary, RecoveryProgress, WorkflowStatus};
use crate::testing::is_written_as;
use crate::token::{Claims, Grant, Scope, TokenRequest, TokenResponse};

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[test]
fn an_allocation_carries_every_field() {
    let allocation = Allocation {
        name: "torc-wf2-a1".to_owned(),
        id: 1,
        workflow: "w".to_owned(),
        workflow_id: 2,
        scheduler: text("s"),
        cluster: "c".to_owned(),
        slurm_job_id: text("3"),
        status: AllocationStatus::Active,
        slurm_state: text("RUNNING"),
        slurm_reason: text("Priority"),
        nodes: 4,
        node_list: text("n[1-4]"),
        partition: text("p"),
        account: text("a"),
        origin: AllocationOrigin::Manual,
        walltime_seconds: 5,
        creation_time: "t1".to_owned(),
        submit_time: text("t2"),
        start_time: text("t3"),
        end_time: text("t4"),
        estimated_start_time: text("t5"),
        expected_end_time: text("t6"),
        canceling: true,
        message: text("m"),
    };
    is_written_as(
        &allocation,
        json!({
            "name": "torc-wf2-a1", "id": 1, "workflow": "w", "workflowId": 2, "scheduler": "s", "cluster": "c", "slurmJobId": "3",
            "status": "active", "slurmState": "RUNNING", "slurmReason": "Priority", "nodes": 4, "nodeList": "n[1-4]",
            "partition": "p", "account": "a", "origin": "manual", "walltimeSeconds": 5, "creationTime": "t1", "submitTime": "t2",
            "startTime": "t3", "endTime": "t4", "estimatedStartTime": "t5", "expectedEndTime": "t6", "canceling": true,
            "message": "m",
        }),
    );
    is_written_as(
        &Allocation::default(),
        json!({
            "name": "", "id": 0, "workflow": "", "workflowId": 0, "cluster": "", "status": "pending", "nodes": 0,
            "origin": "sizing", "walltimeSeconds": 0, "creationTime": "",
        }),
    );
    assert_eq!(crate::allocation::name(3, 12), "torc-wf3-a12");
}

// R01, R02, R03
#[test]
fn a_report_of_orphans_carries_every_field() {
    let report = OrphanReport {
        allocations: vec![OrphanedAllocation {
            name: "a".to_owned(),
            slurm_job_id: text("1"),
            was: AllocationStatus::Active,
            slurm_state: SlurmState::NodeFailure,
        }],
        requeued: vec!["b".to_owned()],
        in_doubt: vec!["c".to_owned()],
        runners: vec![2],
        jobs: vec![OrphanedJob { workflow: "w".to_owned(), job: "j".to_owned(), cause: Cause::Lost }],
        unreachable: vec![UnreachableRunner {
            runner: 3,
            host: "h".to_owned(),
            pid: 4,
            reason: UnreachableReason::ShimRuns,
            jobs: vec!["k".to_owned()],
            running: 5,
        }],
    };
    is_written_as(
        &report,
        json!({
            "allocations": [{ "name": "a", "slurmJobId": "1", "was": "active", "slurmState": "NodeFailure" }],
            "requeued": ["b"], "inDoubt": ["c"], "runners": [2], "jobs": [{ "workflow": "w", "job": "j", "cause": "Lost" }],
            "unreachable": [{ "runner": 3, "host": "h", "pid": 4, "reason": "ShimRuns", "jobs": ["k"], "running": 5 }],
        }),
    );
    let over = OrphanReport { allocations: Vec::new(), jobs: Vec::new(), ..report.clone() };
    let nothing = OrphanReport { runners: Vec::new(), ..over.clone() };
    assert!(report.has_losses() && over.has_losses() && !nothing.has_losses());
}

#[test]
fn files_and_data_carry_every_field() {
    let file = File {
        name: "f".to_owned(),
        path: "p".to_owned(),
        status: FileStatus::Required,
        size_bytes: Some(1),
        modified_time: text("t1"),
        sha256: text("ab"),
        seen_time: text("t2"),
        seen_by: text("j"),
        produced_by: vec!["k".to_owned()],
        readers: 2,
    };
    is_written_as(
        &file,
        json!({
            "name": "f", "path": "p", "status": "required", "sizeBytes": 1, "modifiedTime": "t1", "sha256": "ab",
            "seenTime": "t2", "seenBy": "j", "producedBy": ["k"], "readers": 2,
        }),
    );
    let used = FileUse {
        job: "j".to_owned(),
        job_status: JobState::Completed,
        path: "p".to_owned(),
        role: FileRole::Output,
        size_bytes: Some(3),
        modified_ms: Some(4),
        sha256: text("cd"),
    };
    is_written_as(
        &used,
        json!({
            "job": "j", "jobStatus": "completed", "path": "p", "role": "output", "sizeBytes": 3, "modifiedMs": 4, "sha256": "cd",
        }),
    );
    let data = |in_document, is_ephemeral, written| UserData {
        name: "d".to_owned(),
        data: Some(json!({ "x": 5 })),
        in_document,
        is_ephemeral,
        written,
        written_by: text("j"),
        change_time: "t".to_owned(),
    };
    let expected = |in_document: bool, written: bool| {
        json!({
            "name": "d", "data": { "x": 5 }, "inDocument": in_document, "written": written, "writtenBy": "j", "changeTime": "t",
        })
    };
    is_written_as(&data(true, false, false), expected(true, false));
    is_written_as(&data(false, false, true), expected(false, true));
    let mut ephemeral = expected(false, false);
    ephemeral["isEphemeral"] = json!(true);
    is_written_as(&data(false, true, false), ephemeral);
}

#[test]
fn requests_about_data_carry_every_field() {
    is_written_as(&WriteUserData { data: json!(null), job: text("j") }, json!({ "data": null, "job": "j" }));
    is_written_as(&WriteUserData { data: json!([1]), job: None }, json!({ "data": [1] }));
    assert!(
        serde_json::from_value::<WriteUserData>(json!({ "job": "j" })).is_err(),
        "a request without a value is a mistake"
    );
    is_written_as(&UserDataWritten { changed: true, stale_jobs: 1 }, json!({ "changed": true, "staleJobs": 1 }));
    let job = crate::job::JobSpec { name: "n".to_owned(), command: "c".to_owned(), ..crate::job::JobSpec::default() };
    let spawn = SpawnRequest { lineage: "l".to_owned(), jobs: vec![job], state: Some(json!(2)), run_id: 3, attempt: 4 };
    is_written_as(
        &spawn,
        json!({ "lineage": "l", "jobs": [{ "name": "n", "command": "c" }], "state": 2, "runId": 3, "attempt": 4 }),
    );
    let spawned =
        |replayed, converged| SpawnResponse { lineage: "l".to_owned(), generation: 5, jobs: 6, replayed, converged };
    is_written_as(&spawned(true, false), json!({ "lineage": "l", "generation": 5, "jobs": 6, "replayed": true }));
    is_written_as(&spawned(false, true), json!({ "lineage": "l", "generation": 5, "jobs": 6, "converged": true }));
    let stale = |job: &str, data: &str| vec![DataUse { job: job.to_owned(), data: data.to_owned() }];
    is_written_as(
        &Staleness { changed_data: stale("a", "b"), missing_data: stale("c", "d") },
        json!({ "changedData": [{ "job": "a", "data": "b" }], "missingData": [{ "job": "c", "data": "d" }] }),
    );
}

// R04, R05
#[test]
fn recovery_requests_carry_every_field() {
    is_written_as(&SyncStatusRequest { dry_run: true, ..Default::default() }, json!({ "dryRun": true }));
    let evidence = RunnerEvidence {
        runner: 1,
        machine: MachineMatch::Rebooted,
        agent: ProcessState::Ended,
        shim: ProcessState::Unknown,
        left_processes: 2,
        left_results: 3,
    };
    is_written_as(
        &SyncStatusRequest { dry_run: false, is_unserved: true, evidence: vec![evidence], assume_lost: vec![4] },
        json!({
            "dryRun": false, "isUnserved": true, "assumeLost": [4],
            "evidence": [{
                "runner": 1, "machine": "Rebooted", "agent": "Ended", "shim": "Unknown", "leftProcesses": 2, "leftResults": 3,
            }],
        }),
    );
    let plan = RegenerateRequest { submit: true, ..RegenerateRequest::default() };
    let partition: crate::cluster::Partition =
        serde_json::from_value(json!({ "name": "p", "cpusPerNode": 1, "memoryMb": 2, "maxWalltime": "3h" }))
            .expect("a partition");
    let recover = RecoverRequest {
        dry_run: true,
        memory_percent: Some(160),
        runtime_percent: Some(170),
        retry_unknown: false,
        regenerate: Some(Box::new(plan.clone())),
        partitions: vec![partition.clone()],
        lost: vec![OrphanedJob { workflow: "w".to_owned(), job: "l".to_owned(), cause: Cause::Lost }],
    };
    is_written_as(
        &recover,
        json!({
            "dryRun": true, "memoryPercent": 160, "runtimePercent": 170, "retryUnknown": false,
            "regenerate": plan, "partitions": [partition], "lost": [{ "workflow": "w", "job": "l", "cause": "Lost" }],
        }),
    );
    is_written_as(
        &RecoverRequest { retry_unknown: true, ..RecoverRequest::default() },
        json!({ "dryRun": false, "retryUnknown": true }),
    );
    let report = RecoverReport {
        dry_run: true,
        jobs: vec![RecoveredJob {
            job: "j".to_owned(),
            attempt: 2,
            return_code: 137,
            cause: Cause::OutOfMemory,
            decision: RecoveryDecision::Leave,
            raised: vec!["memory".to_owned()],
            reason: text("full"),
        }],
        again: 3,
        regenerated: Some(RegenerateReport { pending_jobs: 4, ..RegenerateReport::default() }),
    };
    is_written_as(
        &report,
        json!({
            "dryRun": true, "again": 3,
            "jobs": [{
                "job": "j", "attempt": 2, "returnCode": 137, "cause": "OutOfMemory", "decision": "Leave", "raised": ["memory"],
                "reason": "full",
            }],
            "regenerated": { "pendingJobs": 4, "supersededActions": 0, "schedulers": [], "allocations": [] },
        }),
    );
    is_written_as(
        &ClassifyRequest { jobs: vec!["j".to_owned()], class: FailureClass::Fail },
        json!({ "jobs": ["j"], "class": "Fail" }),
    );
    let schedule = ScheduleNodesRequest {
        scheduler: text("s"),
        num_allocations: Some(4),
        start_one_worker_per_node: true,
        max_parallel_jobs: Some(5),
    };
    is_written_as(
        &schedule,
        json!({ "scheduler": "s", "numAllocations": 4, "startOneWorkerPerNode": true, "maxParallelJobs": 5 }),
    );
    is_written_as(&NodesScheduled { allocations: vec!["a".to_owned()] }, json!({ "allocations": ["a"] }));
}

// R07, R08, R10, R11, R14
#[test]
fn a_new_plan_carries_every_field() {
    let request = RegenerateRequest {
        dry_run: true,
        submit: false,
        account: text("a"),
        partition: text("p"),
        walltime: text("1h"),
        single_allocation: true,
        include_jobs: vec!["j".to_owned()],
        partitions: Vec::new(),
    };
    let mut expected = json!({
        "dryRun": true, "submit": false, "account": "a", "partition": "p", "walltime": "1h", "singleAllocation": true,
        "includeJobs": ["j"], "partitions": [],
    });
    is_written_as(&request, expected.clone());
    for (field, value) in [("dryRun", false), ("submit", true), ("singleAllocation", false)] {
        expected[field] = json!(value);
    }
    is_written_as(
        &RegenerateRequest { dry_run: false, submit: true, single_allocation: false, ..request.clone() },
        expected.clone(),
    );
    expected["submit"] = json!(false);
    is_written_as(&RegenerateRequest { dry_run: false, single_allocation: false, ..request }, expected);
    let report = RegenerateReport {
        dry_run: true,
        pending_jobs: 1,
        superseded_actions: 2,
        schedulers: vec![RecoveryScheduler {
            name: "s_deferred".to_owned(),
            partition: text("p"),
            jobs: 3,
            allocations: 4,
            nodes: 5,
            walltime_seconds: 6,
            deferred: true,
            node_hours: 7.5,
        }],
        allocations: vec!["a".to_owned()],
        unplaced: vec![UnplacedJob { job: "j".to_owned(), reason: "r".to_owned() }],
    };
    is_written_as(
        &report,
        json!({
            "dryRun": true, "pendingJobs": 1, "supersededActions": 2,
            "schedulers": [{
                "name": "s_deferred", "partition": "p", "jobs": 3, "allocations": 4, "nodes": 5, "walltimeSeconds": 6,
                "deferred": true, "nodeHours": 7.5,
            }],
            "allocations": ["a"], "unplaced": [{ "job": "j", "reason": "r" }],
        }),
    );
}

#[test]
fn corrections_carry_every_field() {
    let request = |dry_run, no_downsize| CorrectResourcesRequest { dry_run, no_downsize, jobs: vec!["j".to_owned()] };
    is_written_as(&request(true, false), json!({ "dryRun": true, "noDownsize": false, "jobs": ["j"] }));
    is_written_as(&request(false, true), json!({ "dryRun": false, "noDownsize": true, "jobs": ["j"] }));
    let corrections =
        vec![Correction { requirements: "r".to_owned(), jobs: 1, observed: 2, changes: vec!["c".to_owned()] }];
    is_written_as(
        &CorrectResourcesReport { dry_run: true, corrections },
        json!({ "dryRun": true, "corrections": [{ "requirements": "r", "jobs": 1, "observed": 2, "changes": ["c"] }] }),
    );
}

#[test]
fn an_explanation_carries_every_field() {
    let reason = Reason {
        reason: ReasonKind::Label,
        message: "m".to_owned(),
        count: Some(1),
        jobs: vec![JobPhase { job: "a".to_owned(), status: JobState::Blocked }],
        allocations: vec!["b".to_owned()],
    };
    let reason_json = json!({
        "reason": "Label", "message": "m", "count": 1, "jobs": [{ "job": "a", "status": "blocked" }], "allocations": ["b"],
    });
    is_written_as(&Reason::new(ReasonKind::Busy, "x"), json!({ "reason": "Busy", "message": "x" }));
    let explanation = JobExplanation {
        workflow: "w".to_owned(),
        job: "j".to_owned(),
        status: Some(JobState::Failed),
        run_id: 2,
        attempt: 3,
        reasons: vec![reason.clone()],
        resources: Some(crate::api::JobResources { num_cpus: 1, ..Default::default() }),
        raised: vec!["memory".to_owned()],
        attempts: vec![AttemptReport {
            run_id: 4,
            attempt: 5,
            status: JobState::Terminated,
            return_code: Some(6),
            cause: Some(Cause::ExitCode),
            diagnosis: Some(Cause::Timeout),
            end_time: "t".to_owned(),
            duration_seconds: 7.5,
            node: text("n"),
            peak_memory_bytes: Some(8),
            evidence: vec!["e".to_owned()],
            stderr: text("s"),
            stderr_tail: vec!["l".to_owned()],
            then: text("again"),
        }],
        next: vec!["do".to_owned()],
    };
    is_written_as(
        &explanation,
        json!({
            "workflow": "w", "job": "j", "status": "failed", "runId": 2, "attempt": 3, "reasons": [reason_json],
            "raised": ["memory"],
            "resources": { "numCpus": 1, "memoryBytes": 0, "numGpus": 0, "numNodes": 0, "runtimeSeconds": 0 },
            "attempts": [{
                "runId": 4, "attempt": 5, "status": "terminated", "returnCode": 6, "cause": "ExitCode", "diagnosis": "Timeout",
                "endTime": "t", "durationSeconds": 7.5, "node": "n", "peakMemoryBytes": 8, "evidence": ["e"], "stderr": "s",
                "stderrTail": ["l"], "then": "again",
            }],
            "next": ["do"],
        }),
    );
    let workflow = WorkflowExplanation {
        workflow: "w".to_owned(),
        progress: "1/2".to_owned(),
        reasons: vec![reason],
        next: vec!["do".to_owned()],
    };
    is_written_as(&workflow, json!({ "workflow": "w", "progress": "1/2", "reasons": [reason_json], "next": ["do"] }));
}

#[test]
fn a_status_carries_every_field() {
    let status = WorkflowStatus {
        observed_generation: Some(1),
        run_id: Some(2),
        start_time: text("t1"),
        completion_time: text("t2"),
        progress: text("3/4"),
        plan: Some(PlanSummary { digest: "d".to_owned(), job_count: 5 }),
        jobs: JobCounts::default(),
        allocations: Some(AllocationCounts { desired: 6, pending: 7, active: 8, finished: 9 }),
        recovery: Some(RecoveryProgress { round: 10, message: "m".to_owned() }),
        api_url: text("https://x"),
        failures: vec![FailureSample {
            job: "j".to_owned(),
            attempt: 11,
            return_code: Some(12),
            cause: Cause::Timeout,
            time: "t3".to_owned(),
        }],
        conditions: vec![Condition {
            type_: "Accepted".to_owned(),
            status: ConditionStatus::True,
            reason: "r".to_owned(),
            message: String::new(),
            last_transition_time: "t4".to_owned(),
            observed_generation: None,
        }],
    };
    is_written_as(
        &status,
        json!({
            "observedGeneration": 1, "runId": 2, "startTime": "t1", "completionTime": "t2", "progress": "3/4",
            "plan": { "digest": "d", "jobCount": 5 },
            "jobs": {
                "total": 0, "uninitialized": 0, "blocked": 0, "ready": 0, "leased": 0, "running": 0, "completed": 0, "failed": 0,
                "canceled": 0, "terminated": 0, "disabled": 0, "pendingFailed": 0, "recovering": 0,
            },
            "allocations": { "desired": 6, "pending": 7, "active": 8, "finished": 9 },
            "recovery": { "round": 10, "message": "m" }, "apiURL": "https://x",
            "failures": [{ "job": "j", "attempt": 11, "returnCode": 12, "cause": "Timeout", "time": "t3" }],
            "conditions": [{ "type": "Accepted", "status": "True", "reason": "r", "message": "", "lastTransitionTime": "t4" }],
        }),
    );
    assert_eq!(serde_json::from_value::<WorkflowStatus>(json!({})).expect("a status"), WorkflowStatus::default());
}

#[test]
fn logs_and_workers_carry_every_field() {
    let wanted = LogChunkRequest { id: 1, path: "p".to_owned(), offset: 2, lines: Some(3) };
    is_written_as(
        &LogSyncResponse { wanted: vec![wanted] },
        json!({ "wanted": [{ "id": 1, "path": "p", "offset": 2, "lines": 3 }] }),
    );
    let piece = LogChunk::new(4, 5, b"hello");
    is_written_as(
        &LogSyncRequest { host: "h".to_owned(), pieces: vec![piece] },
        json!({ "host": "h", "pieces": [{ "id": 4, "found": true, "offset": 5, "content": "aGVsbG8=" }] }),
    );
    is_written_as(&LogChunk::missing(6), json!({ "id": 6, "found": false, "offset": 0, "content": "" }));
    assert_eq!(crate::logs::MAX_CHUNK_BYTES, 1_048_576);
    let worker = RemoteWorker {
        address: "a@b".to_owned(),
        folder: text("/f"),
        remote_torc: text("/r"),
        creation_time: text("t"),
    };
    is_written_as(
        &RemoteWorkersRequest { workers: vec![worker] },
        json!({ "workers": [{ "address": "a@b", "folder": "/f", "remoteTorc": "/r", "creationTime": "t" }] }),
    );
}

/// Claims of each token: issuer, scope, creation and expiry.
#[test]
fn a_token_states_its_grant_and_its_times() {
    let state = |grant: Grant, expires| Claims { grant, issuer: "ada".to_owned(), issued: 1, expires };
    is_written_as(
        &state(Grant::Runner { workflow: 7 }, Some(2)),
        json!({ "scope": "runner", "workflow": 7, "issuer": "ada", "issued": 1, "expires": 2 }),
    );
    let grants = [
        (Grant::Admin, json!({ "scope": "admin", "issuer": "ada", "issued": 1 })),
        (
            Grant::Owner { user: "eve".to_owned() },
            json!({ "scope": "owner", "user": "eve", "issuer": "ada", "issued": 1 }),
        ),
        (
            Grant::Viewer { namespace: "lab".to_owned() },
            json!({ "scope": "viewer", "namespace": "lab", "issuer": "ada", "issued": 1 }),
        ),
        (
            Grant::Editor { namespace: "lab".to_owned() },
            json!({ "scope": "editor", "namespace": "lab", "issuer": "ada", "issued": 1 }),
        ),
        (Grant::Pool, json!({ "scope": "pool", "issuer": "ada", "issued": 1 })),
        (Grant::Metrics, json!({ "scope": "metrics", "issuer": "ada", "issued": 1 })),
    ];
    for (grant, expected) in grants {
        is_written_as(&state(grant, None), expected);
    }
    let scopes = [
        (Grant::Admin, Scope::Admin),
        (Grant::Owner { user: String::new() }, Scope::Owner),
        (Grant::Viewer { namespace: String::new() }, Scope::Viewer),
        (Grant::Editor { namespace: String::new() }, Scope::Editor),
        (Grant::Runner { workflow: 0 }, Scope::Runner),
        (Grant::Pool, Scope::Pool),
        (Grant::Metrics, Scope::Metrics),
    ];
    for (grant, scope) in scopes {
        assert_eq!(grant.scope(), scope);
    }
    assert_ne!(Grant::Runner { workflow: 7 }, Grant::Runner { workflow: 8 });
    let request = TokenRequest {
        scope: Scope::Runner,
        workflow: text("w"),
        namespace: text("lab"),
        user: text("eve"),
        expires_seconds: Some(3),
    };
    is_written_as(
        &request,
        json!({ "scope": "runner", "workflow": "w", "namespace": "lab", "user": "eve", "expiresSeconds": 3 }),
    );
    is_written_as(
        &TokenResponse { token: "t".to_owned(), statement: state(Grant::Pool, Some(4)) },
        json!({ "token": "t", "statement": { "scope": "pool", "issuer": "ada", "issued": 1, "expires": 4 } }),
    );
}

/// Absent values are omitted and read as absent.
#[test]
fn what_is_absent_is_left_out() {
    is_written_as(
        &JobExplanation::default(),
        json!({ "workflow": "", "job": "", "runId": 0, "attempt": 0, "reasons": [] }),
    );
    is_written_as(&WorkflowExplanation::default(), json!({ "workflow": "", "progress": "", "reasons": [] }));
    let story = json!({ "runId": 1, "attempt": 2, "status": "completed", "endTime": "t", "durationSeconds": 3.5 });
    let read: AttemptReport = serde_json::from_value(story.clone()).expect("an attempt");
    is_written_as(&read, story);
    is_written_as(&RecoverReport::default(), json!({ "jobs": [], "again": 0 }));
    let recovered = json!({ "job": "j", "attempt": 1, "returnCode": 2, "cause": "Lost", "decision": "Retry" });
    let read: RecoveredJob = serde_json::from_value(recovered.clone()).expect("a job");
    is_written_as(&read, recovered);
    is_written_as(
        &RegenerateRequest::default(),
        json!({ "dryRun": false, "submit": false, "singleAllocation": false, "partitions": [] }),
    );
    is_written_as(
        &RegenerateReport::default(),
        json!({ "pendingJobs": 0, "supersededActions": 0, "schedulers": [], "allocations": [] }),
    );
    let scheduler = json!({
        "name": "s", "jobs": 1, "allocations": 2, "nodes": 3, "walltimeSeconds": 4, "deferred": false, "nodeHours": 5.5,
    });
    let read: RecoveryScheduler = serde_json::from_value(scheduler.clone()).expect("a scheduler");
    is_written_as(&read, scheduler);
    is_written_as(&CorrectResourcesRequest::default(), json!({ "dryRun": false, "noDownsize": false }));
    is_written_as(&CorrectResourcesReport::default(), json!({ "corrections": [] }));
    is_written_as(&ScheduleNodesRequest::default(), json!({ "startOneWorkerPerNode": false }));
    is_written_as(&File::default(), json!({ "name": "", "path": "", "status": "expected", "readers": 0 }));
    let used = json!({ "job": "j", "jobStatus": "ready", "path": "p", "role": "input" });
    let read: FileUse = serde_json::from_value(used.clone()).expect("a use");
    is_written_as(&read, used);
    is_written_as(&UserData::default(), json!({ "name": "", "inDocument": false, "written": false, "changeTime": "" }));
    is_written_as(&SpawnRequest::default(), json!({ "lineage": "", "jobs": [], "runId": 0, "attempt": 0 }));
    is_written_as(&SpawnResponse::default(), json!({ "lineage": "", "generation": 0, "jobs": 0 }));
    is_written_as(&WorkflowStatus::default(), json!({ "jobs": JobCounts::default() }));
    is_written_as(&RecoveryProgress::default(), json!({ "round": 0 }));
    let sample = json!({ "job": "j", "attempt": 1, "cause": "Lost", "time": "t" });
    let read: FailureSample = serde_json::from_value(sample.clone()).expect("a sample");
    is_written_as(&read, sample);
    is_written_as(&RemoteWorker::default(), json!({ "address": "" }));
    let wanted = json!({ "id": 1, "path": "p", "offset": 0 });
    let read: LogChunkRequest = serde_json::from_value(json!({ "id": 1, "path": "p" })).expect("a piece");
    is_written_as(&read, wanted);
    let request = json!({ "scope": "admin" });
    let read: TokenRequest = serde_json::from_value(request.clone()).expect("a request");
    is_written_as(&read, request);
    let over = json!({ "name": "a", "was": "pending", "slurmState": "Failed" });
    let read: OrphanedAllocation = serde_json::from_value(over.clone()).expect("an allocation");
    is_written_as(&read, over);
}

/// Documents are kept as they were written: what is absent stays absent.
#[test]
fn an_empty_document_stays_empty() {
    use crate::cluster::{SlurmClusterSpec, SlurmClusterStatus};
    use crate::document::Metadata;
    use crate::execution::{ExecutionConfig, MonitorScope, ResourceMonitor, Stdio};
    use crate::failure::{Escalation, FailureHandler, FailureRule, Prefetch, Recovery, RetryLimit, UnknownFailures};
    use crate::parameters::{ParameterTable, Parameterization};
    use crate::resources::{ResourceRequirements, SlurmScheduler};
    use crate::workflow::{DynamicJobs, Source, WorkflowSpec};
    is_written_as(&WorkflowSpec::default(), json!({ "jobs": [] }));
    is_written_as(&crate::job::JobSpec::default(), json!({ "name": "", "command": "" }));
    is_written_as(&crate::job::FileSpec::default(), json!({ "name": "", "path": "" }));
    is_written_as(&crate::job::UserDataSpec::default(), json!({}));
    is_written_as(&Parameterization::default(), json!({}));
    is_written_as(&ParameterTable::default(), json!({ "columns": [], "rows": [] }));
    is_written_as(&ResourceRequirements::default(), json!({ "name": "", "numCpus": 0, "memory": "" }));
    is_written_as(&SlurmScheduler::default(), json!({ "account": "" }));
    is_written_as(&FailureHandler::default(), json!({ "name": "", "rules": [] }));
    is_written_as(&FailureRule::default(), json!({}));
    is_written_as(&Recovery::default(), json!({}));
    is_written_as(&RetryLimit::default(), json!({}));
    is_written_as(&Escalation::default(), json!({}));
    is_written_as(&UnknownFailures::default(), json!({}));
    is_written_as(&Prefetch::default(), json!({}));
    is_written_as(&ExecutionConfig::default(), json!({}));
    is_written_as(&Stdio::default(), json!({}));
    is_written_as(&ResourceMonitor::default(), json!({}));
    is_written_as(&MonitorScope::default(), json!({}));
    is_written_as(&DynamicJobs::default(), json!({}));
    is_written_as(&Source::default(), json!({ "name": "", "configMapName": "", "key": "" }));
    is_written_as(&Metadata::default(), json!({ "name": "" }));
    is_written_as(&SlurmClusterSpec::default(), json!({}));
    is_written_as(&SlurmClusterStatus::default(), json!({}));
    let action = json!({ "triggerType": "on_jobs_ready", "actionType": "run_commands" });
    let read: crate::action::Action = serde_json::from_value(action.clone()).expect("an action");
    is_written_as(&read, action);
    let partition = json!({ "name": "", "cpusPerNode": 0, "memoryMb": 0, "maxWalltime": "" });
    is_written_as(&crate::cluster::Partition::default(), partition);
}
