//! `torc jobs`: commands on jobs, in the group of Torc 1.0. [`crate::spellings`] adds those that have another name here.

mod decide;

use clap::{Args, Subcommand};
use torc_api::recovery::FailureClass;

use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};

/// List and show jobs, and decide about failed jobs
#[derive(Debug, Args)]
pub struct JobsArgs {
    #[command(subcommand)]
    pub command: JobsCommand,
}

#[derive(Debug, Subcommand)]
pub enum JobsCommand {
    Retry(decide::RetryJobsArgs),
    Fail(decide::FailJobsArgs),
}

pub async fn run(context: &CommandContext, args: JobsArgs) -> Result<ExitStatus, CliError> {
    match args.command {
        JobsCommand::Retry(args) => decide::run(context, &args.jobs, FailureClass::Retry).await,
        JobsCommand::Fail(args) => decide::run(context, &args.jobs, FailureClass::Fail).await,
    }
}
