//! What was asked of Slurm needs somebody who submits it and looks after it.

use crate::client::Client;
use crate::commands::Context;
use crate::commands::apply::place_here;
use crate::error::CommandError;
use crate::listening::Reach;
use crate::standalone::{Entry, enter, start_background};

/// Leaves a server in the background that serves a workflow, unless the store has an owner already.
pub async fn see_to_it(context: &Context, workflow: &str) -> Result<(), CommandError> {
    if context.settings.url.is_some() {
        return Ok(());
    }
    let place = place_here(context)?;
    let Entry::Ours(lock) = enter(&place, context.settings.namespace.as_deref()).await? else { return Ok(()) };
    drop(lock);
    let mut settings = context.settings.clone();
    // A store that was served to this machine only does not become open to others by a repair.
    settings.server.embedded_bind = settings.server.embedded_bind.or_else(|| place.last_bind());
    let (info, client): (_, Client) = start_background(&place, &settings, Reach::Elsewhere).await?;
    client.submit(workflow).await?;
    let log = place.log_file();
    context.output.progress(&format!("running in the background: process {}, log {}", info.pid, log.display()));
    Ok(())
}
