//! `/v1/watch`: events as they are committed, resumable by sequence number, and each changed status.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Sse;
use axum::response::sse::{Event as SseEvent, KeepAlive};
use futures::stream::Stream;
use tokio::sync::{broadcast, mpsc};
use tokio::time::Instant;
use torc_api::api::{Event, Workflow};
use torc_api::filter::EventFilter;
use torc_api::token::Grant;
use torc_core::backoff::Backoff;
use torc_core::ids::WorkflowId;

use super::access::Access;
use super::access::AccessMode::Read;
use super::error::ApiError;
use super::events::{concerns, with_number};
use super::extract::Query;
use super::route::Route;
use super::{App, Caller};
use crate::engine::{EngineError, EngineHandle};

/// Shortest and longest delay between a change and the next status. The first statuses come quickly, so that a client sees
/// the end of a short workflow at once.
const STATUS_DELAYS: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(200));
/// Number of messages that a client may lag behind before its stream waits for it.
const BUFFERED_MESSAGES: usize = 64;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::get("/v1/watch", watch)
            .access(Access::Member(Read))
            .summary("Stream server-sent events: `event` for each event, `status` after each change of a status"),
    ]
}

async fn watch(
    State(app): State<App>,
    caller: Caller,
    headers: HeaderMap,
    Query(filter): Query<EventFilter>,
) -> Result<Sse<impl Stream<Item = Result<SseEvent, Infallible>>>, ApiError> {
    let resumed = headers.get("last-event-id").and_then(|value| value.to_str().ok()?.parse().ok());
    let filter = with_number(filter, &app, &caller).await?;
    let (sender, receiver) = mpsc::channel(BUFFERED_MESSAGES);
    let watch = WatchStream {
        engine: app.engine.clone(),
        workflow: filter.workflow.map(WorkflowId),
        theirs: app.engine.theirs(&caller.grant).await?,
        grant: caller.grant,
        last: resumed.or(filter.after).unwrap_or_default(),
        last_status: None,
        sender,
    };
    let stop = app.stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            // The client has disconnected or the server stops.
            _ = watch.run() => {}
            () = stop.cancelled() => {}
        }
    });
    let stream = futures::stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|event| (Ok(event), receiver))
    });
    Ok(Sse::new(stream).keep_alive(KeepAlive::default()))
}

/// The stream of one client.
struct WatchStream {
    engine: EngineHandle,
    workflow: Option<WorkflowId>,
    /// The rights of the client.
    grant: Grant,
    /// The workflows to which the client currently has access, or `None` for all.
    theirs: Option<BTreeSet<WorkflowId>>,
    /// The last event sent.
    last: i64,
    last_status: Option<String>,
    sender: mpsc::Sender<SseEvent>,
}

/// The end of a stream: the client has disconnected or the engine has stopped.
struct StreamEnded;

impl From<EngineError> for StreamEnded {
    fn from(_: EngineError) -> Self {
        Self
    }
}

impl WatchStream {
    async fn run(mut self) -> Result<(), StreamEnded> {
        // Subscribed before the store is read, so that no event is missed between the two.
        let mut live = self.engine.subscribe();
        self.catch_up().await?;
        self.send_status().await?;
        let mut delays = Backoff::new(STATUS_DELAYS.0, STATUS_DELAYS.1);
        let mut status_due: Option<Instant> = None;
        loop {
            tokio::select! {
                received = live.recv() => {
                    self.forward(received).await?;
                    if status_due.is_none() {
                        status_due = Some(Instant::now() + delays.next_delay());
                    }
                }
                () = sleep_until(status_due), if status_due.is_some() => {
                    status_due = None;
                    self.send_status().await?;
                }
                () = self.sender.closed() => return Err(StreamEnded),
            }
        }
    }

    async fn forward(
        &mut self,
        received: Result<Arc<Vec<Event>>, broadcast::error::RecvError>,
    ) -> Result<(), StreamEnded> {
        match received {
            Ok(events) => {
                self.theirs = self.engine.theirs(&self.grant).await?;
                for event in events.iter() {
                    self.send_event(event).await?;
                }
                Ok(())
            }
            Err(broadcast::error::RecvError::Lagged(_)) => self.catch_up().await,
            Err(broadcast::error::RecvError::Closed) => Err(StreamEnded),
        }
    }

    async fn catch_up(&mut self) -> Result<(), StreamEnded> {
        loop {
            let workflow = self.workflow.map(|id| id.0);
            let filter = EventFilter { workflow, after: Some(self.last), ..EventFilter::default() };
            let page = self.engine.events(&filter).await?;
            for event in &page.items {
                self.send_event(event).await?;
            }
            if page.next.is_none() {
                return Ok(());
            }
        }
    }

    async fn send_event(&mut self, event: &Event) -> Result<(), StreamEnded> {
        let wanted = self.workflow.is_none_or(|workflow| event.workflow_id == Some(workflow.0))
            && self.theirs.as_ref().is_none_or(|theirs| concerns(theirs, event));
        if event.sequence <= self.last || !wanted {
            return Ok(());
        }
        self.last = event.sequence;
        let data = serde_json::to_string(event).map_err(|_| StreamEnded)?;
        self.send(SseEvent::default().id(event.sequence.to_string()).event("event").data(data)).await
    }

    /// Sends the status of the watched workflow, or of all, when it differs from the last one sent.
    async fn send_status(&mut self) -> Result<(), StreamEnded> {
        let workflows: Vec<Workflow> = match self.workflow {
            Some(id) => vec![self.engine.summary(id).await?],
            None => {
                let mut all = self.engine.workflows(None).await?;
                let theirs = self.engine.theirs(&self.grant).await?;
                all.retain(|one| theirs.as_ref().is_none_or(|theirs| theirs.contains(&WorkflowId(one.id))));
                all
            }
        };
        let mut lines = Vec::with_capacity(workflows.len());
        for workflow in &workflows {
            lines.push(serde_json::to_string(workflow).map_err(|_| StreamEnded)?);
        }
        let status = lines.join("\n");
        if self.last_status.as_ref() != Some(&status) {
            self.last_status = Some(status);
            for line in lines {
                self.send(SseEvent::default().event("status").data(line)).await?;
            }
        }
        Ok(())
    }

    async fn send(&self, event: SseEvent) -> Result<(), StreamEnded> {
        self.sender.send(event).await.map_err(|_| StreamEnded)
    }
}

async fn sleep_until(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
