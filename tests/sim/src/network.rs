//! The simulated network: one link from the server to each runner.

use std::time::Duration;

use crate::random::Random;
use crate::time::micros;

/// The link between the server and one runner. Messages are delayed, not lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Time of one message in one direction.
    pub latency: Duration,
    /// The most that is added to it, at random for each message.
    pub jitter: Duration,
}

impl Default for Link {
    /// A link within one cluster: a round trip of 0.5 ms.
    fn default() -> Self {
        Self { latency: Duration::from_micros(250), jitter: Duration::ZERO }
    }
}

impl Link {
    /// Returns a link with this round trip and without jitter.
    pub fn with_round_trip(round_trip: Duration) -> Self {
        Self { latency: round_trip / 2, jitter: Duration::ZERO }
    }

    /// Returns the time of the next message.
    pub fn delay(&self, random: &mut Random) -> Duration {
        let extra = if self.jitter.is_zero() { 0 } else { random.within(0, micros(self.jitter)) };
        self.latency + Duration::from_micros(extra)
    }

    /// Returns the longest time that a message and its answer need.
    pub fn round_trip(&self) -> Duration {
        (self.latency + self.jitter) * 2
    }
}
