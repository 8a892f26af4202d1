//! `torc backup`: copy the store while it is in use.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use crate::client::Client;
use crate::connection::with_client;
use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};

/// Copy the store to a file while it is in use
///
/// With --url the server writes the file on its own machine.
#[derive(Debug, Args)]
pub struct BackupArgs {
    /// File to create; it must not exist
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

pub async fn run(context: &CommandContext, args: &BackupArgs) -> Result<ExitStatus, CliError> {
    let path = context.folder.join(&args.file);
    let Some(text) = path.to_str() else {
        return Err(CliError::invalid(format!("the path {} is not valid UTF-8", path.display())));
    };
    with_client(&context.settings, &context.folder, async |client: &Client| Ok(client.backup(text).await?)).await?;
    context.output.value(&json!({ "path": text }), || format!("store copied to {text}\n"))?;
    Ok(ExitStatus::Success)
}
