//! Sync requests that the server holds open until there is something new to answer.
//!
//! Generic over the clock (`T`) and the handle for the answer (`R`), because the server and the simulator supply
//! their own.

use std::time::Duration;

use torc_api::wire::{LONG_POLL_SECONDS, SyncRequest, SyncResponse};

use super::tx::Tx;
use super::{Engine, SyncAnswer};
use crate::ids::RunnerId;

/// Number of times that waiting syncs are polled for one change. An answer to one runner can concern another, e.g. a lease is requested
/// back. What is left after these passes waits for the next message.
const MAX_PASSES: usize = 4;

/// All waiting syncs of a server.
#[derive(Debug)]
pub struct LongPolls<T, R> {
    waiting: Vec<LongPoll<T, R>>,
    /// `Engine::wake_version` at the last poll.
    seen_version: u64,
}

/// A sync that waits for a change.
#[derive(Debug)]
pub struct LongPoll<T, R> {
    /// The runner that waits.
    pub runner: RunnerId,
    /// The message to answer.
    pub request: Box<SyncRequest>,
    /// Latest time of the answer.
    pub until: T,
    /// Handle for the answer.
    pub reply: R,
}

impl<T: Copy + Ord, R> LongPolls<T, R> {
    /// Returns an empty list.
    pub fn new(engine: &Engine) -> Self {
        Self { waiting: Vec::new(), seen_version: engine.wake_version() }
    }

    /// Returns whether no sync waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns the earliest time at which a sync has to be answered.
    pub fn next_timeout(&self) -> Option<T> {
        self.waiting.iter().map(|poll| poll.until).min()
    }

    /// Adds a sync to the waiting ones.
    pub fn park(&mut self, poll: LongPoll<T, R>) {
        self.waiting.push(poll);
    }

    /// Removes all syncs without an answer, and returns their handles.
    pub fn take_all(&mut self) -> Vec<R> {
        self.waiting.drain(..).map(|poll| poll.reply).collect()
    }

    /// Continues with an engine that was loaded again. Its earlier changes wake no sync.
    pub fn restart(&mut self, engine: &Engine) {
        self.seen_version = engine.wake_version();
    }

    /// Answers the syncs that have something new, that a newer message has overtaken, or whose wait ends at `until`
    /// or earlier. With `everyone`, answers all.
    pub fn answer(&mut self, engine: &mut Engine, tx: &mut Tx, until: T, everyone: bool) -> Vec<(R, SyncResponse)> {
        let mut answers = Vec::new();
        for pass in 0..MAX_PASSES {
            let is_changed = engine.wake_version() != self.seen_version;
            if pass > 0 && !is_changed {
                break;
            }
            self.seen_version = engine.wake_version();
            for poll in std::mem::take(&mut self.waiting) {
                let is_polled = is_changed || engine.is_overtaken(poll.runner, poll.request.sequence);
                let found = if is_polled { engine.poll(poll.runner, &poll.request, tx) } else { None };
                let over = || (everyone || poll.until <= until).then(|| engine.plain_response(poll.runner));
                match found.or_else(over) {
                    Some(mut response) => {
                        response.sequence = poll.request.sequence;
                        answers.push((poll.reply, response));
                    }
                    None => self.waiting.push(poll),
                }
            }
        }
        answers
    }
}

impl SyncAnswer {
    /// Returns how long this answer may wait for a change; none if it has to be sent now. The wait is at most a third of the lease duration,
    /// so that the lease cannot expire meanwhile.
    pub fn wait(&self, request: &SyncRequest) -> Option<Duration> {
        if !self.may_wait || request.wait_ms == 0 {
            return None;
        }
        let lease = Duration::from_millis(self.response.lease_ms);
        Some(Duration::from_millis(request.wait_ms).min(Duration::from_secs(LONG_POLL_SECONDS)).min(lease / 3))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_is_the_shortest_of_its_limits() {
        for (wait_ms, lease_ms, expected) in [
            (0, 120_000, None),
            (1, 120_000, Some(1)),
            (29_999, 120_000, Some(29_999)),
            (30_001, 120_000, Some(30_000)),
            (60_000, 90_000, Some(30_000)),
            (60_000, 30_000, Some(10_000)),
            (60_000, 3_000, Some(1_000)),
            (500, 3_000, Some(500)),
        ] {
            let request = SyncRequest { wait_ms, ..SyncRequest::default() };
            let mut answer =
                SyncAnswer { response: SyncResponse { lease_ms, ..SyncResponse::default() }, may_wait: true };
            let expected = expected.map(Duration::from_millis);
            assert_eq!(answer.wait(&request), expected, "asks for {wait_ms} ms with a lease of {lease_ms} ms");
            answer.may_wait = false;
            assert_eq!(answer.wait(&request), None, "there is something to say");
        }
    }
}
