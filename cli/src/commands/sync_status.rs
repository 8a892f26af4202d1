//! `torc workflows sync-status`: find out what was lost, and nothing else.

use std::fmt::Write as _;

use clap::Args;
use torc_api::allocation::OrphanReport;

use super::Context;
use crate::client::Client;
use crate::connection::{explain_missing, resolve_workflow, with_client};
use crate::error::{CommandError, ExitStatus};

/// Find allocations that Slurm has ended and jobs that were lost with them or with their runners.
///
/// One pass of what a server does all the time. Lost attempts are recorded as failed with -128; whether a job is tried again is
/// for its workflow's recovery policy. What Slurm does not answer about stays as it is.
#[derive(Debug, Args)]
pub struct SyncStatusArgs {
    /// The workflow, by name or number; may be left out where the store holds one.
    #[arg(value_name = "WORKFLOW")]
    pub workflow: Option<String>,
    /// Only say what was found.
    #[arg(long)]
    pub dry_run: bool,
}

/// Runs the verb.
pub async fn run(context: &Context, args: &SyncStatusArgs) -> Result<ExitStatus, CommandError> {
    with_client(&context.settings, &context.folder, async |client: &Client| {
        let name = resolve_workflow(client, args.workflow.as_deref()).await?;
        let report = client.sync_status(&name, args.dry_run).await.map_err(explain_missing)?;
        context.output.value(&report, || describe(&name, &report, args.dry_run))
    })
    .await?;
    Ok(ExitStatus::Success)
}

/// What was found, for people.
pub fn describe(workflow: &str, report: &OrphanReport, dry_run: bool) -> String {
    let mut text = String::new();
    for one in &report.allocations {
        let number = one.slurm_job_id.as_deref().map_or(String::new(), |id| format!(" (Slurm job {id})"));
        let _ = writeln!(text, "{}{number} was {} and is over: {}", one.name, one.was, one.slurm_state);
    }
    for name in &report.requeued {
        let _ = writeln!(text, "{name} was requeued by Slurm");
    }
    for one in &report.jobs {
        let _ = writeln!(text, "job {} of {} was lost: {}", one.job, one.workflow, one.cause);
    }
    for name in &report.in_doubt {
        let _ = writeln!(text, "{name}: Slurm says nothing certain about it; it stays as it is");
    }
    if text.is_empty() {
        return format!("workflow/{workflow}: nothing was lost\n");
    }
    if dry_run {
        text.push_str("nothing was changed\n");
    }
    text
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
        assert_eq!(describe("w", &OrphanReport::default(), false), "workflow/w: nothing was lost\n");
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
            "torc-wf1-a1 (Slurm job 7) was active and is over: {}\njob a of w was lost: {}\n",
            SlurmState::NodeFailure,
            Cause::NodeFailure
        );
        assert_eq!(describe("w", &report, false), found);
        assert_eq!(describe("w", &report, true), format!("{found}nothing was changed\n"));
    }

    #[test]
    fn what_slurm_requeued_and_what_is_not_certain_is_told() {
        let report = OrphanReport {
            requeued: vec!["a1".to_owned()],
            in_doubt: vec!["a2".to_owned()],
            runners: vec![9],
            ..OrphanReport::default()
        };
        let expected = "a1 was requeued by Slurm\na2: Slurm says nothing certain about it; it stays as it is\n";
        assert_eq!(describe("w", &report, false), expected);
    }
}
