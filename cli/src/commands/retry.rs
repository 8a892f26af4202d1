//! `torc retry`: reset jobs to ready.

use clap::Args;
use serde::Serialize;
use torc_api::api::{RetryRequest, Workflow};
use torc_api::recovery::ProcessState;

use crate::client::Client;
use crate::connection::{ServerConnection, explain_missing, resolve_workflow};
use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::output::human;
use crate::use_cases::changes::{self, StaleJob};
use crate::use_cases::next_step::start_command;
use crate::use_cases::orphans::{OrphanSearch, find_lost, gather, replay_journals, visible_runners};

/// Reset failed jobs to ready, so that they run again
///
/// Without --job, --changed and --all: every failed, terminated and canceled job, and the jobs that depend on it.
#[derive(Debug, Default, Args)]
pub struct RetryArgs {
    /// Workflow by name or number (default: the only one in the store)
    #[arg(value_name = "WORKFLOW")]
    pub workflow: Option<String>,
    /// Job to retry, by name or number; may be repeated
    #[arg(long = "job", value_name = "JOB", conflicts_with_all = ["all", "changed"])]
    pub jobs: Vec<String>,
    /// Retry completed jobs whose inputs have changed or whose output files are missing, and the jobs that depend on them
    #[arg(long, conflicts_with = "all")]
    pub changed: bool,
    /// Retry all jobs, as a new run
    #[arg(long)]
    pub all: bool,
    /// Show the jobs without resetting them
    #[arg(long)]
    pub dry_run: bool,
}

/// The jobs that a retry resets, or would reset.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RetryOutcome<'a> {
    jobs: i64,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    dry_run: bool,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    names: &'a [String],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    reasons: &'a [StaleJob],
}

pub async fn run(context: &CommandContext, args: &RetryArgs) -> Result<ExitStatus, CliError> {
    let connection = ServerConnection::open(&context.settings, &context.folder).await?;
    let served = connection.is_served();
    let result = find_and_retry(context, args, connection.client(), served).await;
    connection.close().await;
    result
}

async fn find_and_retry(
    context: &CommandContext,
    args: &RetryArgs,
    client: &Client,
    served: bool,
) -> Result<ExitStatus, CliError> {
    let name = resolve_workflow(client, args.workflow.as_deref()).await?;
    let workflow = client.workflow(&name).await.map_err(explain_missing)?;
    retry(context, args, client, &workflow, served).await
}

/// Resets jobs of a workflow to ready. `served` says whether a process will start them.
pub async fn retry(
    context: &CommandContext,
    args: &RetryArgs,
    client: &Client,
    workflow: &Workflow,
    served: bool,
) -> Result<ExitStatus, CliError> {
    let reasons = match args.changed {
        true => changes::stale_jobs(client, workflow, context.output).await?,
        false => Vec::new(),
    };
    let mut jobs = args.jobs.clone();
    jobs.extend(reasons.iter().map(|reason| reason.job.clone()));
    jobs.sort();
    jobs.dedup();
    if !args.dry_run {
        record_ended_attempts(context, client, workflow, served).await?;
    }
    let request = RetryRequest { jobs, all: args.all, changed: args.changed, dry_run: args.dry_run };
    let affected = client.retry(&workflow.id.to_string(), &request).await.map_err(explain_missing)?;
    let again = RetryOutcome { jobs: affected.jobs, dry_run: args.dry_run, names: &affected.names, reasons: &reasons };
    context.output.value(&again, || describe(workflow, &again, served))?;
    Ok(ExitStatus::Success)
}

/// Records attempts that have ended without a report. Otherwise a retried job would wait until the lease of its runner expires.
/// Does not query Slurm, because allocations keep their leases until they end.
async fn record_ended_attempts(
    context: &CommandContext,
    client: &Client,
    workflow: &Workflow,
    is_served: bool,
) -> Result<(), CliError> {
    let jobs = &workflow.status.jobs;
    if jobs.running + jobs.leased == 0 {
        return Ok(());
    }
    let runners = visible_runners(client).await?;
    replay_journals(context, client, workflow, &runners).await?;
    let evidence = gather(context, runners, true).await?;
    if evidence.iter().any(|one| one.agent == ProcessState::Ended) {
        find_lost(
            context,
            client,
            workflow,
            OrphanSearch { is_served, ends_left_processes: true, ..OrphanSearch::default() },
        )
        .await?;
    }
    Ok(())
}

fn describe(workflow: &Workflow, again: &RetryOutcome<'_>, served: bool) -> String {
    let verb = if again.dry_run { "would be reset" } else { "reset" };
    let mut text = format!("workflow/{}: {} {verb} to ready\n", workflow.name, human::count(again.jobs, "job"));
    text.push_str(&changes::describe(again.reasons));
    if again.dry_run {
        let because = |name: &&String| again.reasons.iter().any(|reason| reason.job == **name);
        let rest: Vec<&str> = again.names.iter().filter(|name| !because(name)).map(String::as_str).collect();
        if !rest.is_empty() {
            let heading = if again.reasons.is_empty() { "" } else { "because of these jobs: " };
            text.push_str(&format!("  {heading}{}\n", shortened(&rest)));
        }
    } else if again.jobs > 0 && !served {
        text.push_str(&format!("run them with: {}\n", start_command(workflow)));
    }
    text
}

fn shortened(names: &[&str]) -> String {
    const MAX_SHOWN_NAMES: usize = 20;
    let more = if names.len() > MAX_SHOWN_NAMES {
        format!(" … and {} more", names.len() - MAX_SHOWN_NAMES)
    } else {
        String::new()
    };
    format!("{}{more}", names[..names.len().min(MAX_SHOWN_NAMES)].join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retry_prints_the_jobs_and_the_next_command() {
        let w = crate::workflow_phase::tests::workflow(torc_api::status::JobCounts::default(), &[]);
        let names: Vec<String> = ["a", "b"].map(str::to_owned).to_vec();
        let again = |jobs, dry_run| RetryOutcome { jobs, dry_run, names: &names, reasons: &[] };
        assert_eq!(
            describe(&w, &again(1, false), false),
            "workflow/w: 1 job reset to ready\nrun them with: torc run w\n"
        );
        let on_slurm = Workflow { slurm_cluster: Some("local".to_owned()), ..w.clone() };
        let told = describe(&on_slurm, &again(1, false), false);
        assert_eq!(told, "workflow/w: 1 job reset to ready\nrun them with: torc submit w\n");
        assert_eq!(describe(&w, &again(2, false), true), "workflow/w: 2 jobs reset to ready\n");
        assert_eq!(describe(&w, &again(0, false), false), "workflow/w: 0 jobs reset to ready\n");
        assert_eq!(describe(&w, &again(2, true), false), "workflow/w: 2 jobs would be reset to ready\n  a, b\n");
        let reasons = [StaleJob { job: "a".to_owned(), reason: changes::ChangeKind::InputGone, what: "f".to_owned() }];
        let because = RetryOutcome { reasons: &reasons, ..again(2, true) };
        let expected =
            "workflow/w: 2 jobs would be reset to ready\n  a: input f is missing\n  because of these jobs: b\n";
        assert_eq!(describe(&w, &because, false), expected);
        let fields = serde_json::json!({ "jobs": 2, "dryRun": true, "names": ["a", "b"],
            "reasons": [{ "job": "a", "reason": "inputGone", "what": "f" }] });
        assert_eq!(serde_json::json!(because), fields);
        assert_eq!(
            serde_json::json!(RetryOutcome { jobs: 3, dry_run: false, names: &[], reasons: &[] }),
            serde_json::json!({ "jobs": 3 })
        );
    }

    #[test]
    fn twenty_names_are_listed() {
        let names: Vec<String> = (1..=21).map(|number| number.to_string()).collect();
        let all: Vec<&str> = names.iter().map(String::as_str).collect();
        assert!(shortened(&all[..20]).ends_with("19, 20"));
        assert!(shortened(&all).ends_with("19, 20 … and 1 more"));
    }
}
