//! The delay between two tries of an operation that failed or found nothing.

use std::time::Duration;

/// A delay that doubles with every try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    initial: Duration,
    max: Duration,
    tries: u32,
}

impl Backoff {
    /// Begins at `initial` and doubles up to `max`. An initial delay above the maximum stays as it is.
    pub const fn new(initial: Duration, max: Duration) -> Self {
        Self { initial, max, tries: 0 }
    }

    /// Returns the delay before the next try.
    pub fn next_delay(&mut self) -> Duration {
        self.tries = self.tries.saturating_add(1);
        self.after(self.tries)
    }

    /// Begins again at the initial delay.
    pub fn reset(&mut self) {
        self.tries = 0;
    }

    /// Returns the delay after this many tries in a row, for callers that count elsewhere.
    pub fn after(&self, tries: u32) -> Duration {
        let factor = 1_u32.checked_shl(tries.saturating_sub(1)).unwrap_or(u32::MAX);
        self.initial.saturating_mul(factor).min(self.max.max(self.initial))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn delays_double_up_to_the_maximum() {
        let backoff = Backoff::new(SECOND, 300 * SECOND);
        for (tries, seconds) in [(0, 1), (1, 1), (2, 2), (3, 4), (9, 256), (10, 300), (1_000, 300)] {
            assert_eq!(backoff.after(tries), seconds * SECOND, "{tries}");
        }
        assert_eq!(Backoff::new(600 * SECOND, 300 * SECOND).after(5), 600 * SECOND, "never below the initial delay");
        assert_eq!(Backoff::new(Duration::MAX, Duration::MAX).after(2), Duration::MAX);
    }

    #[test]
    fn a_reset_begins_again() {
        let mut backoff = Backoff::new(SECOND, 3 * SECOND);
        let delays = |backoff: &mut Backoff| (0..4).map(|_| backoff.next_delay().as_secs()).collect::<Vec<_>>();
        assert_eq!(delays(&mut backoff), [1, 2, 3, 3]);
        backoff.reset();
        assert_eq!(delays(&mut backoff), [1, 2, 3, 3]);
    }
}
