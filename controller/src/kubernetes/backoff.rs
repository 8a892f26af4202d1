//! How long an object is left alone after something went wrong with it. Pure.

use std::time::Duration;

use torc_core::backoff::Backoff;

/// No pause is shorter: a wrong sum must never become a hot loop.
pub(super) const MIN_BACKOFF: Duration = Duration::from_secs(1);
/// No pause is longer.
const MAX_BACKOFF: Duration = Duration::from_secs(300);
/// Everything is looked at again after so long, whatever happens.
pub(super) const RESYNC_INTERVAL: Duration = Duration::from_secs(300);

/// After so many failures in a row.
pub(super) fn after(failures: u32) -> Duration {
    Backoff::new(MIN_BACKOFF, MAX_BACKOFF).after(failures)
}

/// When to look again: the earliest that anybody asks for, but never at once.
pub(super) fn soonest(wishes: impl IntoIterator<Item = Option<Duration>>) -> Duration {
    wishes.into_iter().flatten().min().unwrap_or(RESYNC_INTERVAL).clamp(MIN_BACKOFF, RESYNC_INTERVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_and_have_an_end() {
        for (failures, seconds) in [(0, 1), (1, 1), (2, 2), (3, 4), (9, 256), (10, 300), (1_000, 300)] {
            assert_eq!(after(failures), Duration::from_secs(seconds), "{failures}");
        }
    }

    #[test]
    fn nobody_is_looked_at_again_at_once_or_never() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        for (wishes, expected) in [
            (vec![], 300),
            (vec![None], 300),
            (vec![seconds(0)], 1),
            (vec![None, seconds(7), seconds(3)], 3),
            (vec![seconds(100_000)], 300),
        ] {
            assert_eq!(soonest(wishes.clone()), Duration::from_secs(expected), "{wishes:?}");
        }
    }
}
