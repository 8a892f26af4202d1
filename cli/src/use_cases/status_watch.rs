//! Statuses of workflows as they change: the one way in which commands wait.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use torc_api::api::Workflow;

use crate::client::{Client, ClientError, Watch, WatchMessage};
use crate::workflow_phase::phase;

/// The longest silence of the owner of a store on this machine before it counts as gone.
pub const LOCAL_TIMEOUT: Duration = Duration::from_millis(500);
/// The longest silence of a server elsewhere: it may be restarted, or the network may be away.
pub const REMOTE_TIMEOUT: Duration = Duration::from_secs(120);
/// The pause before a server that does not answer is asked again.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// A stream of the statuses of some workflows of a server. It is opened again when the server closes it.
pub struct StatusWatch<'a> {
    client: &'a Client,
    ids: &'a [i64],
    timeout: Duration,
    stream: Option<Watch>,
}

impl<'a> StatusWatch<'a> {
    /// Watches workflows by id. A server that has not answered for `timeout` counts as gone.
    pub fn new(client: &'a Client, ids: &'a [i64], timeout: Duration) -> Self {
        Self { client, ids, timeout, stream: None }
    }

    /// Returns the workflows once their statuses have changed, without their documents; the first call returns at once. Fails with
    /// an error that is unreachable when the server is gone, and with one that is not found when a workflow was deleted.
    pub async fn next(&mut self) -> Result<Vec<Workflow>, ClientError> {
        let mut lost: Option<Instant> = None;
        loop {
            match self.try_next().await {
                Err(error) if error.is_unreachable() => {
                    self.stream = None;
                    if lost.get_or_insert_with(Instant::now).elapsed() > self.timeout {
                        return Err(error);
                    }
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
                result => return result,
            }
        }
    }

    async fn try_next(&mut self) -> Result<Vec<Workflow>, ClientError> {
        let [id] = self.ids else { return self.next_of_many().await };
        loop {
            let message = self.stream(Some(*id)).await.map_err(|error| deleted(error, *id))?.next().await?;
            if let WatchMessage::Status(workflow) = message {
                return Ok(vec![*workflow]);
            }
        }
    }

    /// Messages about all workflows are a signal only: they do not say that one was deleted.
    async fn next_of_many(&mut self) -> Result<Vec<Workflow>, ClientError> {
        let stream = self.stream(None).await?;
        stream.next().await?;
        stream.skip_buffered();
        fetch_workflows(self.client, self.ids).await
    }

    async fn stream(&mut self, workflow: Option<i64>) -> Result<&mut Watch, ClientError> {
        match &mut self.stream {
            Some(_) => {}
            none => *none = Some(self.client.watch_statuses(workflow).await?),
        }
        self.stream.as_mut().ok_or(ClientError::Closed)
    }
}

fn deleted(error: ClientError, id: i64) -> ClientError {
    if error.is_not_found() { ClientError::Deleted { id } } else { error }
}

/// Returns the workflows of these ids, without their documents.
pub async fn fetch_workflows(client: &Client, ids: &[i64]) -> Result<Vec<Workflow>, ClientError> {
    let mut known: HashMap<i64, Workflow> =
        client.workflows().await?.into_iter().map(|workflow| (workflow.id, workflow)).collect();
    ids.iter().map(|id| known.remove(id).ok_or(ClientError::Deleted { id: *id })).collect()
}

/// Ends when the phase of a workflow changes; never where no server tells.
pub async fn phase_change(server: Option<&Client>, id: i64) {
    let Some(client) = server else { return std::future::pending().await };
    let ids = [id];
    let mut statuses = StatusWatch::new(client, &ids, LOCAL_TIMEOUT);
    let mut before = None;
    while let Ok(workflows) = statuses.next().await {
        let now = workflows.first().map(phase);
        if before.is_some() && before != now {
            return;
        }
        before = now;
    }
    std::future::pending().await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An owner on this machine is replaced in a moment; a server elsewhere may be restarted.
    #[test]
    fn timeouts_are_short_here_and_long_elsewhere() {
        assert_eq!((LOCAL_TIMEOUT.as_millis(), REMOTE_TIMEOUT.as_secs()), (500, 120));
    }

    #[test]
    fn a_workflow_that_is_not_found_was_deleted() {
        let gone = deleted(ClientError::answer(404, ""), 7);
        assert!(matches!(gone, ClientError::Deleted { id: 7 }), "{gone:?}");
        assert!(matches!(deleted(ClientError::Closed, 7), ClientError::Closed));
    }
}
