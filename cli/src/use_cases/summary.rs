//! Summaries of workflows: counts, time, failures with cause and log, and the next command.

use std::fmt::Write as _;

use torc_api::action::ActionState;
use torc_api::api::{JobResult, Workflow, WorkflowAction};
use torc_api::filter::ResultFilter;
use torc_api::state::Cause;

use super::provenance;
use crate::client::{Client, ClientError};
use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::output::{ItemList, human, status_word};
use crate::workflow_phase::{WorkflowPhase, exit_status, phase, stuck_on_slurm};

/// Number of failures that are listed.
const MAX_LISTED_FAILURES: usize = 10;

/// Prints the summaries of workflows and returns their exit status.
pub async fn print_summary(
    context: &CommandContext,
    client: &Client,
    workflows: &[Workflow],
) -> Result<ExitStatus, CliError> {
    let mut text = String::new();
    for workflow in workflows {
        let actions = failed_actions(client, workflow).await?;
        text.push_str(&describe(workflow, &failures(client, workflow).await?, &actions));
    }
    provenance::write_requested(context, client, workflows).await?;
    // Last, so that a summary is not printed twice if the server is gone before its end.
    context.output.value(&ItemList { items: workflows }, || text)?;
    Ok(exit_status(workflows))
}

/// Returns the latest failures of a workflow.
async fn failures(client: &Client, workflow: &Workflow) -> Result<Vec<JobResult>, ClientError> {
    let jobs = &workflow.status.jobs;
    if jobs.failed + jobs.terminated + jobs.pending_failed == 0 {
        return Ok(Vec::new());
    }
    let filter = ResultFilter { failed: true, latest: true, run: workflow.status.run_id, ..ResultFilter::default() };
    client.results(&workflow.id.to_string(), &filter, Some(MAX_LISTED_FAILURES + 1)).await
}

/// Returns the failed actions of a workflow.
async fn failed_actions(client: &Client, workflow: &Workflow) -> Result<Vec<WorkflowAction>, ClientError> {
    let mut actions = client.actions(&workflow.id.to_string()).await?;
    actions.retain(|action| action.status == ActionState::Failed);
    Ok(actions)
}

/// Describes the outcome of one workflow.
fn describe(workflow: &Workflow, failures: &[JobResult], failed_actions: &[WorkflowAction]) -> String {
    let mut text = headline(workflow);
    for failure in failures.iter().take(MAX_LISTED_FAILURES) {
        let code = failure.return_code.map_or(String::new(), |code| format!(", {}", human::exit_code(code)));
        let cause = failure.cause.map_or_else(|| failure.status.to_string(), |cause| cause.to_string());
        let _ = writeln!(text, "  {}: {cause}{code}, attempt {}", failure.job, failure.attempt);
        if let Some(message) = &failure.message {
            let _ = writeln!(text, "    {message}");
        }
        if let Some(log) = failure.stderr.as_ref().or(failure.stdout.as_ref()) {
            let _ = writeln!(text, "    log: {log}");
        }
        let _ = writeln!(text, "    more: torc logs {} -w {}", quoted(&failure.job), workflow.name);
    }
    if failures.len() > MAX_LISTED_FAILURES {
        let _ = writeln!(text, "  and more: torc get results {} --failed --latest", workflow.name);
    }
    actions_text(&mut text, workflow, failed_actions);
    text.push_str(&advice(workflow, failures));
    text
}

/// Describes failed actions. They do not affect the outcome of a workflow, which depends on its jobs only.
fn actions_text(text: &mut String, workflow: &Workflow, failed: &[WorkflowAction]) {
    for action in failed.iter().take(MAX_LISTED_FAILURES) {
        let code = action.return_code.map_or(String::new(), |code| format!(", {}", human::exit_code(code)));
        let WorkflowAction { id, trigger_type, tries, .. } = action;
        let _ = writeln!(text, "  action {id} ({trigger_type}) failed after {tries} tries{code}");
        if let Some(log) = action.stderr.as_ref().or(action.stdout.as_ref()) {
            let _ = writeln!(text, "    log: {log}");
        }
    }
    if !failed.is_empty() {
        let _ = writeln!(text, "    more: torc get actions {}", workflow.name);
    }
}

fn headline(workflow: &Workflow) -> String {
    let jobs = &workflow.status.jobs;
    let color = match phase(workflow) {
        WorkflowPhase::Succeeded => anstyle::AnsiColor::Green,
        WorkflowPhase::Active | WorkflowPhase::Suspended => anstyle::AnsiColor::Cyan,
        WorkflowPhase::Failed | WorkflowPhase::Canceled | WorkflowPhase::NeedsDecision => anstyle::AnsiColor::Red,
    };
    let style = color.on_default().bold();
    let mut parts = vec![format!("{} of {} completed", jobs.completed, human::count(jobs.total, "job"))];
    for (count, word) in [
        (jobs.failed, "failed"),
        (jobs.terminated, "terminated"),
        (jobs.canceled, "canceled"),
        (jobs.disabled, "disabled"),
        (jobs.pending_failed, "needing a decision"),
        (jobs.running + jobs.leased, "running"),
        (jobs.ready + jobs.blocked + jobs.uninitialized + jobs.recovering, "waiting"),
    ] {
        if count > 0 {
            parts.push(format!("{count} {word}"));
        }
    }
    if let (Some(start), Some(end)) = (&workflow.status.start_time, &workflow.status.completion_time)
        && let Some(seconds) = human::between(start, end)
    {
        parts.push(format!("in {}", human::precise(seconds)));
    }
    let word = match phase(workflow) {
        WorkflowPhase::NeedsDecision if stuck_on_slurm(workflow).is_some() => "cannot get an allocation".to_owned(),
        WorkflowPhase::NeedsDecision => "needs a decision".to_owned(),
        _ => status_word(workflow).to_lowercase(),
    };
    format!("{}: {style}{word}{style:#}, {}\n", workflow.name, parts.join(", "))
}

fn advice(workflow: &Workflow, failures: &[JobResult]) -> String {
    let name = &workflow.name;
    let lacked_something = |failure: &JobResult| matches!(failure.cause, Some(Cause::OutOfMemory | Cause::Timeout));
    match phase(workflow) {
        // A retry with the same limits would fail again.
        WorkflowPhase::Failed if workflow.slurm_cluster.is_some() && failures.iter().any(lacked_something) => {
            format!("  retry with more memory or time: torc recover {name}\n")
        }
        WorkflowPhase::Failed => format!("  retry the failed jobs: torc retry {name}\n"),
        WorkflowPhase::Canceled => format!("  continue with: torc resume {name}\n"),
        WorkflowPhase::Suspended => format!("  continue with: torc resume {name}\n"),
        WorkflowPhase::NeedsDecision => match stuck_on_slurm(workflow) {
            Some(message) => {
                format!("  {message}\n  change the document and apply it again, or retry: torc resume {name}\n")
            }
            None => format!("  decide about the failed jobs: torc retry {name}, or torc cancel {name}\n"),
        },
        WorkflowPhase::Active | WorkflowPhase::Succeeded => String::new(),
    }
}

/// Quotes a word for a shell, if necessary.
pub fn quoted(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.,/:=+@%".contains(c);
    if !name.is_empty() && name.chars().all(plain) {
        name.to_owned()
    } else {
        format!("'{}'", name.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use torc_api::state::JobState;
    use torc_api::status::JobCounts;
    use torc_api::wire::Usage;

    use super::*;
    use crate::workflow_phase::tests::workflow;

    fn failure(job: &str) -> JobResult {
        JobResult {
            workflow: "w".to_owned(),
            job: job.to_owned(),
            job_id: 1,
            run_id: 1,
            attempt: 2,
            status: JobState::Failed,
            return_code: Some(3),
            cause: Some(Cause::ExitCode),
            message: None,
            start_time: None,
            end_time: "2026-01-01T00:00:00Z".to_owned(),
            duration_seconds: 1.0,
            node: None,
            runner: None,
            stdout: Some("/o".to_owned()),
            stderr: Some("/e".to_owned()),
            usage: Usage::default(),
        }
    }

    fn plain(workflow: &Workflow, failures: &[JobResult]) -> String {
        anstream::adapter::strip_str(&describe(workflow, failures, &[])).to_string()
    }

    #[test]
    fn success_is_one_line() {
        let mut done =
            workflow(JobCounts { total: 4, completed: 4, ..JobCounts::default() }, &["Finished", "Succeeded"]);
        done.status.start_time = Some("2026-01-01T00:00:00Z".to_owned());
        done.status.completion_time = Some("2026-01-01T00:00:02.5Z".to_owned());
        assert_eq!(plain(&done, &[]), "w: succeeded, 4 of 4 jobs completed, in 2.5s\n");
    }

    #[test]
    fn failures_have_cause_log_and_command() {
        let counts = JobCounts { total: 2, completed: 0, failed: 1, canceled: 1, ..JobCounts::default() };
        let text = plain(&workflow(counts, &["Finished"]), &[failure("a b")]);
        assert_eq!(
            text,
            "w: failed, 0 of 2 jobs completed, 1 failed, 1 canceled\n  a b: ExitCode, exit code 3, attempt 2\n    \
             log: /e\n    more: torc logs 'a b' -w w\n  retry the failed jobs: torc retry w\n"
        );
    }

    #[test]
    fn recover_is_suggested_for_memory_and_time_on_slurm() {
        let counts = JobCounts { total: 2, failed: 2, ..JobCounts::default() };
        let on_slurm = Workflow { slurm_cluster: Some("local".to_owned()), ..workflow(counts, &["Finished"]) };
        for (cause, verb) in [(Cause::OutOfMemory, "recover"), (Cause::Timeout, "recover"), (Cause::ExitCode, "retry")]
        {
            let lacking = JobResult { cause: Some(cause), ..failure("a") };
            let text = plain(&on_slurm, &[lacking, failure("b")]);
            assert!(text.ends_with(&format!(": torc {verb} w\n")), "{text}");
        }
    }

    #[test]
    fn long_lists_are_cut() {
        let counts = JobCounts { total: 20, failed: 20, ..JobCounts::default() };
        let many: Vec<JobResult> = (0..11).map(|n| failure(&format!("j{n}"))).collect();
        let text = plain(&workflow(counts, &["Finished"]), &many);
        assert!(text.contains("j9:") && !text.contains("j10:"), "{text}");
        assert!(text.contains("and more: torc get results w --failed --latest"), "{text}");
    }

    #[test]
    fn every_count_is_in_the_headline() {
        let counts = JobCounts {
            total: 90,
            completed: 1,
            failed: 2,
            terminated: 3,
            canceled: 4,
            disabled: 5,
            pending_failed: 6,
            running: 7,
            leased: 8,
            ready: 9,
            blocked: 10,
            uninitialized: 11,
            recovering: 12,
        };
        let expected = "w: running, 1 of 90 jobs completed, 2 failed, 3 terminated, 4 canceled, 5 disabled, 6 needing a decision, \
            15 running, 42 waiting\n";
        assert_eq!(plain(&workflow(counts, &[]), &[]), expected);
    }

    #[test]
    fn each_phase_suggests_a_command() {
        let counts = JobCounts::default;
        let mut stuck = workflow(JobCounts { ready: 1, ..counts() }, &["Stalled"]);
        stuck.status.conditions[0].reason = "NoMatchingPartition".to_owned();
        stuck.status.conditions[0].message = "too large".to_owned();
        for (workflow, word, advice) in [
            (workflow(counts(), &["Finished"]), "failed", "  retry the failed jobs: torc retry w\n"),
            (
                Workflow { canceled: true, ..workflow(counts(), &["Finished"]) },
                "canceled",
                "  continue with: torc resume w\n",
            ),
            (Workflow { suspended: true, ..workflow(counts(), &[]) }, "suspended", "  continue with: torc resume w\n"),
            (
                workflow(JobCounts { pending_failed: 1, ..counts() }, &[]),
                "needs a decision",
                "  decide about the failed jobs: torc retry w, or torc cancel w\n",
            ),
            (
                stuck,
                "cannot get an allocation",
                "  too large\n  change the document and apply it again, or retry: torc resume w\n",
            ),
            (workflow(counts(), &["Finished", "Succeeded"]), "succeeded", ""),
            (workflow(JobCounts { ready: 1, ..counts() }, &[]), "waiting", ""),
        ] {
            let text = plain(&workflow, &[]);
            let (headline, rest) = text.split_once('\n').expect("a headline");
            assert!(headline.starts_with(&format!("w: {word}, ")), "{headline}");
            assert_eq!(rest, advice);
        }
    }

    #[test]
    fn ten_failures_are_listed_and_streams_are_chosen() {
        let counts = JobCounts { total: 20, failed: 20, ..JobCounts::default() };
        let ten: Vec<JobResult> = (0..10).map(|n| failure(&format!("j{n}"))).collect();
        let text = plain(&workflow(counts, &["Finished"]), &ten);
        assert!(text.contains("j9:") && !text.contains("and more"), "{text}");
        let bare = JobResult {
            stderr: None,
            return_code: None,
            cause: None,
            message: Some("said".to_owned()),
            ..failure("a")
        };
        let text = plain(&workflow(counts, &["Finished"]), &[bare]);
        assert!(text.contains("  a: failed, attempt 2\n    said\n    log: /o\n"), "{text}");
    }

    #[test]
    fn failed_actions_are_listed() {
        let action: WorkflowAction = serde_json::from_value(serde_json::json!({ "id": 3, "triggerType": "on_workflow_complete",
            "actionType": "run_commands", "status": "failed", "runId": 1, "attempt": 1, "tries": 4, "returnCode": 5, "stdout": "/o", "stderr": "/e" }))
        .expect("an action");
        let done = workflow(JobCounts::default(), &["Finished", "Succeeded"]);
        let told = anstream::adapter::strip_str(&describe(&done, &[], &[action])).to_string();
        let expected = "  action 3 (on_workflow_complete) failed after 4 tries, exit code 5\n    log: /e\n    more: torc get actions w\n";
        assert!(told.ends_with(expected), "{told}");
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        for (name, expected) in [
            ("a-b_c.d,e/f:g=h+i@j%k", "a-b_c.d,e/f:g=h+i@j%k"),
            ("", "''"),
            ("a b", "'a b'"),
            ("it's", r"'it'\''s'"),
            ("$x", "'$x'"),
            ("ä", "'ä'"),
        ] {
            assert_eq!(quoted(name), expected);
        }
    }
}
