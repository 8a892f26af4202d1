//! The one place where the controller reads the clock.

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};
use torc_core::ids::Now;

/// A source of the two clocks' times: [`now`], or one that a test sets.
pub(crate) type Clock = Arc<dyn Fn() -> Now + Send + Sync>;

/// A source of instants for measuring durations: `Instant::now`, or one that a test sets.
pub(crate) type InstantSource = Arc<dyn Fn() -> Instant + Send + Sync>;

/// Returns the time of both clocks. Leases use the one that advances while the machine sleeps.
pub fn now() -> Now {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64);
    let mono = clock_gettime(ClockId::CLOCK_BOOTTIME)
        .map_or(0, |time| time.tv_sec().unsigned_abs() * 1_000 + time.tv_nsec().unsigned_abs() / 1_000_000);
    Now { wall_ms: wall, mono_ms: mono }
}
