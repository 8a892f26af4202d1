//! `torc jobs retry` and `torc jobs fail`: a person decides about failed jobs that wait for that.

use clap::Args;
use torc_api::recovery::{ClassifyRequest, FailureClass};

use crate::client::Client;
use crate::connection::{explain_missing, resolve_workflow, with_client};
use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::output::human;

/// Try failed jobs again that wait for a decision (`pending_failed`).
#[derive(Debug, Args)]
pub struct RetryArgs {
    #[command(flatten)]
    pub jobs: WaitingArgs,
}

/// Say of failed jobs that wait for a decision (`pending_failed`) that they have failed for good.
#[derive(Debug, Args)]
pub struct FailArgs {
    #[command(flatten)]
    pub jobs: WaitingArgs,
}

/// Which jobs.
#[derive(Debug, Args)]
pub struct WaitingArgs {
    /// Jobs by name or number; all that wait when absent.
    #[arg(value_name = "JOB")]
    pub jobs: Vec<String>,
    /// Their workflow, by name or number; may be left out where the store holds one.
    #[arg(short = 'w', long, value_name = "WORKFLOW")]
    pub workflow: Option<String>,
}

/// Decides.
pub async fn run(context: &CommandContext, args: &WaitingArgs, class: FailureClass) -> Result<ExitStatus, CliError> {
    with_client(&context.settings, &context.folder, async |client: &Client| {
        let name = resolve_workflow(client, args.workflow.as_deref()).await?;
        let request = ClassifyRequest { jobs: args.jobs.clone(), class };
        let affected = client.classify(&name, &request).await.map_err(explain_missing)?;
        let word = if class == FailureClass::Retry { "tried again" } else { "failed for good" };
        context.output.value(&affected, || match affected.jobs {
            0 => "no job waits for a decision\n".to_owned(),
            count => format!("{} {word}\n", human::count(count, "job")),
        })
    })
    .await?;
    Ok(ExitStatus::Success)
}
