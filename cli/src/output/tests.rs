//! Tests of every table, cell by cell, and of its JSON fields. Each field has a unique value.

use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use torc_api::allocation::Allocation;
use torc_api::api::{AuditEntry, Event, Job, JobResult, Runner, SlurmCluster, Workflow, WorkflowAction};
use torc_api::cluster::Partition;
use torc_api::data::{File, UserData};
use torc_api::recovery::RecoveryScheduler;
use torc_api::remote::RemoteWorker;

use super::table::{Tabular, described};
use super::*;
use crate::commands::remote::rows::{LogsRow, OrderRow};
use crate::commands::slurm::sacct::SacctRow;
use crate::commands::slurm::stats::StatsRow;
use crate::remote::worker_status::{WorkerState, WorkerStatus};

fn now() -> Timestamp {
    "2026-01-02T00:00:00Z".parse().expect("a time")
}

/// Returns the time some seconds before now.
fn before(seconds: i64) -> String {
    Timestamp::from_second(now().as_second() - seconds).expect("a time").to_string()
}

/// Parses a value, checks that it serializes to the same fields, and describes its row.
fn row<T: Tabular + Serialize + DeserializeOwned>(value: &Value) -> Vec<String> {
    let read: T = serde_json::from_value(value.clone()).expect("all fields");
    assert_eq!(json!(read), *value, "fields for programs");
    described(&read, now())
}

fn with(base: &Value, changes: &[(&str, Value)]) -> Value {
    let mut value = base.clone();
    for (pointer, change) in changes {
        match pointer.rsplit_once('/') {
            Some((parent, field)) => value.pointer_mut(parent).expect("a parent")[field] = change.clone(),
            None => value[*pointer] = change.clone(),
        }
    }
    value
}

fn cell(cells: &[String], column: &str) -> String {
    let bare = |text: &str| text.trim_start_matches('[').trim_end_matches(']').to_owned();
    let found = cells.iter().map(|text| bare(text)).find(|text| text.starts_with(&format!("{column}=")));
    found.unwrap_or_else(|| panic!("no column {column} in {cells:?}")).split_off(column.len() + 1)
}

fn workflow() -> Value {
    let condition = |name: &str| json!({ "type": name, "status": "True", "reason": "R", "message": "M", "lastTransitionTime": "t" });
    json!({
        "id": 7, "name": "sweep", "namespace": "lab", "owner": "ada", "generation": 3, "creationTime": before(100),
        "workingDir": "/work", "suspended": false, "canceled": false, "slurmCluster": "local",
        "status": {
            "runId": 4, "conditions": [condition("Accepted")],
            "allocations": { "desired": 31, "pending": 32, "active": 33, "finished": 34 },
            "jobs": { "total": 90, "uninitialized": 11, "blocked": 12, "ready": 13, "leased": 14, "running": 15, "completed": 1,
                "failed": 2, "canceled": 3, "terminated": 4, "disabled": 5, "pendingFailed": 16, "recovering": 17 },
        },
    })
}

#[test]
fn workflows() {
    let expected = [
        "NAME=sweep",
        "STATUS=~Running",
        "PROGRESS=15/90",
        "RUNNING=15",
        "FAILED=-2",
        "ALLOCS=33",
        "AGE=1m40s",
        "[ID=7]",
        "[NAMESPACE=lab]",
        "[OWNER=ada]",
        "[RUN=4]",
        "[READY=13]",
        "[BLOCKED=12]",
        "[FOLDER=/work]",
    ];
    assert_eq!(row::<Workflow>(&workflow()), expected);
    let mut value = workflow();
    value["status"]["jobs"]["failed"] = json!(0);
    value["status"].as_object_mut().expect("a status").remove("allocations");
    let cells = row::<Workflow>(&value);
    assert_eq!((cell(&cells, "FAILED"), cell(&cells, "ALLOCS")), ("0".to_owned(), String::new()));
    let anywhere = WithNamespace(serde_json::from_value::<Workflow>(workflow()).expect("a workflow"));
    let mut moved: Vec<&str> = expected.to_vec();
    moved.remove(8);
    moved.insert(0, "NAMESPACE=lab");
    assert_eq!(described(&anywhere, now()), moved);
}

#[test]
fn the_word_and_the_colour_of_a_workflow() {
    let jobs = |changes: &[(&str, i64)]| {
        let mut value = workflow();
        value["status"]["jobs"] = json!(torc_api::status::JobCounts::default());
        for (field, count) in changes {
            value["status"]["jobs"][*field] = json!(count);
        }
        value
    };
    let conditions = |mut value: Value, names: &[&str]| {
        let condition = |name: &&str| json!({ "type": name, "status": "True", "reason": "", "message": "", "lastTransitionTime": "" });
        value["status"]["conditions"] = names.iter().map(condition).collect();
        value
    };
    for (value, expected) in [
        (jobs(&[("running", 1)]), "~Running"),
        (jobs(&[("ready", 1)]), "~Waiting"),
        (jobs(&[("leased", 1)]), "~Waiting"),
        (conditions(jobs(&[("running", 1)]), &["Recovering"]), "~Recovering"),
        (conditions(jobs(&[]), &["Finished", "Succeeded"]), "+Succeeded"),
        (conditions(jobs(&[]), &["Finished"]), "-Failed"),
        (with(&conditions(jobs(&[]), &["Finished"]), &[("canceled", json!(true))]), "-Canceled"),
        (jobs(&[("pendingFailed", 1)]), "-NeedsDecision"),
        (with(&jobs(&[("ready", 1)]), &[("suspended", json!(true))]), ".Suspended"),
    ] {
        assert_eq!(cell(&row::<Workflow>(&value), "STATUS"), expected);
    }
}

fn job() -> Value {
    json!({
        "id": 8, "workflow": "sweep", "name": "train", "status": "running", "runId": 2, "attempt": 3, "command": "run\n it",
        "priority": 5, "resources": { "numCpus": 6, "memoryBytes": 7 << 20, "numGpus": 9, "numNodes": 10, "runtimeSeconds": 11 },
        "dependsOn": ["a"], "waitingFor": 12, "labels": ["l"], "node": "n1", "runner": 13, "inDoubt": true,
        "startTime": before(70), "origin": "o", "lineage": "x",
    })
}

#[test]
fn jobs() {
    let expected = [
        "NAME=train",
        "STATUS=~running",
        "ATTEMPT=3",
        "NODE=n1",
        "FOR=1m10s",
        "[ID=8]",
        "[WORKFLOW=sweep]",
        "[RUN=2]",
        "[PRIORITY=5]",
        "[CPUS=6]",
        "[MEMORY=7Mi]",
        "[GPUS=9]",
        "[WAITING=12]",
        "[COMMAND=run it]",
    ];
    assert_eq!(row::<Job>(&job()), expected);
    let states = [
        ("uninitialized", "."),
        ("blocked", "."),
        ("ready", ""),
        ("leased", "~"),
        ("running", "~"),
        ("completed", "+"),
        ("failed", "-"),
        ("canceled", "-"),
        ("terminated", "-"),
        ("disabled", "."),
        ("pending_failed", "-"),
        ("recovering", "~"),
    ];
    for (state, sign) in states {
        let cells = row::<Job>(&with(&job(), &[("status", json!(state))]));
        assert_eq!(cell(&cells, "STATUS"), format!("{sign}{state}"));
        assert_eq!(cell(&cells, "FOR").is_empty(), state != "running", "only what runs has run for some time: {state}");
    }
}

#[test]
fn results() {
    let value = json!({
        "workflow": "sweep", "job": "train", "jobId": 8, "runId": 2, "attempt": 3, "status": "failed", "returnCode": 9,
        "cause": "OutOfMemory", "message": "m", "startTime": "s", "endTime": before(80), "durationSeconds": 1.25, "node": "n1",
        "runner": 4, "stdout": "/o", "stderr": "/e", "peakMemoryBytes": 1 << 20, "averageMemoryBytes": 2 << 20,
        "peakCpuPercent": 51.0, "averageCpuPercent": 52.0, "peakGpuPercent": 53.0, "averageGpuPercent": 54.0,
        "peakGpuMemoryBytes": 3 << 20,
    });
    let expected = [
        "JOB=train",
        "RUN=2",
        "ATTEMPT=3",
        "STATUS=-failed",
        "CODE=9",
        "CAUSE=OutOfMemory",
        "DURATION=1.2s",
        "AGE=1m20s",
        "[NODE=n1]",
        "[PEAK MEMORY=1Mi]",
        "[MEMORY=2Mi]",
        "[PEAK CPU=51%]",
        "[CPU=52%]",
        "[PEAK GPU=53%]",
        "[GPU=54%]",
        "[PEAK GPU MEMORY=3Mi]",
        "[STDOUT=/o]",
        "[STDERR=/e]",
        "[MESSAGE=m]",
    ];
    assert_eq!(row::<JobResult>(&value), expected);
}

#[test]
fn runners() {
    let value = json!({
        "id": 4, "host": "n1", "pid": 55, "kind": "slurm", "status": "active",
        "capacity": { "cpus": 6, "memoryBytes": 7 << 20, "gpus": 8, "nodes": 9 }, "labels": ["a", "b"], "workflow": "sweep",
        "slurmJobId": "77", "outputDir": "/out", "version": "1.2.3", "queued": 10, "running": 11, "startTime": before(90),
        "lastContactTime": "c", "endTime": "e",
    });
    let expected = [
        "ID=4",
        "HOST=n1",
        "KIND=slurm",
        "STATUS=+active",
        "CPUS=6",
        "MEMORY=7Mi",
        "GPUS=8",
        "RUNNING=11",
        "QUEUED=10",
        "AGE=1m30s",
        "[PID=55]",
        "[WORKFLOW=sweep]",
        "[LABELS=a,b]",
        "[VERSION=1.2.3]",
        "[LOGS=/out]",
    ];
    assert_eq!(row::<Runner>(&value), expected);
    for (status, cell_text) in [("active", "+active"), ("silent", "-silent"), ("gone", ".gone")] {
        assert_eq!(cell(&row::<Runner>(&with(&value, &[("status", json!(status))])), "STATUS"), cell_text);
    }
    for kind in ["local", "slurm", "remote", "pod"] {
        assert_eq!(cell(&row::<Runner>(&with(&value, &[("kind", json!(kind))])), "KIND"), kind);
    }
}

#[test]
fn events_and_the_audit() {
    let value = json!({
        "sequence": 5, "time": before(30), "workflow": "sweep", "workflowId": 7, "reason": "Applied", "message": "hello",
        "jobs": [{ "id": 1, "name": "a", "attempt": 2, "status": "running" }],
    });
    let time = before(30);
    let time = format!("[TIME={time}]");
    let expected = ["AGE=30s", "WORKFLOW=sweep", "REASON=Applied", "MESSAGE=hello", "[SEQUENCE=5]", time.as_str()];
    assert_eq!(row::<Event>(&value), expected);
    let entry = json!({ "sequence": 1, "time": "t", "who": "ada", "scope": "owner", "verb": "apply", "object": "w", "outcome": "ok" });
    assert_eq!(row::<AuditEntry>(&entry), ["TIME=t", "WHO=ada", "SCOPE=owner", "VERB=apply", "OBJECT=w", "OUTCOME=ok"]);
    assert_eq!(cell(&row::<AuditEntry>(&with(&entry, &[("outcome", json!("denied"))])), "OUTCOME"), "-denied");
}

#[test]
fn an_event_lists_at_most_four_jobs() {
    let event = |count: i64| -> Event {
        let jobs: Vec<Value> = (1..=count).map(|id| json!({ "id": id, "attempt": 1, "status": "ready" })).collect();
        serde_json::from_value(json!({ "sequence": 1, "time": "t", "reason": "r", "jobs": jobs })).expect("an event")
    };
    assert_eq!(event_text(&event(4)), "1 ready, 2 ready, 3 ready, 4 ready");
    assert_eq!(event_text(&event(6)), "1 ready, 2 ready, 3 ready, 4 ready, and 2 more");
    assert_eq!(event_text(&event(0)), "");
}

#[test]
fn actions() {
    let value = json!({
        "id": 3, "triggerType": "on_jobs_ready", "actionType": "run_commands", "status": "executed", "isRecovery": true,
        "scheduler": "s", "numAllocations": 2, "worker": 21, "runId": 4, "attempt": 5, "tries": 6, "runner": 7, "node": "n1",
        "startTime": "s", "endTime": before(40), "returnCode": 8, "message": "m", "stdout": "/o", "stderr": "/e",
        "commands": ["a", "b"],
    });
    let expected = [
        "NUMBER=3",
        "TRIGGER=on_jobs_ready",
        "TYPE=run_commands",
        "STATUS=+executed",
        "TRIES=6",
        "RUNNER=7 (n1)",
        "ENDED=40s",
        "[IS_RECOVERY=true]",
        "[SCHEDULER=s]",
        "[WORKER=21]",
        "[RUN=4]",
        "[CODE=8]",
        "[COMMANDS=a; b]",
    ];
    assert_eq!(row::<WorkflowAction>(&value), expected);
    let failed = row::<WorkflowAction>(&with(&value, &[("status", json!("failed"))]));
    assert_eq!(cell(&failed, "STATUS"), "-failed");
    let each = row::<WorkflowAction>(&with(&value, &[("everyWorker", json!(true)), ("status", json!("pending"))]));
    assert_eq!(cell(&each, "STATUS"), "each worker");
    let mut bare = value.clone();
    bare.as_object_mut().expect("fields").remove("node");
    assert_eq!(cell(&row::<WorkflowAction>(&bare), "RUNNER"), "7");
}

#[test]
fn allocations() {
    let value = json!({
        "name": "torc-wf1-a2", "id": 2, "workflow": "sweep", "workflowId": 1, "scheduler": "s", "cluster": "c",
        "slurmJobId": "77", "status": "active", "slurmState": "RUNNING", "slurmReason": "Priority", "nodes": 3, "nodeList": "n[1-3]",
        "partition": "p", "account": "acc", "origin": "recovery", "walltimeSeconds": 7_200, "creationTime": before(10),
        "submitTime": "sub", "startTime": before(20), "endTime": before(5), "estimatedStartTime": "est", "expectedEndTime": "exp",
        "message": "msg",
    });
    let expected = [
        "NAME=torc-wf1-a2",
        "WORKFLOW=sweep",
        "SLURM=77",
        "STATUS=+active",
        "STATE=RUNNING",
        "PARTITION=p",
        "NODES=3",
        "TIME=2h",
        "AGE=10s",
        "REASON=Priority",
        "[ORIGIN=recovery]",
        "[SCHEDULER=s]",
        "[CLUSTER=c]",
        "[ACCOUNT=acc]",
        "[NODELIST=n[1-3]]",
        "[STARTED=20s]",
        "[ENDED=5s]",
        "[EXPECTED=est]",
    ];
    assert_eq!(row::<Allocation>(&value), expected);
    let mut bare = value.clone();
    for field in ["slurmReason", "estimatedStartTime"] {
        bare.as_object_mut().expect("fields").remove(field);
    }
    let cells = row::<Allocation>(&bare);
    assert_eq!((cell(&cells, "REASON"), cell(&cells, "EXPECTED")), ("msg".to_owned(), "exp".to_owned()));
    for (status, text) in
        [("pending", "~pending"), ("active", "+active"), ("complete", ".complete"), ("canceled", ".canceled")]
    {
        assert_eq!(cell(&row::<Allocation>(&with(&value, &[("status", json!(status))])), "STATUS"), text);
    }
    assert_eq!(cell(&row::<Allocation>(&with(&value, &[("canceling", json!(true))])), "STATUS"), "+canceling");
}

#[test]
fn clusters() {
    let partition = |name: &str| json!({ "name": name, "cpusPerNode": 1, "memoryMb": 2, "maxWalltime": "1h" });
    let value = json!({
        "name": "c", "generation": 9, "creationTime": before(60), "spec": { "commandPrefix": ["ssh", "l1"], "defaultAccount": "acc" },
        "status": { "lastContactTime": before(7), "partitions": [partition("a"), partition("b")] },
    });
    let expected = ["NAME=c", "PARTITIONS=2", "CONTACT=7s", "AGE=1m", "[ACCOUNT=acc]", "[COMMANDS=ssh l1]"];
    assert_eq!(row::<SlurmCluster>(&value), expected);
    let written = with(&value, &[("/spec/partitions", json!([partition("x")])), ("/spec/commandPrefix", json!([]))]);
    let read: SlurmCluster = serde_json::from_value(written).expect("a cluster");
    let cells = described(&read, now());
    assert_eq!((cell(&cells, "PARTITIONS"), cell(&cells, "COMMANDS")), ("1".to_owned(), "local".to_owned()));
}

#[test]
fn files_and_data() {
    let value = json!({
        "name": "f", "path": "p/f", "status": "present", "sizeBytes": 2048, "modifiedTime": before(11), "sha256": "0123456789abcdef",
        "seenTime": before(12), "seenBy": "n1", "producedBy": ["a", "b"], "readers": 3,
    });
    let expected = [
        "NAME=f",
        "PATH=p/f",
        "STATUS=+present",
        "SIZE=2Ki",
        "MODIFIED=11s",
        "SHA256=0123456789ab",
        "PRODUCED BY=a,b",
        "[READERS=3]",
        "[SEEN BY=n1]",
        "[SEEN=12s]",
    ];
    assert_eq!(row::<File>(&value), expected);
    for (status, text) in [("required", "required"), ("expected", ".expected")] {
        assert_eq!(cell(&row::<File>(&with(&value, &[("status", json!(status))])), "STATUS"), text);
    }
    let data = |value: Value| described(&serde_json::from_value::<UserData>(value).expect("data"), now());
    let base = json!({ "name": "d", "data": { "x": 1 }, "written": true, "writtenBy": "train", "changeTime": before(13),
        "inDocument": true, "isEphemeral": false });
    let expected =
        ["NAME=d", "VALUE={\"x\":1}", "FROM=job train", "CHANGED=13s", "[IN DOCUMENT=yes]", "[EPHEMERAL=no]"];
    assert_eq!(data(base.clone()), expected);
    let mut typed = base.clone();
    typed.as_object_mut().expect("fields").remove("writtenBy");
    assert_eq!(cell(&data(typed.clone()), "FROM"), "user");
    assert_eq!(cell(&data(with(&typed, &[("written", json!(false))])), "FROM"), "document");
    for (length, expected) in [(58, 60), (59, 61), (60, 61)] {
        let long = with(
            &base,
            &[("data", json!("x".repeat(length))), ("inDocument", json!(false)), ("isEphemeral", json!(true))],
        );
        let cells = data(long);
        assert_eq!(cell(&cells, "VALUE").chars().count(), expected, "{length} and two quotes");
        assert_eq!((cell(&cells, "IN DOCUMENT"), cell(&cells, "EPHEMERAL")), ("no".to_owned(), "yes".to_owned()));
    }
}

#[test]
fn workers() {
    let worker = json!({ "address": "a@n1:22", "folder": "/f", "remoteTorc": "/t", "creationTime": before(14) });
    assert_eq!(row::<RemoteWorker>(&worker), ["WORKER=a@n1:22", "AGE=14s", "FOLDER=/f", "[REMOTE-TORC=/t]"]);
    let worker = |state| WorkerStatus {
        worker: "n1".to_owned(),
        state,
        since: Some(before(15)),
        running: 1,
        queued: 2,
        host: Some("h".to_owned()),
        pid: Some(3),
        runner: Some(4),
        folder: Some("/f".to_owned()),
        message: "m".to_owned(),
    };
    let expected = [
        "WORKER=n1",
        "STATE=+running",
        "FOR=15s",
        "RUNNING=1",
        "QUEUED=2",
        "HOST=h",
        "PROCESS=3",
        "[RUNNER=4]",
        "[FOLDER=/f]",
        "MESSAGE=m",
    ];
    assert_eq!(described(&worker(WorkerState::Running), now()), expected);
    for (state, word) in
        [(WorkerState::Stopped, ".stopped"), (WorkerState::Dead, "-dead"), (WorkerState::Unreachable, "-unreachable")]
    {
        assert_eq!(cell(&described(&worker(state), now()), "STATE"), word);
    }
    let fields = json!({ "worker": "n1", "state": "dead", "since": before(15), "running": 1, "queued": 2, "host": "h", "pid": 3,
        "runner": 4, "folder": "/f", "message": "m" });
    assert_eq!(json!(worker(WorkerState::Dead)), fields);
    let order = |good| OrderRow {
        worker: "n1".to_owned(),
        outcome: "started",
        good,
        host: Some("h".to_owned()),
        pid: Some(3),
        message: "m".to_owned(),
    };
    assert_eq!(described(&order(true), now()), ["WORKER=n1", "OUTCOME=+started", "HOST=h", "PROCESS=3", "MESSAGE=m"]);
    assert_eq!(cell(&described(&order(false), now()), "OUTCOME"), "-started");
    assert_eq!(
        json!(order(true)),
        json!({ "worker": "n1", "outcome": "started", "host": "h", "pid": 3, "message": "m" })
    );
    let logs =
        LogsRow { worker: "n1".to_owned(), files: Some(5), folder: Some("/f".to_owned()), message: "m".to_owned() };
    assert_eq!(described(&logs, now()), ["WORKER=n1", "FILES=5", "FOLDER=/f", "MESSAGE=m"]);
    assert_eq!(json!(logs), json!({ "worker": "n1", "files": 5, "folder": "/f", "message": "m" }));
}

#[test]
fn schedulers_and_ways() {
    let planned: RecoveryScheduler = serde_json::from_value(json!({
        "name": "s", "partition": "p", "jobs": 2, "allocations": 3, "nodes": 4, "walltimeSeconds": 3_600, "deferred": true,
        "nodeHours": 5.25,
    }))
    .expect("a scheduler");
    let scheduler = SchedulerRow::of_recovery(&planned);
    let expected = [
        "SCHEDULER=s",
        "PARTITION=p",
        "JOBS=2",
        "ALLOCATIONS=3",
        "NODES=4",
        "WALLTIME=1h",
        "WHEN=jobs ready",
        "NODE-HOURS=5.2",
    ];
    assert_eq!(described(&scheduler, now()), expected);
    assert_eq!(cell(&described(&SchedulerRow { deferred: false, ..scheduler.clone() }, now()), "WHEN"), "start");
    let fields = json!({ "name": "s", "partition": "p", "jobs": 2, "allocations": 3, "nodes": 4, "walltimeSeconds": 3_600,
        "deferred": true, "nodeHours": 5.25 });
    assert_eq!(json!(scheduler), fields);
    let way = |allocations, nodes| Some(EstimateRow { allocations, nodes, start_seconds: 60, done_seconds: 7_200 });
    let plan = AllocationPlanRow {
        scheduler: "s".to_owned(),
        partition: "p".to_owned(),
        jobs: 1,
        nodes: 2,
        idle_nodes: 3,
        queued_jobs: 4,
        walltime_seconds: 5,
        together: way(1, 6),
        together_refused: None,
        apart: None,
        apart_refused: Some("too long".to_owned()),
        recommended: "together",
    };
    let expected = [
        "SCHEDULER=s",
        "PARTITION=p",
        "JOBS=1",
        "NODES=2",
        "IDLE=3",
        "QUEUED=4",
        "TOGETHER=1×6: starts in 1m, ends in 2h",
        "APART=never: too long",
        "BETTER=+together",
    ];
    assert_eq!(described(&plan, now()), expected);
    let fields = json!({ "scheduler": "s", "partition": "p", "jobs": 1, "nodes": 2, "idleNodes": 3, "queuedJobs": 4,
        "walltimeSeconds": 5, "together": { "allocations": 1, "nodes": 6, "startSeconds": 60, "doneSeconds": 7_200 },
        "apartRefused": "too long", "recommended": "together" });
    assert_eq!(json!(plan), fields);
    assert_eq!(cell(&described(&AllocationPlanRow { apart_refused: None, ..plan }, now()), "APART"), "unknown");
}

#[test]
fn sites() {
    let profile = |here| SiteRow {
        name: "k".to_owned(),
        title: "K".to_owned(),
        partitions: 3,
        here,
        origin: "built in".to_owned(),
    };
    assert_eq!(described(&profile(true), now()), ["NAME=k", "TITLE=K", "PARTITIONS=3", "HERE=+yes", "FROM=built in"]);
    assert_eq!(cell(&described(&profile(false), now()), "HERE"), "");
    let fields = json!({ "name": "k", "title": "K", "partitions": 3, "here": true, "origin": "built in" });
    assert_eq!(json!(profile(true)), fields);
    let partition = |value: Value| {
        described(&PartitionRow(serde_json::from_value::<Partition>(value).expect("a partition")), now())
    };
    let base = json!({ "name": "p", "cpusPerNode": 4, "memoryMb": 2048, "maxWalltime": "2h", "gpusPerNode": 5, "gpuType": "a100",
        "nodes": 6, "shared": true, "requiresExplicitRequest": true });
    let expected = [
        "PARTITION=p",
        "CPUS=4",
        "MEMORY=2Gi",
        "GPUS=5 a100",
        "WALLTIME=2h",
        "NODES=6",
        "SHARED=yes",
        "REMARK=only when named",
    ];
    assert_eq!(partition(base.clone()), expected);
    let other = partition(with(
        &base,
        &[("gpuType", json!(null)), ("shared", json!(false)), ("requiresExplicitRequest", json!(false))],
    ));
    assert_eq!([cell(&other, "GPUS"), cell(&other, "SHARED"), cell(&other, "REMARK")], ["5", "", ""]);
    assert_eq!(cell(&partition(with(&base, &[("gpusPerNode", json!(0))])), "GPUS"), "");
    let matched = |fits, chosen| MatchRow { partition: "p".to_owned(), fits, chosen, reason: Some("why".to_owned()) };
    assert_eq!(described(&matched(true, true), now()), ["PARTITION=p", "FITS=+yes", "CHOSEN=~yes", "WHY NOT=why"]);
    assert_eq!(described(&matched(false, false), now()), ["PARTITION=p", "FITS=.no", "CHOSEN=", "WHY NOT=why"]);
    assert_eq!(
        json!(matched(true, false)),
        json!({ "partition": "p", "fits": true, "chosen": false, "reason": "why" })
    );
}

#[test]
fn accounting() {
    let stats = json!({
        "workflow": 1, "job": 2, "run": 3, "attempt": 4, "slurmJobId": "77", "step": "5", "maxRssBytes": 6 << 20,
        "maxVmSizeBytes": 7 << 20, "maxDiskReadBytes": 8 << 20, "maxDiskWriteBytes": 9 << 20, "aveCpuSeconds": 1.25,
        "nodeList": "n1", "state": "COMPLETED",
    });
    let row = |stats: &Value| StatsRow {
        job_name: "train".to_owned(),
        stats: serde_json::from_value(stats.clone()).expect("stats"),
    };
    let expected = [
        "JOB=train",
        "RUN=3",
        "ATTEMPT=4",
        "SLURM JOB=77",
        "STATE=+COMPLETED",
        "MAX RSS=6Mi",
        "AVE CPU=1.2 s",
        "NODES=n1",
        "[MAX VM=7Mi]",
        "[READ=8Mi]",
        "[WRITTEN=9Mi]",
        "[STEP=5]",
    ];
    assert_eq!(described(&row(&stats), now()), expected);
    let mut fields = stats.clone();
    fields["jobName"] = json!("train");
    let written = json!(row(&stats));
    for (name, value) in fields.as_object().expect("fields") {
        assert_eq!(written[name], *value, "{name}");
    }
    for (state, sign) in [("FAILED", "-"), ("RUNNING", "~"), ("TIMEOUT", "-"), ("CANCELLED by 1", "-")] {
        let cells = described(&row(&with(&stats, &[("state", json!(state))])), now());
        assert_eq!(cell(&cells, "STATE"), format!("{sign}{state}"));
    }
    let sacct = SacctRow {
        slurm_job_id: "77.1".to_owned(),
        name: "wf1".to_owned(),
        state: "FAILED".to_owned(),
        exit_code: "2:0".to_owned(),
        start_time: Some("s".to_owned()),
        end_time: Some("e".to_owned()),
        elapsed_seconds: 11,
        nodes: 12,
        cpus: 13,
        cpu_seconds: 14,
        used_cpu_seconds: Some(1.5),
        max_rss_bytes: Some(3 << 20),
        node_list: Some("n2".to_owned()),
    };
    let expected = [
        "SLURM JOB=77.1",
        "NAME=wf1",
        "STATE=-FAILED",
        "EXIT=2:0",
        "ELAPSED=11 s",
        "NODES=12",
        "CPUS=13",
        "USED CPU=1.5 s",
        "MAX RSS=3Mi",
        "NODE LIST=n2",
        "[START=s]",
        "[END=e]",
    ];
    assert_eq!(described(&sacct, now()), expected);
    let fields = json!({ "slurmJobId": "77.1", "name": "wf1", "state": "FAILED", "exitCode": "2:0", "startTime": "s", "endTime": "e",
        "elapsedSeconds": 11, "nodes": 12, "cpus": 13, "cpuSeconds": 14, "usedCpuSeconds": 1.5, "maxRssBytes": 3 << 20, "nodeList": "n2" });
    assert_eq!(json!(sacct), fields);
}

#[test]
fn a_setting_has_its_columns() {
    let setting = SettingRow { key: "client.url", value: Some("u".to_owned()), origin: Some("o".to_owned()) };
    assert_eq!(described(&setting, now()), ["SETTING=client.url", "VALUE=u", "FROM=o"]);
    assert_eq!(json!(setting), json!({ "key": "client.url", "value": "u", "origin": "o" }));
}

#[test]
fn formats_have_their_names() {
    let all = [
        (OutputFormat::Table, "table", false),
        (OutputFormat::Wide, "wide", false),
        (OutputFormat::Json, "json", true),
        (OutputFormat::Yaml, "yaml", true),
    ];
    assert_eq!(OutputFormat::CHOICES.iter().map(|(name, _)| *name).collect::<Vec<_>>(), all.map(|(_, name, _)| name));
    for (format, name, structured) in all {
        assert_eq!(format.is_structured(), structured);
        assert_eq!(OutputFormat::from_name(name), Ok(format));
    }
    assert!(OutputFormat::from_name("xml").is_err());
    assert_eq!(json!(ItemList { items: &["a"] }), json!({ "items": ["a"] }));
}
