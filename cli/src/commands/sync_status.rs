//! `torc workflows sync-status`: find and record lost allocations and jobs.

use std::fmt::Write as _;

use clap::Args;
use torc_api::allocation::{OrphanReport, UnreachableReason, UnreachableRunner};

use crate::client::Client;
use crate::connection::{ServerConnection, explain_missing, resolve_workflow};
use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::use_cases::orphans::{OrphanSearch, find_lost};

/// Find and record allocations that have ended and jobs that were lost
///
/// A server does this continuously. Lost attempts are recorded as failed with exit code -128; the recovery policy of the workflow
/// decides whether a job is retried. Allocations that Slurm does not report on are left unchanged. A runner outside of Slurm is lost
/// if its processes on this machine have ended; for other machines --assume-lost decides.
#[derive(Debug, Args)]
pub struct SyncStatusArgs {
    /// Workflow by name or number (default: the only one in the store)
    #[arg(value_name = "WORKFLOW")]
    pub workflow: Option<String>,
    /// Show the losses without recording them
    #[arg(long)]
    pub dry_run: bool,
    /// Declare a runner lost that does not report and cannot be checked; may be repeated
    #[arg(long, value_name = "RUNNER")]
    pub assume_lost: Vec<i64>,
}

pub async fn run(context: &CommandContext, args: &SyncStatusArgs) -> Result<ExitStatus, CliError> {
    let connection = ServerConnection::open(&context.settings, &context.folder).await?;
    let search = OrphanSearch {
        dry_run: args.dry_run,
        is_served: connection.is_served(),
        ends_left_processes: true,
        assume_lost: &args.assume_lost,
    };
    let result = find_and_print(context, args, connection.client(), search).await;
    connection.close().await;
    result
}

async fn find_and_print(
    context: &CommandContext,
    args: &SyncStatusArgs,
    client: &Client,
    search: OrphanSearch<'_>,
) -> Result<ExitStatus, CliError> {
    let name = resolve_workflow(client, args.workflow.as_deref()).await?;
    let workflow = client.workflow(&name).await.map_err(explain_missing)?;
    let report = find_lost(context, client, &workflow, search).await?;
    let command = format!("torc workflows sync-status {}", workflow.name);
    context.output.value(&report, || describe(&workflow.name, &report, args.dry_run, &command))?;
    Ok(ExitStatus::Success)
}

/// Describes the losses for the terminal; `command` is the one that takes --assume-lost.
pub fn describe(workflow: &str, report: &OrphanReport, dry_run: bool, command: &str) -> String {
    let mut text = String::new();
    for one in &report.allocations {
        let number = one.slurm_job_id.as_deref().map_or(String::new(), |id| format!(" (Slurm job {id})"));
        let _ = writeln!(text, "{}{number} was {} and has ended: {}", one.name, one.was, one.slurm_state);
    }
    for name in &report.requeued {
        let _ = writeln!(text, "{name} was requeued by Slurm");
    }
    for one in &report.jobs {
        let _ = writeln!(text, "job {} of {} was lost: {}", one.job, one.workflow, one.cause);
    }
    for name in &report.in_doubt {
        let _ = writeln!(text, "{name}: Slurm gives no definite state; left unchanged");
    }
    for one in &report.unreachable {
        let _ = writeln!(text, "{}", unreachable(workflow, one));
        text.extend(assume_lost(one, command).map(|hint| format!("  {hint}\n")));
    }
    if text.is_empty() {
        return format!("workflow/{workflow}: nothing was lost\n");
    }
    if dry_run {
        text.push_str("dry run: nothing was changed\n");
    }
    text
}

/// Returns why the jobs of a runner that does not report are not lost.
pub fn unreachable(workflow: &str, one: &UnreachableRunner) -> String {
    let UnreachableRunner { runner, host, pid, reason, jobs, running } = one;
    let first = jobs.first().map_or("", String::as_str);
    let (jobs, it) = match running {
        1 => (format!("job {first} of {workflow}"), "it"),
        more => (format!("{more} jobs of {workflow} (such as {first})"), "them"),
    };
    let why = match reason {
        UnreachableReason::AgentRuns => "the runner still runs, but does not report".to_owned(),
        UnreachableReason::ShimRuns => {
            format!("the process that holds {it} still runs; the next runner in its folder takes {it} over")
        }
        UnreachableReason::JobsRun => format!(
            "the runner has ended, but processes that it started for {it} still run; `torc workflows sync-status {workflow}` ends them"
        ),
        UnreachableReason::ResultsLeft => {
            "the runner has ended and left results, which the next runner in its folder reports".to_owned()
        }
        UnreachableReason::AllocationRuns => "the Slurm allocation of the runner has not ended".to_owned(),
        UnreachableReason::NotVerified => {
            "the runner does not report, and its processes are not visible on this machine".to_owned()
        }
    };
    format!("{jobs} may still run on runner {runner} (process {pid} on {host}): {why}")
}

/// Returns the command that declares a runner lost, if only the user can decide that.
pub fn assume_lost(one: &UnreachableRunner, command: &str) -> Option<String> {
    let hint = format!("if runner {0} is gone: {command} --assume-lost {0}", one.runner);
    match one.reason {
        UnreachableReason::ResultsLeft => {
            Some(format!("to discard the results: {command} --assume-lost {}", one.runner))
        }
        UnreachableReason::AllocationRuns | UnreachableReason::NotVerified => Some(hint),
        UnreachableReason::AgentRuns | UnreachableReason::ShimRuns | UnreachableReason::JobsRun => None,
    }
}

#[cfg(test)]
mod tests {
    use torc_api::allocation::{AllocationStatus, OrphanedAllocation, OrphanedJob};
    use torc_api::slurm::SlurmState;
    use torc_api::state::Cause;

    use super::*;

    // R05
    #[test]
    fn what_was_found_is_told_and_nothing_else() {
        assert_eq!(describe("w", &OrphanReport::default(), false, "torc x"), "workflow/w: nothing was lost\n");
        let report = OrphanReport {
            allocations: vec![OrphanedAllocation {
                name: "torc-wf1-a1".to_owned(),
                slurm_job_id: Some("7".to_owned()),
                was: AllocationStatus::Active,
                slurm_state: SlurmState::NodeFailure,
            }],
            jobs: vec![OrphanedJob { workflow: "w".to_owned(), job: "a".to_owned(), cause: Cause::NodeFailure }],
            ..OrphanReport::default()
        };
        let found = format!(
            "torc-wf1-a1 (Slurm job 7) was active and has ended: {}\njob a of w was lost: {}\n",
            SlurmState::NodeFailure,
            Cause::NodeFailure
        );
        assert_eq!(describe("w", &report, false, "torc x"), found);
        assert_eq!(describe("w", &report, true, "torc x"), format!("{found}dry run: nothing was changed\n"));
    }

    #[test]
    fn what_slurm_requeued_and_what_is_not_certain_is_told() {
        let report = OrphanReport {
            requeued: vec!["a1".to_owned()],
            in_doubt: vec!["a2".to_owned()],
            runners: vec![9],
            ..OrphanReport::default()
        };
        let expected = "a1 was requeued by Slurm\na2: Slurm gives no definite state; left unchanged\n";
        assert_eq!(describe("w", &report, false, "torc x"), expected);
    }

    // R03, R05
    #[test]
    fn runners_that_cannot_be_judged_are_named_with_the_way_on() {
        use UnreachableReason::{AgentRuns, AllocationRuns, JobsRun, NotVerified, ResultsLeft, ShimRuns};
        let told = |reason, running| {
            let one = UnreachableRunner {
                runner: 3,
                host: "n7".to_owned(),
                pid: 12,
                reason,
                jobs: vec!["a".to_owned()],
                running,
            };
            let report = OrphanReport { unreachable: vec![one], ..OrphanReport::default() };
            describe("w", &report, false, "torc recover w")
        };
        assert_eq!(
            told(NotVerified, 1),
            "job a of w may still run on runner 3 (process 12 on n7): the runner does not report, and its processes \
             are not visible on this machine\n  if runner 3 is gone: torc recover w --assume-lost 3\n"
        );
        assert!(told(NotVerified, 4).starts_with("4 jobs of w (such as a) may still run on runner 3"));
        for (reason, is_for_the_user) in [
            (AgentRuns, false),
            (ShimRuns, false),
            (JobsRun, false),
            (ResultsLeft, true),
            (AllocationRuns, true),
            (NotVerified, true),
        ] {
            assert_eq!(told(reason, 1).contains("torc recover w --assume-lost 3\n"), is_for_the_user, "{reason:?}");
        }
    }
}
