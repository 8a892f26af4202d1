//! `torc describe`: show one resource in detail.

use std::fmt::Write as _;

use clap::Args;
use serde_json::json;
use torc_api::action::ActionState;
use torc_api::api::{Event, Job, JobResult, SlurmCluster, Workflow, WorkflowAction};
use torc_api::filter::ResultFilter;

use crate::client::Client;
use crate::connection::{bare_name, explain_missing, resolve_workflow, with_client};
use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::output::{event_text, human, status_word};

/// Show a workflow, job or SlurmCluster in detail
#[derive(Debug, Args)]
pub struct DescribeArgs {
    /// Kind of the resource: `workflow`, `job` or `slurmcluster`; also `workflow/NAME`
    #[arg(value_name = "RESOURCE")]
    pub resource: String,
    /// Name or number (default: the only workflow in the store)
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Workflow of the job (default: the only one in the store)
    #[arg(long, value_name = "WORKFLOW")]
    pub workflow: Option<String>,
}

/// Number of the latest events that are shown.
const MAX_SHOWN_EVENTS: usize = 10;
/// Number of the store's latest events that are searched. Other workflows may have written most of them.
const SEARCHED_EVENTS: i64 = 1_000;

pub async fn run(context: &CommandContext, args: &DescribeArgs) -> Result<ExitStatus, CliError> {
    let (kind, name) = match args.resource.split_once('/') {
        Some((kind, name)) => (kind, Some(name)),
        None => (args.resource.as_str(), args.name.as_deref()),
    };
    with_client(&context.settings, &context.folder, async |client: &Client| match kind {
        "workflow" | "workflows" | "wf" | "twf" => workflow(context, client, name).await,
        "job" | "jobs" => {
            let name = name.ok_or_else(|| CliError::usage("missing name of the job"))?;
            job(context, client, args.workflow.as_deref(), name).await
        }
        "slurmcluster" | "slurmclusters" | "slc" => {
            let name = name.ok_or_else(|| CliError::usage("missing name of the SlurmCluster"))?;
            cluster(context, client, name).await
        }
        other => {
            let message = format!("unknown resource `{other}`");
            Err(CliError::usage(message).hint("use workflow, job or slurmcluster"))
        }
    })
    .await?;
    Ok(ExitStatus::Success)
}

async fn workflow(context: &CommandContext, client: &Client, name: Option<&str>) -> Result<(), CliError> {
    let name = resolve_workflow(client, name.map(bare_name)).await?;
    let workflow = client.workflow(&name).await.map_err(explain_missing)?;
    let recent = client.last_sequence().await? - SEARCHED_EVENTS;
    let mut events = client.events(Some(workflow.id), Some(recent.max(0)), None).await?;
    let events = events.split_off(events.len().saturating_sub(MAX_SHOWN_EVENTS));
    let actions = client.actions(&name).await?;
    let mut shown = json!(workflow);
    if let Some(fields) = shown.as_object_mut().filter(|_| !actions.is_empty()) {
        fields.insert("actions".to_owned(), json!(actions));
    }
    context.output.value(&shown, || workflow_text(&workflow, &actions, &events))
}

async fn job(context: &CommandContext, client: &Client, workflow: Option<&str>, name: &str) -> Result<(), CliError> {
    let workflow = resolve_workflow(client, workflow).await?;
    let job = client.job(&workflow, name).await.map_err(explain_missing)?;
    let filter = ResultFilter { job: Some(job.id.to_string()), ..ResultFilter::default() };
    let results = client.results(&workflow, &filter, None).await?;
    context.output.value(&json!({ "job": job, "results": results }), || job_text(&job, &results))
}

async fn cluster(context: &CommandContext, client: &Client, name: &str) -> Result<(), CliError> {
    let cluster = client.cluster(name).await?;
    context.output.value(&cluster, || cluster_text(&cluster))
}

fn cluster_text(cluster: &SlurmCluster) -> String {
    let mut text = String::new();
    let spec = &cluster.spec;
    field(&mut text, "Name", &cluster.name);
    let commands =
        if spec.command_prefix.is_empty() { "of this machine".to_owned() } else { spec.command_prefix.join(" ") };
    field(&mut text, "Commands", commands);
    if let Some(account) = &spec.default_account {
        field(&mut text, "Account", account);
    }
    let status = cluster.status.as_ref();
    if let Some(contact) = status.and_then(|status| status.last_contact_time.as_deref()) {
        field(&mut text, "Contact", contact);
    }
    for condition in status.into_iter().flat_map(|status| &status.conditions) {
        let more = if condition.message.is_empty() { String::new() } else { format!(": {}", condition.message) };
        field(&mut text, &condition.type_, format!("{} ({}){more}", condition.status, condition.reason));
    }
    let detected = status.map_or(&[][..], |status| &status.partitions);
    let (partitions, source) = match spec.partitions.as_slice() {
        [] => (detected, "detected"),
        written => (written, "from the document"),
    };
    field(&mut text, "Partitions", if partitions.is_empty() { "not detected yet" } else { source });
    for partition in partitions {
        let gpus = partition.gpus_per_node.map_or(String::new(), |gpus| format!(", {}", human::count(gpus, "GPU")));
        let nodes = partition.nodes.map_or(String::new(), |nodes| format!(", up to {}", human::count(nodes, "node")));
        let shared = if partition.shared == Some(true) { ", shared" } else { "" };
        let _ = writeln!(
            text,
            "  {}: {}, {} MiB{gpus} per node{nodes}, up to {}{shared}",
            partition.name,
            human::count(partition.cpus_per_node, "CPU"),
            partition.memory_mb,
            partition.max_walltime
        );
    }
    text
}

fn field(text: &mut String, name: &str, value: impl std::fmt::Display) {
    let _ = writeln!(text, "{:<13}{value}", format!("{name}:"));
}

fn workflow_text(workflow: &Workflow, actions: &[WorkflowAction], events: &[Event]) -> String {
    let mut text = String::new();
    field(&mut text, "Name", &workflow.name);
    field(&mut text, "Number", workflow.id);
    field(&mut text, "Namespace", &workflow.namespace);
    field(&mut text, "Owner", &workflow.owner);
    field(&mut text, "Status", status_word(workflow));
    field(&mut text, "Run", workflow.status.run_id.unwrap_or(1));
    field(&mut text, "Generation", workflow.generation);
    if !workflow.working_dir.is_empty() {
        field(&mut text, "Folder", &workflow.working_dir);
    }
    field(&mut text, "Created", &workflow.creation_time);
    if let Some(time) = &workflow.status.start_time {
        field(&mut text, "Started", time);
    }
    if let Some(time) = &workflow.status.completion_time {
        field(&mut text, "Completed", time);
    }
    let _ = writeln!(text, "Jobs:        {} in all", workflow.status.jobs.total);
    for state in torc_api::state::JobState::ALL.iter().copied() {
        let count = workflow.status.jobs.of(state);
        if count > 0 {
            let _ = writeln!(text, "  {state:<15}{count}");
        }
    }
    if let Some(counts) = &workflow.status.allocations {
        let counted = format!("{} active, {} pending, {} finished", counts.active, counts.pending, counts.finished);
        field(&mut text, "Allocations", counted);
    }
    if let Some(recovery) = &workflow.status.recovery {
        field(&mut text, "Recovery", format!("round {}: {}", recovery.round, recovery.message));
    }
    actions_text(&mut text, actions);
    if !workflow.status.conditions.is_empty() {
        text.push_str("Conditions:\n");
        for condition in &workflow.status.conditions {
            let message = if condition.message.is_empty() { String::new() } else { format!(": {}", condition.message) };
            let _ = writeln!(text, "  {:<18}{:<9}{}{message}", condition.type_, condition.status, condition.reason);
        }
    }
    if !workflow.status.failures.is_empty() {
        text.push_str("Latest failures:\n");
        for failure in &workflow.status.failures {
            let code = failure.return_code.map_or(String::new(), |code| format!(", {}", human::exit_code(code)));
            let _ = writeln!(text, "  {} (attempt {}): {}{code}", failure.job, failure.attempt, failure.cause);
        }
    }
    if !events.is_empty() {
        text.push_str("Latest events:\n");
        for event in events {
            let _ = writeln!(text, "  {}  {}  {}", event.time, event.reason, event_text(event));
        }
    }
    text
}

/// Number of actions that are shown; `torc get actions` lists all.
const MAX_SHOWN_ACTIONS: usize = 20;

fn actions_text(text: &mut String, actions: &[WorkflowAction]) {
    if actions.is_empty() {
        return;
    }
    text.push_str("Actions:\n");
    for action in actions.iter().take(MAX_SHOWN_ACTIONS) {
        let worker = action.worker.map_or(String::new(), |worker| format!(", worker {worker}"));
        let state = match action.status {
            _ if action.every_worker => "on each worker".to_owned(),
            ActionState::Failed => {
                let code = action.return_code.map_or(String::new(), |code| format!(", exit code {code}"));
                let log = action.stderr.as_ref().map_or(String::new(), |log| format!("; see {log}"));
                format!("failed after {} tries{code}{log}", action.tries)
            }
            state => state.to_string(),
        };
        let _ =
            writeln!(text, "  {:<5}{:<22}{:<16}{state}{worker}", action.id, action.trigger_type, action.action_type);
    }
    if actions.len() > MAX_SHOWN_ACTIONS {
        let _ = writeln!(text, "  and {} more: torc get actions", actions.len() - MAX_SHOWN_ACTIONS);
    }
}

fn job_text(job: &Job, results: &[JobResult]) -> String {
    let mut text = String::new();
    field(&mut text, "Name", &job.name);
    field(&mut text, "Number", job.id);
    field(&mut text, "Workflow", &job.workflow);
    field(
        &mut text,
        "Status",
        if job.in_doubt {
            format!("{} (unconfirmed: its runner does not report)", job.status)
        } else {
            job.status.to_string()
        },
    );
    field(&mut text, "Run", job.run_id);
    field(&mut text, "Attempt", job.attempt);
    field(&mut text, "Priority", job.priority);
    let needs = &job.resources;
    let nodes = if needs.num_nodes > 1 { format!(" on each of {} nodes", needs.num_nodes) } else { String::new() };
    let memory = human::bytes(needs.memory_bytes);
    let runtime = human::duration(needs.runtime_seconds);
    field(&mut text, "Needs", format!("{} CPU, {memory}, {} GPU{nodes}, {runtime}", needs.num_cpus, needs.num_gpus));
    if let Some(node) = &job.node {
        field(&mut text, "Node", node);
    }
    if let Some(time) = &job.start_time {
        field(&mut text, "Started", time);
    }
    if !job.labels.is_empty() {
        field(&mut text, "Labels", job.labels.join(", "));
    }
    if !job.depends_on.is_empty() {
        field(&mut text, "Depends on", job.depends_on.join(", "));
    }
    if job.waiting_for > 0 {
        field(&mut text, "Waits for", human::count(job.waiting_for, "job"));
    }
    text.push_str("Command:\n");
    for line in job.command.lines() {
        let _ = writeln!(text, "  {line}");
    }
    if !results.is_empty() {
        text.push_str("Attempts:\n");
    }
    for result in results {
        let cause = result.cause.map_or(String::new(), |cause| format!(", {cause}"));
        let code = result.return_code.map_or(String::new(), |code| format!(", {}", human::exit_code(code)));
        let time = human::precise(result.duration_seconds);
        let _ = writeln!(
            text,
            "  run {} attempt {}: {}{cause}{code}, {time}",
            result.run_id, result.attempt, result.status
        );
        if let Some(usage) = human::usage(&result.usage) {
            let _ = writeln!(text, "    used: {usage}");
        }
        for (name, value) in [("message", &result.message), ("stdout", &result.stdout), ("stderr", &result.stderr)] {
            if let Some(value) = value {
                let _ = writeln!(text, "    {name}: {value}");
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use torc_api::status::{JobCounts, WorkflowStatus};

    use super::*;

    #[test]
    fn a_workflow_shows_what_is_there() {
        let counts = JobCounts { total: 3, completed: 3, ..JobCounts::default() };
        let text = workflow_text(&crate::workflow_phase::tests::workflow(counts, &["Finished", "Succeeded"]), &[], &[]);
        assert!(text.starts_with("Name:        w\nNumber:      1\n"), "{text}");
        assert!(text.contains("  completed      3\n") && !text.contains("failed"), "{text}");
        assert!(text.contains("  Finished          True     Because\n"), "{text}");
    }

    #[test]
    fn a_job_shows_all_that_is_known() {
        let job: Job = serde_json::from_value(json!({
            "id": 8, "workflow": "sweep", "name": "train", "status": "running", "runId": 2, "attempt": 3, "command": "one\ntwo",
            "priority": 5, "resources": { "numCpus": 6, "memoryBytes": 7 << 20, "numGpus": 9, "numNodes": 2, "runtimeSeconds": 11 },
            "dependsOn": ["a", "b"], "waitingFor": 1, "labels": ["l", "m"], "node": "n1", "inDoubt": true, "startTime": "s",
        }))
        .expect("a job");
        let result: JobResult = serde_json::from_value(json!({
            "workflow": "sweep", "job": "train", "jobId": 8, "runId": 1, "attempt": 2, "status": "failed", "returnCode": 9, "cause": "ExitCode",
            "message": "m", "endTime": "e", "durationSeconds": 1.5, "stdout": "/o", "stderr": "/e", "peakMemoryBytes": 1 << 20,
        }))
        .expect("a result");
        let expected = "Name:        train\nNumber:      8\nWorkflow:    sweep\nStatus:      running (unconfirmed: its runner does not report)\nRun:         2\n\
            Attempt:     3\nPriority:    5\nNeeds:       6 CPU, 7Mi, 9 GPU on each of 2 nodes, 11s\nNode:        n1\nStarted:     s\n\
            Labels:      l, m\nDepends on:  a, b\nWaits for:   1 job\nCommand:\n  one\n  two\nAttempts:\n  \
            run 1 attempt 2: failed, ExitCode, exit code 9, 1.5s\n    used: 1Mi memory peak\n    message: m\n    stdout: /o\n    stderr: /e\n";
        assert_eq!(job_text(&job, &[result]), expected);
    }

    #[test]
    fn a_workflow_shows_all_that_is_known() {
        let mut workflow = crate::workflow_phase::tests::workflow(
            JobCounts { total: 7, failed: 3, ready: 4, ..JobCounts::default() },
            &[],
        );
        workflow.id = 9;
        workflow.generation = 5;
        workflow.status = WorkflowStatus {
            run_id: Some(6),
            start_time: Some("started".to_owned()),
            completion_time: Some("completed".to_owned()),
            allocations: Some(torc_api::status::AllocationCounts { desired: 1, pending: 2, active: 3, finished: 4 }),
            recovery: Some(torc_api::status::RecoveryProgress { round: 8, message: "soon".to_owned() }),
            failures: vec![torc_api::status::FailureSample {
                job: "j".to_owned(),
                attempt: 2,
                return_code: Some(5),
                cause: torc_api::state::Cause::ExitCode,
                time: "t".to_owned(),
            }],
            ..workflow.status
        };
        let event = Event {
            sequence: 1,
            time: "T".to_owned(),
            workflow: None,
            workflow_id: None,
            reason: "R".to_owned(),
            message: "M".to_owned(),
            jobs: Vec::new(),
        };
        let text = workflow_text(&workflow, &[], &[event]);
        let expected = "Name:        w\nNumber:      9\nNamespace:   default\nOwner:       me\nStatus:      Waiting\nRun:         6\n\
            Generation:  5\nFolder:      /w\nCreated:     2026-01-01T00:00:00Z\nStarted:     started\nCompleted:   completed\nJobs:        7 in all\n  \
            ready          4\n  failed         3\nAllocations: 3 active, 2 pending, 4 finished\nRecovery:    round 8: soon\nLatest failures:\n  \
            j (attempt 2): ExitCode, exit code 5\nLatest events:\n  T  R  M\n";
        assert_eq!(text, expected);
        assert_eq!((MAX_SHOWN_EVENTS, SEARCHED_EVENTS, MAX_SHOWN_ACTIONS), (10, 1_000, 20));
    }

    #[test]
    fn actions_show_their_state() {
        let action = |changes: serde_json::Value| -> WorkflowAction {
            let mut value = json!({ "id": 3, "triggerType": "on_jobs_ready", "actionType": "run_commands", "status": "failed", "runId": 1, "attempt": 1,
                "tries": 4, "returnCode": 5, "stderr": "/e", "worker": 6 });
            value.as_object_mut().expect("fields").extend(changes.as_object().expect("fields").clone());
            serde_json::from_value(value).expect("an action")
        };
        let mut text = String::new();
        actions_text(
            &mut text,
            &[action(json!({})), action(json!({ "everyWorker": true })), action(json!({ "status": "executed" }))],
        );
        let start = "  3    on_jobs_ready         run_commands    ";
        let expected = format!(
            "Actions:\n{start}failed after 4 tries, exit code 5; see /e, worker 6\n{start}on each worker, worker 6\n{start}executed, worker 6\n"
        );
        assert_eq!(text, expected);
        let mut many = String::new();
        actions_text(&mut many, &vec![action(json!({})); 22]);
        assert!(many.ends_with("  and 2 more: torc get actions\n"), "{many}");
    }

    #[test]
    fn a_cluster_shows_its_partitions() {
        let partition = json!({ "name": "p", "cpusPerNode": 4, "memoryMb": 5, "maxWalltime": "6h", "gpusPerNode": 7, "nodes": 8, "shared": true });
        let cluster = |spec: serde_json::Value, status: serde_json::Value| -> SlurmCluster {
            serde_json::from_value(json!({ "name": "c", "generation": 1, "spec": spec, "status": status }))
                .expect("a cluster")
        };
        let condition =
            json!({ "type": "Ready", "status": "False", "reason": "R", "message": "M", "lastTransitionTime": "t" });
        let text = cluster_text(&cluster(
            json!({ "commandPrefix": ["ssh", "l"], "defaultAccount": "a" }),
            json!({ "lastContactTime": "t", "partitions": [partition], "conditions": [condition] }),
        ));
        let expected = "Name:        c\nCommands:    ssh l\nAccount:     a\nContact:     t\nReady:       False (R): M\nPartitions:  detected\n  \
            p: 4 CPUs, 5 MiB, 7 GPUs per node, up to 8 nodes, up to 6h, shared\n";
        assert_eq!(text, expected);
        let written = cluster_text(&cluster(
            json!({ "partitions": [{ "name": "q", "cpusPerNode": 1, "memoryMb": 2, "maxWalltime": "3h" }] }),
            json!({}),
        ));
        assert!(
            written.ends_with(
                "Commands:    of this machine\nPartitions:  from the document\n  q: 1 CPU, 2 MiB per node, up to 3h\n"
            ),
            "{written}"
        );
        assert!(cluster_text(&cluster(json!({}), json!({}))).ends_with("Partitions:  not detected yet\n"));
    }
}
