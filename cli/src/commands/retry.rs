//! `torc retry`: run failed jobs again.

use clap::Args;
use torc_api::api::RetryRequest;

use super::Context;
use crate::client::Client;
use crate::connection::{Connection, explain_missing, resolve_workflow};
use crate::error::{CommandError, ExitStatus};
use crate::output::human;

/// Run failed jobs again.
///
/// Without --job and --all: every failed, terminated and cancelled job, and what depends on it.
#[derive(Debug, Args)]
pub struct RetryArgs {
    /// The workflow, by name or number; may be left out where the store holds one.
    #[arg(value_name = "WORKFLOW")]
    pub workflow: Option<String>,
    /// Only this job, by name or number; may be given several times.
    #[arg(long = "job", value_name = "JOB", conflicts_with = "all")]
    pub jobs: Vec<String>,
    /// Everything, as a new run.
    #[arg(long)]
    pub all: bool,
}

/// Runs the verb.
pub async fn run(context: &Context, args: &RetryArgs) -> Result<ExitStatus, CommandError> {
    let connection = Connection::open(&context.settings, &context.folder).await?;
    let served = connection.is_served();
    let result = retry(context, args, connection.client(), served).await;
    connection.close().await;
    result
}

async fn retry(context: &Context, args: &RetryArgs, client: &Client, served: bool) -> Result<ExitStatus, CommandError> {
    let name = resolve_workflow(client, args.workflow.as_deref()).await?;
    let workflow = client.workflow(&name).await.map_err(explain_missing)?.name;
    let request = RetryRequest { jobs: args.jobs.clone(), all: args.all };
    let affected = client.retry(&name, &request).await.map_err(explain_missing)?;
    context.output.value(&affected, || {
        let verb = if affected.jobs == 1 { "runs" } else { "run" };
        let mut text = format!("workflow/{workflow}: {} {verb} again\n", human::count(affected.jobs, "job"));
        if affected.jobs > 0 && !served {
            text.push_str(&format!("start with: torc run {workflow}\n"));
        }
        text
    })?;
    Ok(ExitStatus::Success)
}
