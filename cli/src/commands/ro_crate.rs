//! `torc ro-crate`: provenance.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::client::Client;
use crate::connection::{explain_missing, resolve_workflow, with_client};
use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::use_cases::provenance;

/// Provenance of a workflow as an RO-Crate.
#[derive(Debug, Args)]
pub struct RoCrateArgs {
    #[command(subcommand)]
    pub command: RoCrateCommand,
}

/// What can be done with provenance.
#[derive(Debug, Subcommand)]
pub enum RoCrateCommand {
    /// Write what ran, on what and with which files, as JSON-LD.
    Export(ExportArgs),
}

/// Where to.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// The workflow, by name or number; may be left out where the store holds one.
    #[arg(value_name = "WORKFLOW")]
    pub workflow: Option<String>,
    /// A file, or a folder to put `ro-crate-metadata.json` into (printed when absent).
    #[arg(long, value_name = "FILE_OR_FOLDER")]
    pub to: Option<PathBuf>,
}

/// Runs the group.
pub async fn run(context: &CommandContext, args: RoCrateArgs) -> Result<ExitStatus, CliError> {
    let RoCrateCommand::Export(args) = args.command;
    let metadata = with_client(&context.settings, &context.folder, async |client: &Client| {
        let name = resolve_workflow(client, args.workflow.as_deref()).await?;
        client.ro_crate(&name).await.map_err(explain_missing)
    })
    .await?;
    match &args.to {
        None => context.output.value(&metadata, || format!("{metadata:#}\n"))?,
        Some(path) => {
            let written = provenance::write(&context.folder.join(path), &metadata)?;
            context.output.progress(&format!("wrote {}", written.display()));
        }
    }
    Ok(ExitStatus::Success)
}
