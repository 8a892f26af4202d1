//! Following workflows until nothing more happens to them without a decision of the user.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use torc_api::api::Workflow;
use torc_core::backoff::Backoff;

use super::interrupts::Interrupts;
use super::progress::Progress;
use super::summary::print_summary;
use crate::client::{Client, ClientError};
use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::workflow_phase::phase;

/// How following ended.
#[derive(Debug)]
pub enum Followed {
    /// Nothing more happens to any of them.
    Settled(Vec<Workflow>),
    /// The server is gone.
    ServerGone,
}

/// How long the owner of a store on this machine may fail to answer before it counts as gone.
pub const LOCAL_TIMEOUT: Duration = Duration::from_millis(500);
/// How long a server elsewhere may: it may be restarted, or the network may be away.
pub const REMOTE_TIMEOUT: Duration = Duration::from_secs(120);
/// Looks come quickly at first, so that a short workflow is not waited for longer than it takes.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(250));

/// Follows workflows by number until none is active.
///
/// Looks again and again instead of listening: a status is small, while the events of a large workflow are not.
pub async fn follow(
    client: &Client,
    ids: &[i64],
    progress: &mut Progress,
    timeout: Duration,
) -> Result<Followed, ClientError> {
    let mut last_answer = Instant::now();
    let mut backoff = Backoff::new(PAUSES.0, PAUSES.1);
    loop {
        match fetch_workflows(client, ids).await {
            Ok(workflows) => {
                last_answer = Instant::now();
                for workflow in &workflows {
                    progress.update(workflow);
                }
                if workflows.iter().all(|workflow| !phase(workflow).is_active()) {
                    return Ok(Followed::Settled(workflows));
                }
            }
            Err(error) if error.is_unreachable() && last_answer.elapsed() > timeout => {
                return Ok(Followed::ServerGone);
            }
            Err(error) if error.is_unreachable() => {}
            Err(error) => return Err(error),
        }
        tokio::time::sleep(backoff.next_delay()).await;
    }
}

/// The parameters of [`follow_to_end`].
#[derive(Clone, Copy, Debug)]
pub struct Following {
    /// The longest time without an answer before the server counts as gone.
    pub timeout: Duration,
    /// The message after an interrupt.
    pub interrupted: &'static str,
}

/// Follows workflows with progress and prints their summary. Returns nothing when the server is gone before the end.
pub async fn follow_to_end(
    context: &CommandContext,
    client: &Client,
    ids: &[i64],
    following: Following,
    interrupts: &mut Interrupts,
) -> Result<Option<ExitStatus>, CliError> {
    let mut progress = Progress::new(context.output);
    let followed = tokio::select! {
        followed = follow(client, ids, &mut progress, following.timeout) => followed,
        () = interrupts.next() => {
            progress.finish();
            context.output.progress(following.interrupted);
            return Ok(Some(ExitStatus::Interrupted));
        }
    };
    progress.finish();
    match followed? {
        Followed::Settled(workflows) => print_summary(context, client, &workflows).await.map(Some),
        Followed::ServerGone => Ok(None),
    }
}

/// Returns the workflows of these ids, without their documents.
pub async fn fetch_workflows(client: &Client, ids: &[i64]) -> Result<Vec<Workflow>, ClientError> {
    let mut known: HashMap<i64, Workflow> =
        client.workflows().await?.into_iter().map(|workflow| (workflow.id, workflow)).collect();
    ids.iter().map(|id| known.remove(id).ok_or(ClientError::Deleted { id: *id })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An owner on this machine is replaced in a moment; a server elsewhere may be restarted.
    #[test]
    fn timeout_is_short_here_and_long_elsewhere() {
        assert_eq!((LOCAL_TIMEOUT.as_millis(), REMOTE_TIMEOUT.as_secs()), (500, 120));
        assert_eq!((PAUSES.0.as_millis(), PAUSES.1.as_millis()), (20, 250));
    }
}
