//! Relays logs from the disks of runners to the callers that request them.
//!
//! Nothing is stored: a caller waits for its request, and a request is removed when its caller stops waiting.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use torc_api::logs::{LogChunk, LogChunkRequest};
use torc_api::wire::LONG_POLL_SECONDS;

/// Time that a caller waits for a runner.
const RUNNER_ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
/// Maximum number of pending requests; more are refused.
const MAX_PENDING_REQUESTS: usize = 1_000;

/// Pending log requests. Clones share state.
#[derive(Clone, Default)]
pub(crate) struct LogRelay {
    pending: Arc<Mutex<PendingRequests>>,
    changed: Arc<Notify>,
}

#[derive(Default)]
struct PendingRequests {
    last: i64,
    /// Requests that no runner has taken yet, with their hosts.
    open: Vec<(String, LogChunkRequest)>,
    /// Callers that wait for a chunk, by the number of the request.
    waiting: HashMap<i64, oneshot::Sender<LogChunk>>,
}

impl LogRelay {
    /// Requests a chunk of a file on a host's disk. Returns `None` if its runner does not deliver it in time.
    pub async fn ask(&self, host: &str, path: &str, offset: i64, lines: Option<i64>) -> Option<LogChunk> {
        let (sender, receiver) = oneshot::channel();
        let id = {
            let mut pending = self.lock();
            if pending.waiting.len() >= MAX_PENDING_REQUESTS {
                return None;
            }
            pending.last += 1;
            let id = pending.last;
            pending.open.push((host.to_owned(), LogChunkRequest { id, path: path.to_owned(), offset, lines }));
            pending.waiting.insert(id, sender);
            id
        };
        self.changed.notify_waiters();
        // Removes the request however the caller stops waiting.
        let _remove = RemoveOnDrop { relay: self, id };
        tokio::time::timeout(RUNNER_ANSWER_TIMEOUT, receiver).await.ok()?.ok()
    }

    /// Waits for requests for the disk of a host and returns them; empty after the duration of a long poll.
    pub async fn poll(&self, host: &str) -> Vec<LogChunkRequest> {
        let until = tokio::time::Instant::now() + Duration::from_secs(LONG_POLL_SECONDS);
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Registered before the check, so that no notification is missed.
            changed.as_mut().enable();
            let found = self.take(host);
            if !found.is_empty() || tokio::time::timeout_at(until, changed).await.is_err() {
                return found;
            }
        }
    }

    /// Passes chunks of a runner to the callers.
    pub fn deliver(&self, pieces: Vec<LogChunk>) {
        let mut pending = self.lock();
        for chunk in pieces {
            if let Some(waiting) = pending.waiting.remove(&chunk.id) {
                // The caller may have just stopped waiting.
                let _ = waiting.send(chunk);
            }
        }
    }

    fn take(&self, host: &str) -> Vec<LogChunkRequest> {
        let mut pending = self.lock();
        let (its, others) = std::mem::take(&mut pending.open).into_iter().partition(|(of, _)| of == host);
        pending.open = others;
        Vec::into_iter(its).map(|(_, chunk)| chunk).collect()
    }

    fn lock(&self) -> MutexGuard<'_, PendingRequests> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct RemoveOnDrop<'a> {
    relay: &'a LogRelay,
    id: i64,
}

impl Drop for RemoveOnDrop<'_> {
    fn drop(&mut self) {
        let mut pending = self.relay.lock();
        pending.waiting.remove(&self.id);
        pending.open.retain(|(_, chunk)| chunk.id != self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the numbers of untaken requests and of waiting callers.
    fn left(relay: &LogRelay) -> (usize, usize) {
        let pending = relay.lock();
        (pending.open.len(), pending.waiting.len())
    }

    #[tokio::test]
    async fn a_piece_goes_from_the_host_that_has_it_to_who_wants_it() {
        let relay = LogRelay::default();
        let runner = async {
            let wanted = relay.poll("a").await;
            assert_eq!(wanted.iter().map(|chunk| chunk.path.as_str()).collect::<Vec<_>>(), ["/x"]);
            relay.deliver(vec![LogChunk::new(99, 0, b"unknown"), LogChunk::new(wanted[0].id, 0, b"text")]);
        };
        let unknown = relay.ask("b", "/y", 0, None);
        tokio::pin!(unknown);
        tokio::select! {
            biased;
            _ = &mut unknown => panic!("no runner lives there"),
            (mine, ()) = async { tokio::join!(relay.ask("a", "/x", 0, None), runner) } => {
                assert_eq!(mine.map(|chunk| chunk.bytes()), Some(b"text".to_vec()));
            }
        }
        assert_eq!(left(&relay), (1, 1));
    }

    #[tokio::test]
    async fn an_abandoned_request_is_removed() {
        let relay = LogRelay::default();
        let asked = tokio::time::timeout(Duration::from_millis(1), relay.ask("b", "/y", 0, None)).await;
        assert!(asked.is_err());
        assert_eq!(left(&relay), (0, 0));
        assert_eq!(relay.take("b"), []);
    }

    #[tokio::test]
    async fn a_request_names_the_range_of_a_file() {
        let relay = LogRelay::default();
        let runner = async {
            let wanted = relay.poll("a").await.remove(0);
            assert_eq!((wanted.path.as_str(), wanted.offset, wanted.lines), ("/x", 17, Some(19)));
            assert_eq!(relay.take("a"), [], "it is taken once");
            relay.deliver(vec![LogChunk::new(wanted.id, 17, b"text")]);
        };
        let (chunk, ()) = tokio::join!(relay.ask("a", "/x", 17, Some(19)), runner);
        assert_eq!(chunk.map(|chunk| (chunk.offset, chunk.bytes())), Some((17, b"text".to_vec())));
        assert_eq!(left(&relay), (0, 0));
    }

    #[tokio::test]
    async fn at_most_a_thousand_requests_are_pending() {
        let relay = LogRelay::default();
        let mut asked: Vec<_> = (0..MAX_PENDING_REQUESTS).map(|_| Box::pin(relay.ask("b", "/y", 0, None))).collect();
        for one in &mut asked {
            assert!(futures::poll!(one.as_mut()).is_pending());
        }
        assert_eq!((left(&relay), MAX_PENDING_REQUESTS), ((1_000, 1_000), 1_000));
        assert_eq!(relay.ask("b", "/y", 0, None).await, None, "a later request fails at once");
        drop(asked);
        assert_eq!(left(&relay), (0, 0));
    }

    #[test]
    fn a_runner_has_fifteen_seconds_to_bring_a_piece() {
        assert_eq!(RUNNER_ANSWER_TIMEOUT, Duration::from_secs(15));
    }
}
