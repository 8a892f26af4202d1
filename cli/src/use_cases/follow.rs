//! Following workflows until nothing more happens to them without a decision of the user.

use std::time::Duration;

use super::interrupts::Interrupts;
use super::progress::Progress;
use super::statuses::wait_until;
use super::summary::print_summary;
use crate::client::Client;
use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::workflow_phase::phase;

/// The parameters of [`follow_to_end`].
#[derive(Clone, Copy, Debug)]
pub struct FollowedRun {
    /// The longest time without an answer before the server counts as gone.
    pub timeout: Duration,
    /// The message after an interrupt.
    pub interrupted: &'static str,
}

/// Follows workflows with progress and prints their summary. Returns `None` when the server is gone before the end.
pub async fn follow_to_end(
    context: &CommandContext,
    client: &Client,
    ids: &[i64],
    following: FollowedRun,
    interrupts: &mut Interrupts,
) -> Result<Option<ExitStatus>, CliError> {
    let mut progress = Progress::new(context.output);
    let settled = wait_until(client, ids, following.timeout, |workflow| {
        progress.update(workflow);
        !phase(workflow).is_active()
    });
    let settled = tokio::select! {
        settled = settled => settled,
        () = interrupts.next() => {
            progress.finish();
            context.output.progress(following.interrupted);
            return Ok(Some(ExitStatus::Interrupted));
        }
    };
    progress.finish();
    match settled? {
        Some(workflows) => print_summary(context, client, &workflows).await.map(Some),
        None => Ok(None),
    }
}
