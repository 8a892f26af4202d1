//! Retries a failed watch with exponential backoff, and logs each distinct error once.

use std::time::Duration;

use futures::{Stream, StreamExt as _};
use kube::runtime::watcher::{self, Event};
use torc_core::backoff::Backoff;

use super::log_once::{LogOnce, explained_watch};

/// Delay after the first error.
const INITIAL_BACKOFF: Duration = Duration::from_millis(800);
/// Maximum delay: a repaired cause must be noticed within seconds.
const MAX_BACKOFF: Duration = Duration::from_secs(10);

/// Back-off of one watch.
struct WatchBackoff {
    backoff: Backoff,
    log_once: LogOnce,
}

impl WatchBackoff {
    fn new() -> Self {
        Self { backoff: Backoff::new(INITIAL_BACKOFF, MAX_BACKOFF), log_once: LogOnce::default() }
    }

    /// Returns the delay after an event, and the error to report.
    fn after<K>(&mut self, seen: &watcher::Result<Event<K>>) -> (Duration, Option<String>) {
        match seen {
            Err(error) => {
                let delay = self.backoff.next_delay();
                let said = explained_watch(error);
                (delay, self.log_once.should_log(&said).then_some(said))
            }
            // A list that will fail also begins: only its end counts as success.
            Ok(Event::Init | Event::InitApply(_)) => (Duration::ZERO, None),
            Ok(_) => {
                *self = Self::new();
                (Duration::ZERO, None)
            }
        }
    }
}

/// Delays a stream of events after errors, and passes each distinct error to `report`.
pub(super) fn with_backoff<K>(
    seen: impl Stream<Item = watcher::Result<Event<K>>>,
    mut report: impl FnMut(&str),
) -> impl Stream<Item = watcher::Result<Event<K>>> {
    let mut backoff = WatchBackoff::new();
    seen.then(move |seen| {
        let (delay, message) = backoff.after(&seen);
        if let Some(said) = message {
            report(&said);
        }
        async move {
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            seen
        }
    })
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use futures::stream;
    use kube::core::Status;

    use super::*;

    fn forbidden() -> watcher::Result<Event<()>> {
        let status = Status { message: "no".to_owned(), code: 403, ..Status::default() };
        Err(watcher::Error::InitialListFailed(kube::Error::Api(Box::new(status))))
    }

    #[test]
    fn delays_grow_and_an_error_is_reported_once_until_success() {
        let mut backoff = WatchBackoff::new();
        let mut delays = Vec::new();
        for round in 0..6 {
            assert_eq!(backoff.after::<()>(&Ok(Event::Init)), (Duration::ZERO, None), "a beginning is no end");
            assert_eq!(backoff.after(&Ok(Event::InitApply(()))), (Duration::ZERO, None), "nor is a first page");
            let (delay, message) = backoff.after(&forbidden());
            assert_eq!(message.is_some(), round == 0);
            delays.push(delay.as_millis());
        }
        assert_eq!(delays, [800, 1_600, 3_200, 6_400, 10_000, 10_000]);
        assert_eq!(backoff.after::<()>(&Ok(Event::InitDone)), (Duration::ZERO, None));
        let (delay, message) = backoff.after(&forbidden());
        assert_eq!((delay, message.is_some()), (INITIAL_BACKOFF, true), "it is reset");
    }

    #[tokio::test]
    async fn nothing_is_lost_and_there_is_no_hot_loop() {
        let (start, mut told) = (Instant::now(), 0);
        let seen = stream::iter([Ok(Event::Init), forbidden(), Ok(Event::Init), Ok(Event::InitDone)]);
        let seen: Vec<_> = with_backoff(seen, |_| told += 1).collect().await;
        assert_eq!((seen.len(), told, seen[1].is_err()), (4, 1, true));
        assert!(start.elapsed() >= INITIAL_BACKOFF);
    }
}
