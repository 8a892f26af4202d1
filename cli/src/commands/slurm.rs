//! `torc slurm`: what Torc and Slurm know of each other. One subcommand a file.

pub mod stats;

use clap::{Args, Subcommand};

use super::Context;
use crate::error::{CommandError, ExitStatus};

/// Slurm: what its accounting says of a workflow's steps and allocations.
#[derive(Debug, Args)]
pub struct SlurmArgs {
    #[command(subcommand)]
    pub command: SlurmCommand,
}

/// What can be done with Slurm; each is described where its arguments are.
#[derive(Debug, Subcommand)]
pub enum SlurmCommand {
    Stats(stats::StatsArgs),
}

/// Runs the group.
pub async fn run(context: &Context, args: SlurmArgs) -> Result<ExitStatus, CommandError> {
    match args.command {
        SlurmCommand::Stats(args) => stats::run(context, &args).await,
    }
}
