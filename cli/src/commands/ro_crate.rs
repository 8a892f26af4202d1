//! `torc ro-crate`: export provenance.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::client::Client;
use crate::connection::{explain_missing, resolve_workflow, with_client};
use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::use_cases::provenance;

/// Export the provenance of a workflow as an RO-Crate
#[derive(Debug, Args)]
pub struct RoCrateArgs {
    #[command(subcommand)]
    pub command: RoCrateCommand,
}

#[derive(Debug, Subcommand)]
pub enum RoCrateCommand {
    /// Write jobs, machines and files of a workflow as JSON-LD
    Export(ExportCrateArgs),
}

/// The workflow and the destination.
#[derive(Debug, Args)]
pub struct ExportCrateArgs {
    /// Workflow by name or number (default: the only one in the store)
    #[arg(value_name = "WORKFLOW")]
    pub workflow: Option<String>,
    /// File, or folder for `ro-crate-metadata.json` (default: standard output)
    #[arg(long, value_name = "FILE_OR_FOLDER")]
    pub to: Option<PathBuf>,
}

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
