//! Heartbeats to the shim.
//!
//! The shim starts jobs that were handed to it in advance only while the agent is alive. A frozen agent reports no start to the
//! server: the leases of such jobs expire, and another runner runs them, too.

use std::time::Duration;

use super::Effect;
use super::timer::Timer;
use crate::clock::BootInstant;

/// The shim starts jobs for a third of the lease after a heartbeat. The agent has renewed its leases within the third
/// before, so the last third is left for the jobs to end.
const SILENCE_PER_LEASE: u32 = 3;
/// Two heartbeats may be late or missing before the shim stops starting jobs.
const HEARTBEATS_PER_LEASE: u32 = 9;

/// The moment of the last heartbeat; absent before the first.
#[derive(Debug, Default)]
pub(super) struct Heartbeat {
    sent_at: Option<BootInstant>,
}

impl Heartbeat {
    /// Starts again, because another shim has received no heartbeat.
    pub fn reset(&mut self) {
        self.sent_at = None;
    }

    #[cfg(test)]
    pub fn sent_at(&self) -> Option<BootInstant> {
        self.sent_at
    }

    /// Returns a heartbeat if one is due.
    ///
    /// It carries a moment instead of a duration: one that the shim reads late, after it was itself frozen, grants no additional
    /// time.
    pub fn next(&mut self, lease: Duration, now: BootInstant, timer: &mut Timer) -> Option<Effect> {
        let interval = lease / HEARTBEATS_PER_LEASE;
        let due = self.sent_at.map_or(now, |sent| sent.plus(interval));
        if now < due {
            timer.set(due);
            return None;
        }
        self.sent_at = Some(now);
        timer.set(now.plus(interval));
        Some(Effect::Heartbeat { alive_until: now.plus(lease / SILENCE_PER_LEASE) })
    }
}
