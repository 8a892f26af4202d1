//! `torc ping`: check the connection to the server or store.

use clap::Args;
use serde_json::json;

use crate::connection::ServerConnection;
use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::output::without_nulls;

/// Check whether the server or the store of this folder can be reached
///
/// Exits with 6 if a server does not answer and with 5 if there is no store.
#[derive(Debug, Args)]
pub struct PingArgs {}

pub async fn run(context: &CommandContext, _: &PingArgs) -> Result<ExitStatus, CliError> {
    let connection = ServerConnection::open(&context.settings, &context.folder).await?;
    let url = connection.is_served().then(|| connection.client().url());
    let version = connection.client().version().await;
    connection.close().await;
    let version = version?;
    let value = json!({ "url": url, "version": version.version, "protocol": version.protocol });
    context.output.value(&without_nulls(value), || match &url {
        Some(url) => format!("{url} answers: torc {}\n", version.version),
        None => format!("the store of this folder is available; no process serves it: torc {}\n", version.version),
    })?;
    Ok(ExitStatus::Success)
}
