//! The runner's clock, `CLOCK_BOOTTIME`: it never jumps, runs during suspend, and is the same for all processes of the
//! machine.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// A moment, in microseconds since the machine started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BootInstant(pub u64);

impl BootInstant {
    /// Returns the time since `earlier`; zero if this moment is before it.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// Returns the moment that is later by `duration`.
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)))
    }

    /// Returns the moment that is earlier by `duration`, but not before the start of the machine.
    pub fn minus(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)))
    }
}

/// Returns the time of day in milliseconds since 1970. It may jump, so it is only for output and for other hosts.
pub fn wall_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Converts a moment to milliseconds since 1970, which stay valid after a restart of the machine.
pub fn date_ms(moment: BootInstant) -> i64 {
    let age = i64::try_from(now().since(moment).as_millis()).unwrap_or(i64::MAX);
    wall_ms().saturating_sub(age)
}

/// Returns the milliseconds since a time of day; 0 if it is in the future.
pub fn ms_since(date_ms: i64) -> u64 {
    u64::try_from(wall_ms().saturating_sub(date_ms)).unwrap_or(0)
}

/// Returns the current moment.
pub fn now() -> BootInstant {
    let time = clock_gettime(ClockId::Boottime);
    BootInstant(time.tv_sec.unsigned_abs() * 1_000_000 + time.tv_nsec.unsigned_abs() / 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_never_go_below_zero_or_beyond_their_end() {
        let (second, at) = (Duration::from_secs(1), BootInstant(5_000_000));
        assert_eq!((at.plus(second), at.minus(second)), (BootInstant(6_000_000), BootInstant(4_000_000)));
        assert_eq!(
            (at.since(BootInstant(3_500_000)), BootInstant(3_500_000).since(at)),
            (second + second / 2, Duration::ZERO)
        );
        assert_eq!((at.minus(second * 6), at.plus(Duration::MAX)), (BootInstant(0), BootInstant(u64::MAX)));
    }

    #[test]
    fn a_time_of_day_has_an_age() {
        // The machine may have just started: no moment is before that.
        let (before, passed) = (wall_ms(), now().since(BootInstant(0)).min(Duration::from_secs(3_600)));
        let (age_ms, date) = (i64::try_from(passed.as_millis()).expect("an hour"), date_ms(now().minus(passed)));
        assert!((before - age_ms - date).abs() < 600_000, "{age_ms} ms ago: {date}, now: {before}");
        assert!(ms_since(date) >= u64::try_from(age_ms - 600_000).unwrap_or(0));
        assert_eq!(ms_since(i64::MAX), 0, "the future has no age");
    }
}
