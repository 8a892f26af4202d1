//! `torc workflows init` and `torc workflows reinit`: restart a workflow completely, or only what has changed.

use clap::Args;
use torc_api::api::{RetryRequest, Workflow};

use super::retry::{RetryArgs, retry};
use crate::client::Client;
use crate::connection::{ServerConnection, explain_missing, resolve_workflow};
use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::output::human;
use crate::use_cases::changes;
use crate::use_cases::next_step::start_command;

/// Check the inputs of a workflow and restart it
///
/// Input files that no job produces must exist, and user data that no job writes must have a value. A workflow that has run before
/// starts a new run.
#[derive(Debug, Args)]
pub struct InitArgs {
    /// Workflow by name or number (default: the only one in the store)
    #[arg(value_name = "WORKFLOW")]
    pub workflow: Option<String>,
    /// Restart even if an input is missing
    #[arg(long)]
    pub force: bool,
    /// Check and show the changes without restarting
    #[arg(long)]
    pub dry_run: bool,
}

/// Check the inputs of a workflow and retry changed jobs, as `torc retry --changed`
#[derive(Debug, Args)]
pub struct ReinitArgs {
    /// Workflow by name or number (default: the only one in the store)
    #[arg(value_name = "WORKFLOW")]
    pub workflow: Option<String>,
    /// Restart even if an input is missing
    #[arg(long)]
    pub force: bool,
    /// Show the jobs and the reasons without resetting them
    #[arg(long)]
    pub dry_run: bool,
}

pub async fn init(context: &CommandContext, args: &InitArgs) -> Result<ExitStatus, CliError> {
    let again = RetryArgs { all: true, dry_run: args.dry_run, ..RetryArgs::default() };
    restart(context, args.workflow.as_deref(), args.force, &again).await
}

pub async fn reinit(context: &CommandContext, args: &ReinitArgs) -> Result<ExitStatus, CliError> {
    let again = RetryArgs { changed: true, dry_run: args.dry_run, ..RetryArgs::default() };
    restart(context, args.workflow.as_deref(), args.force, &again).await
}

async fn restart(
    context: &CommandContext,
    workflow: Option<&str>,
    force: bool,
    again: &RetryArgs,
) -> Result<ExitStatus, CliError> {
    let connection = ServerConnection::open(&context.settings, &context.folder).await?;
    let served = connection.is_served();
    let result = check_and_restart(context, connection.client(), workflow, force, served, again).await;
    connection.close().await;
    result
}

async fn check_and_restart(
    context: &CommandContext,
    client: &Client,
    workflow: Option<&str>,
    force: bool,
    served: bool,
    again: &RetryArgs,
) -> Result<ExitStatus, CliError> {
    let name = resolve_workflow(client, workflow).await?;
    let workflow = client.workflow(&name).await.map_err(explain_missing)?;
    check_inputs(context, client, &workflow, force).await?;
    if again.all && has_no_started_job(&workflow) {
        if !again.dry_run {
            // A retry without jobs discards recoveries that are planned for this run.
            let no_jobs = RetryRequest { jobs: Vec::new(), all: false, changed: true, dry_run: false };
            client.retry(&workflow.id.to_string(), &no_jobs).await?;
        }
        context.output.value(&workflow, || untouched(&workflow, served))?;
        return Ok(ExitStatus::Success);
    }
    if again.all {
        let existing = changes::existing_outputs(client, &workflow).await?;
        if let Some(first) = existing.first() {
            let files = human::count(existing.len() as i64, "output file");
            context.output.warning(&format!("{files} will be overwritten, e.g. {first}"));
        }
    }
    retry(context, again, client, &workflow, served).await
}

/// Returns an error if an input is missing; only warns with `force`.
async fn check_inputs(
    context: &CommandContext,
    client: &Client,
    workflow: &Workflow,
    force: bool,
) -> Result<(), CliError> {
    let missing = changes::missing(client, workflow).await?;
    if missing.is_empty() {
        return Ok(());
    }
    if force {
        missing.iter().for_each(|line| context.output.warning(line));
        return Ok(());
    }
    let message = format!("inputs of workflow '{}' are missing: {}", workflow.name, missing.join("; "));
    Err(CliError::new(ExitStatus::InvalidInput, message).hint("provide them, or restart anyway with --force"))
}

/// Returns whether no job of the first run has started.
fn has_no_started_job(workflow: &Workflow) -> bool {
    let jobs = &workflow.status.jobs;
    workflow.status.run_id == Some(1) && jobs.ready + jobs.blocked == jobs.total
}

fn untouched(workflow: &Workflow, served: bool) -> String {
    let jobs = human::count(workflow.status.jobs.total, "job");
    let start = if served { String::new() } else { format!("run them with: {}\n", start_command(workflow)) };
    format!("workflow/{}: {jobs} not started yet\n{start}", workflow.name)
}

#[cfg(test)]
mod tests {
    use torc_api::status::JobCounts;

    use super::*;

    #[test]
    fn a_first_run_that_has_not_begun_is_untouched() {
        let workflow = |run_id, jobs| {
            let mut workflow = crate::workflow_phase::tests::workflow(jobs, &[]);
            workflow.status.run_id = run_id;
            workflow
        };
        let waiting = || JobCounts { total: 5, ready: 2, blocked: 3, ..JobCounts::default() };
        for (run, jobs, expected) in [
            (Some(1), waiting(), true),
            (Some(2), waiting(), false),
            (None, waiting(), false),
            (Some(1), JobCounts { running: 1, ready: 1, ..waiting() }, false),
            (Some(1), JobCounts { completed: 1, blocked: 2, ..waiting() }, false),
        ] {
            assert_eq!(has_no_started_job(&workflow(run, jobs)), expected, "{run:?} {jobs:?}");
        }
        let fresh = workflow(Some(1), waiting());
        assert_eq!(untouched(&fresh, true), "workflow/w: 5 jobs not started yet\n");
        assert_eq!(untouched(&fresh, false), "workflow/w: 5 jobs not started yet\nrun them with: torc run w\n");
    }
}
