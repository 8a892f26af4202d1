//! `torc jobs`: commands on jobs, grouped as Torc 1.0 grouped them. Those that are also commands of their own are in
//! [`crate::spellings`].

mod decide;

use clap::{Args, Subcommand};
use torc_api::recovery::FailureClass;

use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};

/// Jobs: list and show them, and decide about those that wait for that.
#[derive(Debug, Args)]
pub struct JobsArgs {
    #[command(subcommand)]
    pub command: JobsCommand,
}

/// What can be done with jobs; each is described where its arguments are.
#[derive(Debug, Subcommand)]
pub enum JobsCommand {
    Retry(decide::RetryArgs),
    Fail(decide::FailArgs),
}

/// Runs the group.
pub async fn run(context: &CommandContext, args: JobsArgs) -> Result<ExitStatus, CliError> {
    match args.command {
        JobsCommand::Retry(args) => decide::run(context, &args.jobs, FailureClass::Retry).await,
        JobsCommand::Fail(args) => decide::run(context, &args.jobs, FailureClass::Fail).await,
    }
}
