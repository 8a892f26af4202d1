//! The parts of an allocation's walltime that jobs cannot use.

use torc_api::execution::ExecutionConfig;
use torc_api::termination::{EndMargin, up_to_minute};

/// Seconds between the start of an allocation and that of its first job: the prolog, staggered runners, a slow file system.
pub const STARTUP_SECONDS: i64 = 180;

/// The parts of an allocation's walltime that no job can use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalltimeMargin {
    /// Seconds before the first job starts.
    pub startup_seconds: i64,
    /// The time between the first signal of a job and the end of the allocation.
    pub end: EndMargin,
}

impl WalltimeMargin {
    /// Returns the margin of allocations for jobs with this configuration.
    pub fn of(config: Option<&ExecutionConfig>) -> Self {
        Self { startup_seconds: STARTUP_SECONDS, end: EndMargin::of(config, true) }
    }

    /// Returns the shortest walltime, in whole minutes, in which jobs that take `seconds` one after another end before their
    /// first signal.
    pub fn walltime_for(&self, seconds: i64) -> i64 {
        up_to_minute(seconds.max(1).saturating_add(self.startup_seconds).saturating_add(self.end.max_seconds()))
    }

    /// Returns the seconds of a walltime that jobs can use.
    pub fn usable_seconds(&self, walltime: i64) -> i64 {
        walltime.saturating_sub(self.startup_seconds).saturating_sub(self.end.max_seconds())
    }
}
