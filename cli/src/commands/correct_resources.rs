//! `torc workflows correct-resources`: adjust resource requirements to the observed usage.

use std::fmt::Write as _;

use clap::Args;
use torc_api::recovery::{CorrectResourcesReport, CorrectResourcesRequest};

use crate::client::Client;
use crate::connection::{explain_missing, resolve_workflow, with_client};
use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::output::human;

/// Adjust resource requirements to the observed usage
///
/// Raises a requirement to 120 % of the highest peak if a job reached its limit. Lowers it only if every job succeeded and was
/// measured, and if this saves 1 GiB, 5 % of a CPU or 30 minutes. The next attempts use the new values; the document does not change.
#[derive(Debug, Args)]
pub struct CorrectResourcesArgs {
    /// Workflow by name or number (default: the only one in the store)
    #[arg(value_name = "WORKFLOW")]
    pub workflow: Option<String>,
    /// Show the changes without making them
    #[arg(long)]
    pub dry_run: bool,
    /// Never lower a requirement
    #[arg(long)]
    pub no_downsize: bool,
    /// Jobs to consider, by name or number (default: all)
    #[arg(long, value_delimiter = ',', value_name = "JOBS")]
    pub job_ids: Vec<String>,
}

pub async fn run(context: &CommandContext, args: &CorrectResourcesArgs) -> Result<ExitStatus, CliError> {
    with_client(&context.settings, &context.folder, async |client: &Client| {
        let name = resolve_workflow(client, args.workflow.as_deref()).await?;
        let (dry_run, no_downsize, jobs) = (args.dry_run, args.no_downsize, args.job_ids.clone());
        let request = CorrectResourcesRequest { dry_run, no_downsize, jobs };
        let report = client.correct_resources(&name, &request).await.map_err(explain_missing)?;
        context.output.value(&report, || describe(&name, &report))
    })
    .await?;
    Ok(ExitStatus::Success)
}

fn describe(workflow: &str, report: &CorrectResourcesReport) -> String {
    if report.corrections.is_empty() {
        return format!("workflow/{workflow}: the requirements fit the observed usage\n");
    }
    let mut text = String::new();
    for one in &report.corrections {
        let jobs = human::count(one.jobs, "job");
        let _ = writeln!(text, "{} ({jobs}, {} observed): {}", one.requirements, one.observed, one.changes.join(", "));
    }
    text.push_str(if report.dry_run {
        "dry run: nothing was changed\n"
    } else {
        "the next attempts use these values\n"
    });
    text
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn corrections_are_told_with_what_was_observed() {
        let report = |dry_run, corrections: serde_json::Value| -> CorrectResourcesReport {
            serde_json::from_value(serde_json::json!({ "dryRun": dry_run, "corrections": corrections }))
                .expect("a report")
        };
        assert_eq!(
            describe("w", &report(false, serde_json::json!([]))),
            "workflow/w: the requirements fit the observed usage\n"
        );
        let one = serde_json::json!([{ "requirements": "small", "jobs": 1, "observed": 2, "changes": ["memory from 1 MiB to 2 MiB", "CPUs"] }]);
        let line = "small (1 job, 2 observed): memory from 1 MiB to 2 MiB, CPUs\n";
        assert_eq!(describe("w", &report(true, one.clone())), format!("{line}dry run: nothing was changed\n"));
        assert_eq!(describe("w", &report(false, one)), format!("{line}the next attempts use these values\n"));
    }
}
