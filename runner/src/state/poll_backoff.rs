//! The delay between two calls of the server without long polls.
//!
//! The delay grows, so that a fully loaded node does not call every few seconds for hours, and progress resets it.
//! While the server is unreachable, the ping interval applies instead.

use std::time::Duration;

use torc_core::backoff::Backoff;

/// Longest delay of a runner without jobs: it should notice soon that its workflows have ended.
const MAX_IDLE_WAIT: Duration = Duration::from_secs(30);

/// The activity since the last call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PollMode {
    /// A job has ended, or new work arrived.
    Progress,
    /// Jobs run, and nothing else happened.
    Waiting,
    /// No job runs, and nothing happened.
    Idle,
}

/// The delay between two calls, which grows while nothing happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PollBackoff {
    backoff: Backoff,
}

impl PollBackoff {
    /// Begins at `base`, and doubles up to `max`.
    pub fn new(base: Duration, max: Duration) -> Self {
        let mut backoff = Backoff::new(base, max);
        backoff.next_delay();
        Self { backoff }
    }

    /// Returns the delay after a call. Progress resets it; the end of a job counts as progress, because it is reported
    /// at once.
    pub fn wait_after(&mut self, mode: PollMode) -> Duration {
        if mode == PollMode::Waiting {
            return self.backoff.next_delay();
        }
        self.backoff.reset();
        let wait = self.backoff.next_delay();
        if mode == PollMode::Idle { wait.min(MAX_IDLE_WAIT) } else { wait }
    }
}

/// Limits a delay to the remaining time, and to a third of the lease.
pub(super) fn bounded(wait: Duration, lease: Duration, time_left: Option<Duration>) -> Duration {
    wait.min(lease / 3).min(time_left.unwrap_or(Duration::MAX))
}

#[cfg(test)]
mod tests {
    use super::PollMode::{Idle, Progress, Waiting};
    use super::*;

    /// Base, maximum, activity, expected delays, and the reason.
    type Case<'a> = (u64, u64, &'a [PollMode], &'a [u64], &'a str);

    fn waits(base: u64, most: u64, modes: &[PollMode]) -> Vec<u64> {
        let mut backoff = PollBackoff::new(Duration::from_secs(base), Duration::from_secs(most));
        modes.iter().map(|mode| backoff.wait_after(*mode).as_secs()).collect()
    }

    // J26, J27, J28, J29
    #[test]
    fn modes() {
        let cases: [Case<'_>; 7] = [
            (5, 300, &[Progress, Progress, Progress], &[5, 5, 5], "progress: the base"),
            (5, 300, &[Waiting; 8], &[10, 20, 40, 80, 160, 300, 300, 300], "no progress: doubles up to the most"),
            (5, 300, &[Waiting, Waiting, Progress, Waiting], &[10, 20, 5, 10], "progress resets the delay"),
            (5, 300, &[Waiting, Waiting, Idle, Waiting], &[10, 20, 5, 10], "so does having no jobs"),
            (60, 300, &[Idle, Idle], &[30, 30], "without jobs at most 30 s"),
            (7, 300, &[Idle, Idle], &[7, 7], "and never longer than the base"),
            (600, 300, &[Progress, Waiting, Waiting], &[600, 600, 600], "a base above the most wins"),
        ];
        for (base, most, modes, expected, why) in cases {
            assert_eq!(waits(base, most, modes), expected, "{why}");
        }
    }

    // J26, J29
    #[test]
    fn five_thousand_jobs_of_five_days() {
        let busy = waits(300, 3_600, &[Progress; 12]);
        assert_eq!(busy.iter().sum::<u64>(), 3_600, "12 calls an hour in the busy phase");
        assert_eq!(waits(300, 3_600, &[Progress, Idle]), [300, 30], "30 s after its last job has ended");
        assert_eq!(waits(300, 3_600, &[Waiting; 5]), [600, 1_200, 2_400, 3_600, 3_600], "nothing ends for hours");
    }

    // J28
    #[test]
    fn progress_resets_the_delay() {
        assert_eq!(waits(5, 300, &[Waiting, Waiting, Waiting, Progress, Waiting]), [10, 20, 40, 5, 10]);
    }

    /// Torc 1.0 could sleep for 300 s through the 90 s before the end of its allocation.
    #[test]
    fn no_wait_sleeps_through_a_deadline_or_a_lease() {
        let seconds = Duration::from_secs;
        let cases = [
            (300, 120, None, 40, "a third of the lease"),
            (300, 3_600, Some(90), 90, "the end of its time"),
            (300, 3_600, Some(0), 0, "which is now"),
            (300, 3_600, None, 300, "the wait itself"),
            (5, 120, Some(400), 5, "the wait itself"),
        ];
        for (wait, lease, left, expected, why) in cases {
            assert_eq!(bounded(seconds(wait), seconds(lease), left.map(seconds)), seconds(expected), "{why}");
        }
    }
}
