//! `torc crd print`: custom resource definitions for Kubernetes.

use clap::{Args, Subcommand};

use super::Context;
use crate::error::{CommandError, ExitStatus};

/// Custom resource definitions for Kubernetes.
#[derive(Debug, Args)]
pub struct CrdArgs {
    #[command(subcommand)]
    command: CrdCommand,
}

#[derive(Debug, Subcommand)]
enum CrdCommand {
    /// Print the definitions, as YAML unless JSON is asked for.
    Print,
}

/// Runs the verb.
pub fn run(context: &Context, args: &CrdArgs) -> Result<ExitStatus, CommandError> {
    let CrdCommand::Print = args.command;
    for (index, definition) in torc_api::definition::definitions().iter().enumerate() {
        if index > 0 {
            context.output.note("---")?;
        }
        context.output.document(definition)?;
    }
    Ok(ExitStatus::Success)
}
