//! `torc retry`: run jobs again.

use clap::Args;
use serde::Serialize;
use torc_api::api::{RetryRequest, Workflow};
use torc_api::recovery::ProcessState;

use crate::client::Client;
use crate::connection::{ServerConnection, explain_missing, resolve_workflow};
use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::output::human;
use crate::use_cases::changes::{self, Reason};
use crate::use_cases::next_step::start_command;
use crate::use_cases::orphans::{Search, find_lost, gather, replay_journals, visible_runners};

/// Run jobs again.
///
/// Without --job, --changed and --all: every failed, terminated and cancelled job, and what depends on it.
#[derive(Debug, Default, Args)]
pub struct RetryArgs {
    /// The workflow, by name or number; may be left out where the store holds one.
    #[arg(value_name = "WORKFLOW")]
    pub workflow: Option<String>,
    /// Only this job, by name or number; may be given several times.
    #[arg(long = "job", value_name = "JOB", conflicts_with_all = ["all", "changed"])]
    pub jobs: Vec<String>,
    /// Completed jobs whose input files or data have changed or whose output files are gone, and what depends on them.
    #[arg(long, conflicts_with = "all")]
    pub changed: bool,
    /// Everything, as a new run.
    #[arg(long)]
    pub all: bool,
    /// Only say which jobs would run again.
    #[arg(long)]
    pub dry_run: bool,
}

/// What runs again, or would.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Again<'a> {
    jobs: i64,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    dry_run: bool,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    names: &'a [String],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    reasons: &'a [Reason],
}

/// Runs the verb.
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
    retry(context, args, client, (&workflow, served)).await
}

/// Runs jobs of a workflow again; `served` says whether somebody will start them.
pub async fn retry(
    context: &CommandContext,
    args: &RetryArgs,
    client: &Client,
    (workflow, served): (&Workflow, bool),
) -> Result<ExitStatus, CliError> {
    let reasons = match args.changed {
        true => changes::reasons(client, workflow, context.output).await?,
        false => Vec::new(),
    };
    let mut jobs = args.jobs.clone();
    jobs.extend(reasons.iter().map(|reason| reason.job.clone()));
    jobs.sort();
    jobs.dedup();
    if !args.dry_run {
        settle_ended_attempts(context, client, workflow, served).await?;
    }
    let request = RetryRequest { jobs, all: args.all, changed: args.changed, dry_run: args.dry_run };
    let affected = client.retry(&workflow.id.to_string(), &request).await.map_err(explain_missing)?;
    let again = Again { jobs: affected.jobs, dry_run: args.dry_run, names: &affected.names, reasons: &reasons };
    context.output.value(&again, || describe(workflow, &again, served))?;
    Ok(ExitStatus::Success)
}

/// Attempts that have ended without the server knowing are settled first: a job that runs again would wait until their runner's
/// lease expires. Slurm is not asked: its allocations keep their leases until they end.
async fn settle_ended_attempts(
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
        find_lost(context, client, workflow, Search { is_served, ends_left_processes: true, ..Search::default() })
            .await?;
    }
    Ok(())
}

fn describe(workflow: &Workflow, again: &Again<'_>, served: bool) -> String {
    let verb = match (again.dry_run, again.jobs) {
        (true, _) => "would run",
        (false, 1) => "runs",
        (false, _) => "run",
    };
    let mut text = format!("workflow/{}: {} {verb} again\n", workflow.name, human::count(again.jobs, "job"));
    text.push_str(&changes::describe(again.reasons));
    if again.dry_run {
        let because = |name: &&String| again.reasons.iter().any(|reason| reason.job == **name);
        let rest: Vec<&str> = again.names.iter().filter(|name| !because(name)).map(String::as_str).collect();
        if !rest.is_empty() {
            let heading = if again.reasons.is_empty() { "" } else { "because of these: " };
            text.push_str(&format!("  {heading}{}\n", shortened(&rest)));
        }
    } else if again.jobs > 0 && !served {
        text.push_str(&format!("start with: {}\n", start_command(workflow)));
    }
    text
}

fn shortened(names: &[&str]) -> String {
    const SHOWN: usize = 20;
    let more = if names.len() > SHOWN { format!(" … and {} more", names.len() - SHOWN) } else { String::new() };
    format!("{}{more}", names[..names.len().min(SHOWN)].join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_again_is_told_with_the_way_on() {
        let w = crate::workflow_phase::tests::workflow(torc_api::status::JobCounts::default(), &[]);
        let names: Vec<String> = ["a", "b"].map(str::to_owned).to_vec();
        let again = |jobs, dry_run| Again { jobs, dry_run, names: &names, reasons: &[] };
        assert_eq!(describe(&w, &again(1, false), false), "workflow/w: 1 job runs again\nstart with: torc run w\n");
        let on_slurm = Workflow { slurm_cluster: Some("local".to_owned()), ..w.clone() };
        let told = describe(&on_slurm, &again(1, false), false);
        assert_eq!(told, "workflow/w: 1 job runs again\nstart with: torc submit w\n");
        assert_eq!(describe(&w, &again(2, false), true), "workflow/w: 2 jobs run again\n");
        assert_eq!(describe(&w, &again(0, false), false), "workflow/w: 0 jobs run again\n");
        assert_eq!(describe(&w, &again(2, true), false), "workflow/w: 2 jobs would run again\n  a, b\n");
        let reasons = [Reason { job: "a".to_owned(), reason: changes::Why::InputGone, what: "f".to_owned() }];
        let because = Again { reasons: &reasons, ..again(2, true) };
        let expected = "workflow/w: 2 jobs would run again\n  a: input f is gone\n  because of these: b\n";
        assert_eq!(describe(&w, &because, false), expected);
        let fields = serde_json::json!({ "jobs": 2, "dryRun": true, "names": ["a", "b"],
            "reasons": [{ "job": "a", "reason": "inputGone", "what": "f" }] });
        assert_eq!(serde_json::json!(because), fields);
        assert_eq!(
            serde_json::json!(Again { jobs: 3, dry_run: false, names: &[], reasons: &[] }),
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
