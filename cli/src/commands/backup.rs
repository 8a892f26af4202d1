//! `torc backup`: a copy of the store while it is in use.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use crate::client::Client;
use crate::connection::with_client;
use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};

/// Write a copy of the store while it is in use.
///
/// With --url the file is written on the server's machine.
#[derive(Debug, Args)]
pub struct BackupArgs {
    /// The new file; it must not exist.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// Runs the verb.
pub async fn run(context: &CommandContext, args: &BackupArgs) -> Result<ExitStatus, CliError> {
    let path = context.folder.join(&args.file);
    let Some(text) = path.to_str() else {
        return Err(CliError::invalid(format!("{} is not named in UTF-8", path.display())));
    };
    with_client(&context.settings, &context.folder, async |client: &Client| Ok(client.backup(text).await?)).await?;
    context.output.value(&json!({ "path": text }), || format!("the store was copied to {text}\n"))?;
    Ok(ExitStatus::Success)
}
