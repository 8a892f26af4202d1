//! The virtual clock. All clocks of a simulation are derived from it.

use std::time::Duration;

use torc_core::ids::Now;
use torc_runner::clock::BootInstant;

/// The monotonic clocks show this much when a simulation starts: an agent takes the moment 0 for "never".
const BOOT_US: u64 = 1_000_000_000;
/// The time of day at the start of a simulation, in milliseconds since 1970: January 2027.
const EPOCH_MS: i64 = 1_800_000_000_000;

/// A point in virtual time: microseconds since the start of the simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// The start of the simulation.
    pub const ZERO: Self = Self(0);

    /// Returns the point this many seconds after the start.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds * 1_000_000)
    }

    /// Returns the point this much after the start.
    pub fn after_start(duration: Duration) -> Self {
        Self::ZERO.plus(duration)
    }

    /// Returns the point this much later.
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(micros(duration)))
    }

    /// Returns how long after `earlier` this is; zero if it is before.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// Returns this time on the clock of an agent.
    pub fn moment(self) -> BootInstant {
        BootInstant(self.0.saturating_add(BOOT_US))
    }

    /// Returns the time at which the clock of an agent shows `moment`.
    pub fn of_moment(moment: BootInstant) -> Self {
        Self(moment.0.saturating_sub(BOOT_US))
    }

    /// Returns this time on the clocks of the engine.
    pub fn engine_now(self) -> Now {
        let mono_ms = self.moment().0 / 1_000;
        Now { wall_ms: EPOCH_MS.saturating_add_unsigned(self.0 / 1_000), mono_ms }
    }
}

/// Converts a duration to whole microseconds.
pub fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_clocks_advance_together() {
        let (start, later) = (Time::ZERO, Time::from_secs(3));
        assert_eq!(later.moment().since(start.moment()), Duration::from_secs(3));
        assert_eq!(later.engine_now().mono_ms - start.engine_now().mono_ms, 3_000);
        assert_eq!(later.engine_now().wall_ms - start.engine_now().wall_ms, 3_000);
        assert_eq!(Time::of_moment(later.moment()), later);
        assert_ne!(start.moment(), BootInstant::default());
    }
}
