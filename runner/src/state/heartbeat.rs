//! Heartbeats to the shim.
//!
//! The shim starts jobs that were handed to it in advance only while the agent is alive. A frozen or hung agent tells the server of
//! no start: the leases of such jobs expire, and another runner runs them, too.

use super::{Effect, State};
use crate::clock::BootInstant;

/// The shim goes on for a third of the lease after a heartbeat. A living agent has renewed its leases within the third before, so the
/// last third is left for the jobs to end.
const SILENCE_PER_LEASE: u32 = 3;
/// Two heartbeats may be late or missing before the shim stops starting jobs.
const HEARTBEATS_PER_LEASE: u32 = 9;

/// The last heartbeat to the shim; absent before the first.
#[derive(Debug, Default)]
pub(super) struct Heartbeat {
    sent_at: Option<BootInstant>,
}

impl Heartbeat {
    /// Another shim has heard none.
    pub fn reset(&mut self) {
        self.sent_at = None;
    }

    #[cfg(test)]
    pub fn sent_at(&self) -> Option<BootInstant> {
        self.sent_at
    }
}

impl State {
    /// Sends a heartbeat if one is due. Without handed jobs there is none, and no wake-up for it.
    ///
    /// A heartbeat carries a moment instead of a duration: one that the shim reads late, after it was itself frozen, grants no
    /// additional time.
    pub(super) fn send_heartbeat(&mut self, now: BootInstant, effects: &mut Vec<Effect>) {
        if self.jobs.handed() == 0 {
            return;
        }
        let lease = self.lease_time();
        let interval = lease / HEARTBEATS_PER_LEASE;
        let due = self.heartbeat.sent_at.map_or(now, |sent| sent.plus(interval));
        if now < due {
            self.wake(due);
            return;
        }
        self.heartbeat.sent_at = Some(now);
        effects.push(Effect::Heartbeat { alive_until: now.plus(lease / SILENCE_PER_LEASE) });
        self.wake(now.plus(interval));
    }
}
