#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use serde_json::{Value, json};
use torc_api::state::{Cause, JobState};
use torc_api::wire::{ProcessIdentity, Resources, RunnerKind, Usage};
use torc_core::ids::{JobId, ProfileId, RunnerId, WorkflowId};
use torc_core::rows::{JobProfile, JobRow, ResultRow, Spawned};

use torc_core::expanded::Requirements;

use super::*;

const T0: i64 = 1_767_225_600_000;

/// Returns a row in which no two numbers are equal.
pub(crate) fn job_row() -> JobRow {
    JobRow {
        id: JobId(11),
        workflow: WorkflowId(12),
        name: "name".to_owned(),
        command: "command".to_owned(),
        profile: ProfileId(13),
        priority: 14,
        hash: [15; 32],
        depends_on: vec![JobId(16)],
        state: JobState::Running,
        run: 17,
        attempt: 18,
        lease_id: 19,
        runner: Some(RunnerId(20)),
        started_ms: Some(T0),
    }
}

fn profile() -> JobProfile {
    let requirements = Requirements {
        name: "r".to_owned(),
        num_cpus: 21,
        memory_bytes: 22,
        num_gpus: 23,
        num_nodes: 24,
        runtime_seconds: 25,
    };
    let spawned = Some(Spawned { lineage: "loop".to_owned(), by: JobId(26) });
    JobProfile { requirements, labels: vec!["label".to_owned()], spawned, ..JobProfile::default() }
}

#[test]
fn a_job_shows_every_field_under_its_own_name() {
    let workflows = HashMap::from([(12, "workflow".to_owned()), (11, "wrong".to_owned())]);
    let hosts = HashMap::from([(20, "host".to_owned()), (12, "wrong".to_owned())]);
    let mut shown = job(JobView { job: job_row(), profile: profile() }, &workflows, &hosts);
    let live = LiveJob { name: "x".to_owned(), depends_on: vec!["parent".to_owned()], waiting_for: 27, in_doubt: true };
    live.add_to(&mut shown);
    let expected = json!({
        "id": 11, "workflow": "workflow", "name": "name", "status": "running", "runId": 17, "attempt": 18,
        "command": "command", "priority": 14,
        "resources": {
            "numCpus": 21, "memoryBytes": 22, "numGpus": 23, "numNodes": 24, "runtimeSeconds": 25,
        },
        "dependsOn": ["parent"], "waitingFor": 27, "labels": ["label"], "node": "host", "runner": 20, "inDoubt": true,
        "startTime": "2026-01-01T00:00:00.000Z", "origin": "spawn", "lineage": "loop",
    });
    assert_eq!(serde_json::to_value(&shown).unwrap(), expected);
    let plain = JobProfile { spawned: None, ..profile() };
    let plain = job(JobView { job: JobRow { runner: None, ..job_row() }, profile: plain }, &workflows, &hosts);
    assert_eq!((plain.origin, plain.lineage, plain.node, plain.runner), (None, None, None, None));
}

#[test]
fn a_result_shows_every_field_under_its_own_name() {
    let usage = Usage { peak_memory_bytes: Some(31), average_cpu_percent: Some(32.5), ..Usage::default() };
    let row = ResultRow {
        workflow: WorkflowId(33),
        job: JobId(34),
        run: 35,
        attempt: 36,
        state: JobState::Failed,
        return_code: 37,
        cause: Some(Cause::OutOfMemory),
        message: Some("message".to_owned()),
        started_ms: T0,
        ended_ms: T0 + 2_500,
        runner: Some(RunnerId(38)),
        stdout: Some("/out".to_owned()),
        stderr: Some("/err".to_owned()),
        usage,
    };
    let shown = result(ResultView {
        result: row,
        workflow_name: "workflow".to_owned(),
        job_name: "job".to_owned(),
        host: Some("host".to_owned()),
    });
    let expected = json!({
        "workflow": "workflow", "job": "job", "jobId": 34, "runId": 35, "attempt": 36, "status": "failed", "returnCode": 37,
        "cause": "OutOfMemory", "message": "message", "startTime": "2026-01-01T00:00:00.000Z",
        "endTime": "2026-01-01T00:00:02.500Z", "durationSeconds": 2.5, "node": "host", "runner": 38, "stdout": "/out",
        "stderr": "/err", "peakMemoryBytes": 31, "averageCpuPercent": 32.5,
    });
    assert_eq!(serde_json::to_value(&shown).unwrap(), expected);
}

#[test]
fn a_runner_that_has_left_shows_every_field() {
    let row = RunnerRow {
        id: RunnerId(41),
        host: "host".to_owned(),
        pid: 42,
        kind: RunnerKind::Remote,
        capacity: Resources { cpus: 43, memory_bytes: 44, gpus: 45, nodes: 46 },
        max_parallel_jobs: Some(47),
        labels: vec!["label".to_owned()],
        scope: RunnerScope::Workflow("lab/w".to_owned()),
        scheduler: Some("scheduler".to_owned()),
        slurm_job_id: Some("48".to_owned()),
        output_dir: "/output".to_owned(),
        place: "/place".to_owned(),
        process: Some(ProcessIdentity { start_ticks: 49, ..ProcessIdentity::default() }),
        version: "version".to_owned(),
        started_ms: T0,
        ended_ms: Some(T0 + 1_000),
    };
    let expected = json!({
        "id": 41, "host": "host", "pid": 42, "kind": "remote", "status": "gone",
        "capacity": { "cpus": 43, "memoryBytes": 44, "gpus": 45, "nodes": 46 }, "labels": ["label"], "workflow": "lab/w",
        "slurmJobId": "48", "outputDir": "/output", "place": "/place",
        "process": { "bootId": "", "pidNamespace": "", "startTicks": 49 }, "version": "version", "queued": 0, "running": 0,
        "startTime": "2026-01-01T00:00:00.000Z", "endTime": "2026-01-01T00:00:01.000Z",
    });
    assert_eq!(serde_json::to_value(deregistered_runner(&row)).unwrap(), expected);
    for scope in [RunnerScope::All, RunnerScope::Session] {
        assert_eq!(deregistered_runner(&RunnerRow { scope, ..row.clone() }).workflow, None);
    }
}

#[test]
fn an_event_names_its_workflow_and_jobs() {
    let row = EventRow {
        sequence: 51,
        time_ms: T0,
        workflow: Some(WorkflowId(52)),
        reason: "JobsChanged".to_owned(),
        message: "message".to_owned(),
        jobs: vec![(JobId(53), 54, JobState::Ready), (JobId(55), 56, JobState::Failed)],
    };
    let view = EventView {
        event: row,
        workflow_name: Some("workflow".to_owned()),
        job_names: vec!["first".to_owned(), "second".to_owned()],
    };
    let expected = json!({
        "sequence": 51, "time": "2026-01-01T00:00:00.000Z", "workflow": "workflow", "workflowId": 52, "reason": "JobsChanged",
        "message": "message",
        "jobs": [
            { "id": 53, "name": "first", "attempt": 54, "status": "ready" },
            { "id": 55, "name": "second", "attempt": 56, "status": "failed" },
        ],
    });
    assert_eq!(serde_json::to_value(event(view.clone())).unwrap(), expected);
    let unnamed = event(EventView { job_names: vec!["first".to_owned()], ..view });
    assert_eq!(unnamed.jobs[1].name, "", "one whose name is not known is shown all the same");
}

#[test]
fn what_was_forgotten_is_counted_by_kind() {
    let report = GcReport {
        results: 61,
        events: 62,
        runners: 63,
        allocations: BTreeMap::from([(WorkflowId(1), 64), (WorkflowId(2), 1)]),
        jobs: 66,
        log_files: vec!["/log".to_owned()],
    };
    let expected: Value =
        json!({ "results": 61, "events": 62, "runners": 63, "allocations": 65, "logFiles": ["/log"] });
    assert_eq!(serde_json::to_value(gc(report)).unwrap(), expected);
}

#[test]
fn an_audit_row_shows_every_field() {
    let text = |text: &str| text.to_owned();
    let row = AuditRow {
        time_ms: T0,
        who: text("who"),
        scope: text("scope"),
        verb: text("verb"),
        object: text("object"),
        outcome: text("outcome"),
    };
    let expected = json!({
        "sequence": 71, "time": "2026-01-01T00:00:00.000Z", "who": "who", "scope": "scope", "verb": "verb", "object": "object",
        "outcome": "outcome",
    });
    assert_eq!(serde_json::to_value(audit_entry(71, row)).unwrap(), expected);
}
