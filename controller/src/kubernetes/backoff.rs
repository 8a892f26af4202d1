//! Back-off of an object after failures.

use std::time::Duration;

use torc_core::backoff::Backoff;

/// Minimum delay between two reconciles: a miscalculated delay must never become a hot loop.
pub(super) const MIN_BACKOFF: Duration = Duration::from_secs(1);
/// Maximum back-off, equal to the resync interval.
const MAX_BACKOFF: Duration = Duration::from_secs(300);
/// Interval after which every object is reconciled again.
pub(super) const RESYNC_INTERVAL: Duration = Duration::from_secs(300);

/// Returns the back-off after this number of consecutive failures.
pub(super) fn after(failures: u32) -> Duration {
    Backoff::new(MIN_BACKOFF, MAX_BACKOFF).after(failures)
}

/// Returns the delay until the next reconcile: the shortest of the requests, but at least the minimum.
pub(super) fn soonest(delays: impl IntoIterator<Item = Option<Duration>>) -> Duration {
    delays.into_iter().flatten().min().unwrap_or(RESYNC_INTERVAL).clamp(MIN_BACKOFF, RESYNC_INTERVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_a_maximum() {
        for (failures, seconds) in [(0, 1), (1, 1), (2, 2), (3, 4), (9, 256), (10, 300), (1_000, 300)] {
            assert_eq!(after(failures), Duration::from_secs(seconds), "{failures}");
        }
    }

    #[test]
    fn the_next_reconcile_is_neither_immediate_nor_never() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        for (delays, expected) in [
            (vec![], 300),
            (vec![None], 300),
            (vec![seconds(0)], 1),
            (vec![None, seconds(7), seconds(3)], 3),
            (vec![seconds(100_000)], 300),
        ] {
            assert_eq!(soonest(delays.clone()), Duration::from_secs(expected), "{delays:?}");
        }
    }
}
