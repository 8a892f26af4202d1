//! Provenance records in the folders of workflows.

use std::path::{Path, PathBuf};

use serde_json::Value;
use torc_api::api::Workflow;
use torc_core::ro_crate::FILE_NAME;

use crate::client::Client;
use crate::context::CommandContext;
use crate::error::CliError;

/// Writes the provenance record of each workflow that enables it and has its folder on this machine.
pub async fn write_requested(
    context: &CommandContext,
    client: &Client,
    workflows: &[Workflow],
) -> Result<(), CliError> {
    for workflow in workflows.iter().filter(|workflow| workflow.enable_ro_crate) {
        let folder = Path::new(&workflow.working_dir);
        if folder.is_dir() {
            let metadata = client.ro_crate(&workflow.id.to_string()).await?;
            let written = write(folder, &metadata)?;
            context.output.progress(&format!("provenance written to {}", written.display()));
        }
    }
    Ok(())
}

/// Writes a record to a file atomically. Returns the path.
pub fn write(path: &Path, metadata: &Value) -> Result<PathBuf, CliError> {
    let path = if path.is_dir() { path.join(FILE_NAME) } else { path.to_owned() };
    let failed = |error| CliError::unexpected(format!("could not write {}", path.display()), error);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().prefix(".ro-crate-").tempfile_in(folder).map_err(failed)?;
    std::io::Write::write_all(&mut file, format!("{metadata:#}\n").as_bytes()).map_err(failed)?;
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    file.as_file().set_permissions(readable).map_err(failed)?;
    file.persist(&path).map_err(|error| failed(error.error))?;
    Ok(path)
}
