//! `torc ro-crate`: provenance.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::Value;
use torc_core::ro_crate::FILE_NAME;

use super::Context;
use crate::client::Client;
use crate::connection::{explain_missing, resolve_workflow, with_client};
use crate::error::{CommandError, ExitStatus};

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
pub async fn run(context: &Context, args: RoCrateArgs) -> Result<ExitStatus, CommandError> {
    let RoCrateCommand::Export(args) = args.command;
    let metadata = with_client(&context.settings, &context.folder, async |client: &Client| {
        let name = resolve_workflow(client, args.workflow.as_deref()).await?;
        client.ro_crate(&name).await.map_err(explain_missing)
    })
    .await?;
    match &args.to {
        None => context.output.value(&metadata, || format!("{metadata:#}\n"))?,
        Some(path) => {
            let written = write(&context.folder.join(path), &metadata)?;
            context.output.progress(&format!("wrote {}", written.display()));
        }
    }
    Ok(ExitStatus::Success)
}

/// Writes a crate's file, whole or not at all.
pub fn write(path: &Path, metadata: &Value) -> Result<PathBuf, CommandError> {
    let path = if path.is_dir() { path.join(FILE_NAME) } else { path.to_owned() };
    let failed = |error| CommandError::unexpected(format!("could not write {}", path.display()), error);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().prefix(".ro-crate-").tempfile_in(folder).map_err(failed)?;
    std::io::Write::write_all(&mut file, format!("{metadata:#}\n").as_bytes()).map_err(failed)?;
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    file.as_file().set_permissions(readable).map_err(failed)?;
    file.persist(&path).map_err(|error| failed(error.error))?;
    Ok(path)
}
