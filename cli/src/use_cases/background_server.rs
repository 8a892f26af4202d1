//! A server in the background, for allocations that outlive the command that submitted them.

use crate::client::Client;
use crate::connection::create_store_dir;
use crate::context::CommandContext;
use crate::embedded::listening::Exposure;
use crate::embedded::{StoreAccess, acquire_or_attach, start_background};
use crate::error::CliError;

/// Starts a server in the background that serves a workflow, unless the store has an owner already.
pub async fn ensure_background_server(context: &CommandContext, workflow: &str) -> Result<(), CliError> {
    if context.settings.url.is_some() {
        return Ok(());
    }
    let store_dir = create_store_dir(&context.folder)?;
    let StoreAccess::Acquired(lock) = acquire_or_attach(&store_dir, context.settings.namespace.as_deref()).await?
    else {
        return Ok(());
    };
    drop(lock);
    let mut settings = context.settings.clone();
    // A store that was served on a loopback address keeps it.
    settings.server.embedded_bind = settings.server.embedded_bind.or_else(|| store_dir.last_bind());
    let (info, client): (_, Client) = start_background(&store_dir, &settings, Exposure::OtherMachines).await?;
    client.submit(workflow).await?;
    let log = store_dir.log_file();
    context.output.progress(&format!("running in the background: process {}, log {}", info.pid, log.display()));
    Ok(())
}
