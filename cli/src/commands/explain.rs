//! `torc explain`: explain the state of a job or workflow.

use std::fmt::Write as _;

use clap::Args;
use torc_api::explain::{AttemptReport, JobExplanation, Reason, ReasonKind, WorkflowExplanation};
use torc_api::wire::Resources;
use torc_runner::detect;

use super::logs::last_lines_of;
use crate::client::Client;
use crate::connection::{bare_name, explain_missing, resolve_workflow, with_client};
use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::output::human;
use crate::settings::RunnerSettings;

/// Explain why a job waits, ran again or failed
///
/// `torc explain job/NAME -w WORKFLOW` for a job, `torc explain workflow/NAME` for all jobs of a workflow.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// `job/NAME` or `workflow/NAME`; a name without a kind is the name of a job
    #[arg(value_name = "WHAT")]
    pub what: String,
    /// Workflow of the job (default: the only one in the store)
    #[arg(short = 'w', long, value_name = "WORKFLOW")]
    pub workflow: Option<String>,
    /// Number of lines to print from the error output of each failed attempt
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub lines: usize,
}

pub async fn run(context: &CommandContext, args: &ExplainArgs) -> Result<ExitStatus, CliError> {
    let (kind, name) = match args.what.split_once('/') {
        Some(("workflow" | "workflows" | "wf" | "twf", name)) => ("workflow", name),
        Some(("job" | "jobs", name)) => ("job", name),
        _ if args.what == "workflow" => ("workflow", ""),
        _ => ("job", args.what.as_str()),
    };
    with_client(&context.settings, &context.folder, async |client: &Client| {
        if kind == "workflow" {
            let name = resolve_workflow(client, Some(name).filter(|name| !name.is_empty())).await?;
            let explanation = client.explain_workflow(&name).await.map_err(explain_missing)?;
            return context.output.value(&explanation, || workflow_text(&explanation));
        }
        let workflow = resolve_workflow(client, args.workflow.as_deref().map(bare_name)).await?;
        let mut explanation = client.explain_job(&workflow, name).await.map_err(explain_missing)?;
        for attempt in explanation.attempts.iter_mut().filter(|attempt| attempt.cause.is_some()) {
            let path = attempt.stderr.as_deref();
            attempt.stderr_tail = path.map_or_else(Vec::new, |path| last_lines_of(path, args.lines));
        }
        explanation.next = next_commands(&explanation, local_capacity(&context.settings.run));
        context.output.value(&explanation, || job_text(&explanation))
    })
    .await?;
    Ok(ExitStatus::Success)
}

/// Returns the resources that a runner of this machine would advertise.
fn local_capacity(run: &RunnerSettings) -> Resources {
    let gpus = || i64::try_from(detect::gpus().len()).unwrap_or(i64::MAX);
    Resources {
        cpus: run.num_cpus.unwrap_or_else(detect::cpus),
        memory_bytes: run.memory_bytes.unwrap_or_else(detect::memory),
        gpus: run.num_gpus.unwrap_or_else(gpus),
        nodes: 1,
    }
}

/// Returns the next steps. They do not suggest a runner on this machine if the job does not fit here.
fn next_commands(explanation: &JobExplanation, here: Resources) -> Vec<String> {
    let lacks_runner = explanation.reasons.first().is_some_and(|reason| reason.reason == ReasonKind::NoRunner);
    let Some(needs) = explanation.resources.filter(|_| lacks_runner) else { return explanation.next.clone() };
    let fits = needs.num_cpus <= here.cpus
        && needs.memory_bytes <= here.memory_bytes
        && needs.num_gpus <= here.gpus
        && needs.num_nodes <= here.nodes;
    if fits {
        return explanation.next.clone();
    }
    let needed = Resources {
        cpus: needs.num_cpus,
        memory_bytes: needs.memory_bytes,
        gpus: needs.num_gpus,
        nodes: needs.num_nodes,
    };
    vec![format!(
        "this machine is too small ({}): run `torc runner {}` on a machine with {}",
        amounts(&here),
        explanation.workflow,
        amounts(&needed)
    )]
}

fn amounts(resources: &Resources) -> String {
    let mut parts =
        vec![human::count(resources.cpus, "CPU"), format!("{} of memory", human::bytes(resources.memory_bytes))];
    if resources.gpus > 0 {
        parts.push(human::count(resources.gpus, "GPU"));
    }
    if resources.nodes > 1 {
        parts.insert(0, human::count(resources.nodes, "node"));
    }
    parts.join(", ")
}

fn job_text(explanation: &JobExplanation) -> String {
    let status = explanation.status.map_or("unknown", |status| status.as_str());
    let mut text = format!("job/{} is {status} (attempt {})\n", explanation.job, explanation.attempt);
    reasons(&mut text, &explanation.reasons);
    if !explanation.raised.is_empty() {
        let _ = writeln!(text, "  recovery has raised its {}", explanation.raised.join(", its "));
    }
    if !explanation.attempts.is_empty() {
        text.push_str("\nattempts:\n");
        for report in &explanation.attempts {
            attempt(&mut text, report);
        }
    }
    next(&mut text, &explanation.next);
    text
}

fn attempt(text: &mut String, report: &AttemptReport) {
    let node = report.node.as_deref().map_or(String::new(), |node| format!(" on {node}"));
    let cause = report.diagnosis.map_or(String::new(), |cause| format!(", {cause}"));
    let took = human::precise(report.duration_seconds);
    let _ = writeln!(text, "  {}{node}: {}{cause} after {took}", report.attempt, report.status);
    for sentence in &report.evidence {
        let _ = writeln!(text, "     {sentence}");
    }
    if !report.stderr_tail.is_empty() {
        text.push_str("     last lines of its error output:\n");
        for line in &report.stderr_tail {
            let _ = writeln!(text, "       | {line}");
        }
    }
    if let Some(then) = &report.then {
        let _ = writeln!(text, "     → {then}");
    }
}

fn workflow_text(explanation: &WorkflowExplanation) -> String {
    let mut text = format!("workflow/{}: {} jobs have ended\n", explanation.workflow, explanation.progress);
    for reason in &explanation.reasons {
        let names: Vec<&str> = reason.jobs.iter().map(|job| job.job.as_str()).collect();
        let more = reason.count.unwrap_or(0) - i64::try_from(names.len()).unwrap_or(0);
        let mut example = names.join(", ");
        if more > 0 && !names.is_empty() {
            let _ = write!(example, " and {more} more");
        }
        let example = if example.is_empty() { String::new() } else { format!(" ({example})") };
        match reason.count {
            Some(count) => {
                let _ = writeln!(text, "  {}: {}{example}", human::count(count, "job"), reason.message);
            }
            None => {
                let _ = writeln!(text, "  {}{example}", reason.message);
            }
        }
    }
    next(&mut text, &explanation.next);
    text
}

fn reasons(text: &mut String, reasons: &[Reason]) {
    for reason in reasons {
        let _ = writeln!(text, "  {}", reason.message);
    }
}

fn next(text: &mut String, steps: &[String]) {
    if !steps.is_empty() {
        text.push_str("\nnext steps:\n");
    }
    for step in steps {
        let _ = writeln!(text, "  {step}");
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn an_explanation_lists_reasons_attempts_and_steps() {
        let explanation: JobExplanation = serde_json::from_value(serde_json::json!({
            "workflow": "w", "job": "train", "status": "failed", "runId": 1, "attempt": 3,
            "reasons": [{ "reason": "Failed", "message": "it failed" }], "raised": ["memory", "time"],
            "attempts": [{ "runId": 1, "attempt": 2, "status": "failed", "cause": "ExitCode", "diagnosis": "OutOfMemory", "endTime": "e",
                "durationSeconds": 1.5, "node": "n1", "evidence": ["it used much"], "stderrTail": ["oops"], "then": "tried again" }],
            "next": ["torc retry w"],
        }))
        .expect("an explanation");
        let expected = "job/train is failed (attempt 3)\n  it failed\n  recovery has raised its memory, its time\n\nattempts:\n  \
            2 on n1: failed, OutOfMemory after 1.5s\n     it used much\n     last lines of its error output:\n       | oops\n     → tried again\n\n\
            next steps:\n  torc retry w\n";
        assert_eq!(job_text(&explanation), expected);
    }

    #[test]
    fn a_machine_that_is_too_small_is_not_suggested() {
        let explanation = |kind: &str, cpus: i64| -> JobExplanation {
            serde_json::from_value(serde_json::json!({
                "workflow": "w", "job": "j", "status": "ready", "runId": 1, "attempt": 1, "next": ["the usual"],
                "reasons": [{ "reason": kind, "message": "m" }],
                "resources": { "numCpus": cpus, "memoryBytes": 1 << 20, "numGpus": 0, "numNodes": 1, "runtimeSeconds": 60 },
            }))
            .expect("an explanation")
        };
        let here = Resources { cpus: 2, memory_bytes: 1 << 30, gpus: 0, nodes: 1 };
        assert_eq!(next_commands(&explanation("NoRunner", 2), here), ["the usual"]);
        assert_eq!(next_commands(&explanation("Busy", 64), here), ["the usual"]);
        assert_eq!(
            next_commands(&explanation("NoRunner", 64), here),
            [
                "this machine is too small (2 CPUs, 1Gi of memory): run `torc runner w` on a machine with 64 CPUs, 1Mi of memory"
            ]
        );
        for small in [Resources { memory_bytes: 1, ..here }, Resources { nodes: 0, ..here }] {
            assert_ne!(next_commands(&explanation("NoRunner", 2), small), ["the usual"], "{small:?}");
        }
    }

    #[test]
    fn a_workflow_is_explained_by_groups_of_jobs() {
        let explanation: WorkflowExplanation = serde_json::from_value(serde_json::json!({
            "workflow": "w", "progress": "1/9",
            "reasons": [
                { "reason": "NoRunner", "message": "no runner", "count": 3, "jobs": [{ "job": "a", "status": "ready" }, { "job": "b", "status": "ready" }] },
                { "reason": "Suspended", "message": "suspended" },
                { "reason": "Busy", "message": "busy", "count": 1, "jobs": [{ "job": "c", "status": "ready" }] },
            ],
        }))
        .expect("an explanation");
        let expected =
            "workflow/w: 1/9 jobs have ended\n  3 jobs: no runner (a, b and 1 more)\n  suspended\n  1 job: busy (c)\n";
        assert_eq!(workflow_text(&explanation), expected);
    }
}
