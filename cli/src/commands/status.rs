//! `torc status`: show the state of a workflow on one screen.

use std::fmt::Write as _;

use clap::Args;
use serde_json::{Value, json};
use torc_api::api::{Runner, RunnerStatus, Workflow};
use torc_api::state::JobState;

use crate::client::Client;
use crate::connection::{explain_missing, resolve_workflow, with_client};
use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::output::{human, status_word, without_nulls};
use crate::use_cases::progress::allocations;
use crate::workflow_phase::{WorkflowPhase, phase};

/// Show the state, job counts and runners of a workflow
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Workflow by name or number (default: the only one in the store)
    #[arg(value_name = "WORKFLOW")]
    pub workflow: Option<String>,
}

pub async fn run(context: &CommandContext, args: &StatusArgs) -> Result<ExitStatus, CliError> {
    with_client(&context.settings, &context.folder, async |client: &Client| {
        let name = resolve_workflow(client, args.workflow.as_deref()).await?;
        let workflow = client.workflow(&name).await.map_err(explain_missing)?;
        let mut runners = client.runners(false).await?;
        runners.retain(|runner| serves(runner, &workflow));
        context.output.value(&value(&workflow, &runners), || text(&workflow, &runners))
    })
    .await?;
    Ok(ExitStatus::Success)
}

fn serves(runner: &Runner, workflow: &Workflow) -> bool {
    // Runners in allocations refer to the workflow by its id.
    runner.workflow.as_ref().is_none_or(|word| *word == workflow.name || *word == workflow.id.to_string())
}

fn value(workflow: &Workflow, runners: &[Runner]) -> Value {
    without_nulls(json!({
        "name": workflow.name,
        "id": workflow.id,
        "namespace": workflow.namespace,
        "runId": workflow.status.run_id.unwrap_or(1),
        "status": status_word(workflow),
        "message": sentence(workflow, runners),
        "jobs": workflow.status.jobs,
        "conditions": workflow.status.conditions,
        "startTime": workflow.status.start_time,
        "completionTime": workflow.status.completion_time,
        "runners": runners,
    }))
}

fn text(workflow: &Workflow, runners: &[Runner]) -> String {
    let mut text = String::new();
    let jobs = &workflow.status.jobs;
    let _ = writeln!(text, "Workflow:  {} (number {})", workflow.name, workflow.id);
    let _ = writeln!(text, "Run:       {}", workflow.status.run_id.unwrap_or(1));
    let _ = writeln!(text, "Status:    {}: {}", status_word(workflow), sentence(workflow, runners));
    let _ = writeln!(text, "Jobs:      {} of {} ended", jobs.settled(), jobs.total);
    for state in JobState::ALL.iter().copied().filter(|state| jobs.of(*state) > 0) {
        let _ = writeln!(text, "  {state:<15}{}", jobs.of(state));
    }
    let _ =
        writeln!(text, "Runners:   {}", if runners.is_empty() { "none".to_owned() } else { runners.len().to_string() });
    for runner in runners {
        let silent = if runner.status == RunnerStatus::Silent { ", not reporting" } else { "" };
        let cpus = human::count(runner.capacity.cpus, "CPU");
        let _ = writeln!(text, "  {} on {}: {cpus}, {} running{silent}", runner.id, runner.host, runner.running);
    }
    text
}

/// Describes the state and, if nothing moves by itself, the next command.
fn sentence(workflow: &Workflow, runners: &[Runner]) -> String {
    let (jobs, name) = (&workflow.status.jobs, &workflow.name);
    match phase(workflow) {
        WorkflowPhase::Succeeded => "all jobs succeeded".to_owned(),
        WorkflowPhase::Failed => {
            let bad = human::count(jobs.failed + jobs.terminated + jobs.canceled, "job");
            format!("{bad} did not succeed; retry with: torc retry {name}")
        }
        WorkflowPhase::Canceled => format!("continue with: torc resume {name}"),
        WorkflowPhase::Suspended => format!("no job starts; continue with: torc resume {name}"),
        WorkflowPhase::NeedsDecision => {
            let waiting = human::count(jobs.pending_failed, "job");
            format!("{waiting} failed and need a decision: torc retry {name}, or torc cancel {name}")
        }
        WorkflowPhase::Active if workflow.slurm_cluster.is_some() => {
            let allocations = allocations(workflow);
            let allocations = if allocations.is_empty() { "no allocation yet".to_owned() } else { allocations };
            let waiting = jobs.total - jobs.settled() - jobs.running;
            format!("{} running, {waiting} waiting; {allocations}", human::count(jobs.running, "job"))
        }
        WorkflowPhase::Active if runners.is_empty() => {
            format!("{} to run, but there is no runner; start one with: torc run {name}", jobs.total - jobs.settled())
        }
        WorkflowPhase::Active => {
            let waiting = jobs.total - jobs.settled() - jobs.running;
            format!("{} running, {waiting} waiting", human::count(jobs.running, "job"))
        }
    }
}

#[cfg(test)]
mod tests {
    use torc_api::status::{AllocationCounts, JobCounts};

    use super::*;
    use crate::workflow_phase::tests::workflow;

    // J38
    #[test]
    fn the_run_and_the_counts_are_shown() {
        let counts = JobCounts { total: 3, completed: 1, failed: 2, ..JobCounts::default() };
        let mut failed = workflow(counts, &["Finished"]);
        failed.status.run_id = Some(7);
        let shown = text(&failed, &[]);
        for line in ["Run:       7\n", "Jobs:      3 of 3 ended\n", "  failed         2\n", "Runners:   none\n"] {
            assert!(shown.contains(line), "{line}: {shown}");
        }
        assert!(!shown.contains("ready"), "{shown}");
        assert_eq!(value(&failed, &[])["runId"], 7);
    }

    #[test]
    fn on_slurm_allocations_are_what_is_waited_for() {
        let on_slurm = |pending, active| {
            let counts = JobCounts { total: 8, ready: 2, running: 1, completed: 5, ..JobCounts::default() };
            let mut workflow = workflow(counts, &[]);
            workflow.slurm_cluster = Some("local".to_owned());
            workflow.status.allocations = Some(AllocationCounts { pending, active, ..AllocationCounts::default() });
            workflow
        };
        for (workflow, expected) in [
            (on_slurm(0, 0), "1 job running, 2 waiting; no allocation yet"),
            (on_slurm(2, 0), "1 job running, 2 waiting; 2 allocations pending"),
            (on_slurm(0, 1), "1 job running, 2 waiting; 1 allocation active"),
        ] {
            assert_eq!(sentence(&workflow, &[]), expected);
        }
    }

    #[test]
    fn what_does_not_move_by_itself_says_what_would_move_it() {
        let counts = JobCounts::default;
        for (workflow, expected) in [
            (workflow(JobCounts { total: 2, ready: 2, ..counts() }, &[]), "torc run w"),
            (workflow(JobCounts { total: 1, failed: 1, ..counts() }, &["Finished"]), "torc retry w"),
            (workflow(JobCounts { total: 1, pending_failed: 1, ..counts() }, &[]), "torc cancel w"),
            (Workflow { suspended: true, ..workflow(counts(), &[]) }, "torc resume w"),
            (Workflow { canceled: true, ..workflow(counts(), &["Finished"]) }, "torc resume w"),
        ] {
            assert!(sentence(&workflow, &[]).ends_with(expected), "{}", sentence(&workflow, &[]));
        }
    }

    #[test]
    fn the_fields_for_programs() {
        let mut workflow = workflow(JobCounts { total: 1, ready: 1, ..JobCounts::default() }, &["Accepted"]);
        let fields = |workflow: &Workflow| {
            let mut names: Vec<String> = value(workflow, &[]).as_object().expect("fields").keys().cloned().collect();
            names.sort();
            names
        };
        let always = ["conditions", "id", "jobs", "message", "name", "namespace", "runId", "runners", "status"];
        assert_eq!(fields(&workflow), always);
        workflow.status.start_time = Some("s".to_owned());
        workflow.status.completion_time = Some("c".to_owned());
        let shown = value(&workflow, &[]);
        assert_eq!((&shown["startTime"], &shown["completionTime"]), (&json!("s"), &json!("c")));
        assert_eq!((&shown["name"], &shown["id"], &shown["namespace"]), (&json!("w"), &json!(1), &json!("default")));
    }

    #[test]
    fn a_runner_serves_all_or_its_own_workflow() {
        let workflow =
            workflow(JobCounts { total: 4, running: 1, completed: 1, ready: 2, ..JobCounts::default() }, &[]);
        let runner = |served: Option<&str>, status: &str| -> Runner {
            let mut value = json!({ "id": 4, "host": "h", "pid": 7, "kind": "local", "status": status,
                "capacity": { "cpus": 1, "memoryBytes": 1, "gpus": 0, "nodes": 1 }, "version": "1", "queued": 2, "running": 3, "startTime": "t" });
            if let Some(served) = served {
                value["workflow"] = json!(served);
            }
            serde_json::from_value(value).expect("a runner")
        };
        for (served, expected) in [(None, true), (Some("w"), true), (Some("1"), true), (Some("other"), false)] {
            assert_eq!(serves(&runner(served, "active"), &workflow), expected, "{served:?}");
        }
        assert_eq!(sentence(&workflow, &[runner(None, "active")]), "1 job running, 2 waiting");
        assert_eq!(sentence(&workflow, &[]), "3 to run, but there is no runner; start one with: torc run w");
        let shown = text(&workflow, &[runner(None, "silent")]);
        assert!(shown.ends_with("Runners:   1\n  4 on h: 1 CPU, 3 running, not reporting\n"), "{shown}");
        let failed = crate::workflow_phase::tests::workflow(
            JobCounts { total: 9, failed: 1, terminated: 2, canceled: 3, ..JobCounts::default() },
            &["Finished"],
        );
        assert_eq!(sentence(&failed, &[]), "6 jobs did not succeed; retry with: torc retry w");
    }
}
