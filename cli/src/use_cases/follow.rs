//! Following workflows until nothing more happens to them without a decision of the user.

use std::time::Duration;

use torc_api::api::Workflow;

use super::interrupts::Interrupts;
use super::progress::Progress;
use super::status_watch::StatusWatch;
use super::summary::print_summary;
use crate::client::{Client, ClientError};
use crate::context::Context;
use crate::error::{CommandError, ExitStatus};
use crate::workflow_phase::phase;

/// The end of following.
#[derive(Debug)]
pub enum Followed {
    /// Nothing more happens to any of the workflows.
    Settled(Vec<Workflow>),
    /// The server is gone.
    ServerGone,
}

/// Follows workflows by id until none is active. The server counts as gone after `timeout` without an answer.
pub async fn follow(
    client: &Client,
    ids: &[i64],
    progress: &mut Progress,
    timeout: Duration,
) -> Result<Followed, ClientError> {
    let mut statuses = StatusWatch::new(client, ids, timeout);
    loop {
        match statuses.next().await {
            Ok(workflows) => {
                workflows.iter().for_each(|workflow| progress.update(workflow));
                if workflows.iter().all(|workflow| !phase(workflow).is_active()) {
                    return Ok(Followed::Settled(workflows));
                }
            }
            Err(error) if error.is_unreachable() => return Ok(Followed::ServerGone),
            Err(error) => return Err(error),
        }
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
    context: &Context,
    client: &Client,
    ids: &[i64],
    following: Following,
    interrupts: &mut Interrupts,
) -> Result<Option<ExitStatus>, CommandError> {
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
