//! `torc jobs retry` and `torc jobs fail`: manual decisions about failed jobs.

use clap::Args;
use torc_api::recovery::{ClassifyRequest, FailureClass};

use crate::client::Client;
use crate::connection::{explain_missing, resolve_workflow, with_client};
use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::output::human;

/// Retry failed jobs that need a manual decision (`pending_failed`)
#[derive(Debug, Args)]
pub struct RetryJobsArgs {
    #[command(flatten)]
    pub jobs: UndecidedJobsArgs,
}

/// Accept the failure of jobs that need a manual decision (`pending_failed`)
#[derive(Debug, Args)]
pub struct FailJobsArgs {
    #[command(flatten)]
    pub jobs: UndecidedJobsArgs,
}

/// The jobs to decide about.
#[derive(Debug, Args)]
pub struct UndecidedJobsArgs {
    /// Jobs by name or number (default: all that need a decision)
    #[arg(value_name = "JOB")]
    pub jobs: Vec<String>,
    /// Workflow of the jobs, by name or number (default: the only one in the store)
    #[arg(short = 'w', long, value_name = "WORKFLOW")]
    pub workflow: Option<String>,
}

pub async fn run(
    context: &CommandContext,
    args: &UndecidedJobsArgs,
    class: FailureClass,
) -> Result<ExitStatus, CliError> {
    with_client(&context.settings, &context.folder, async |client: &Client| {
        let name = resolve_workflow(client, args.workflow.as_deref()).await?;
        let request = ClassifyRequest { jobs: args.jobs.clone(), class };
        let affected = client.classify(&name, &request).await.map_err(explain_missing)?;
        let word = if class == FailureClass::Retry { "reset to ready" } else { "failed" };
        context.output.value(&affected, || match affected.jobs {
            0 => "no job needs a decision\n".to_owned(),
            count => format!("{} {word}\n", human::count(count, "job")),
        })
    })
    .await?;
    Ok(ExitStatus::Success)
}
