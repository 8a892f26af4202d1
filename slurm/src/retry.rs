//! Schedules of retries. The caller sleeps.

use std::time::Duration;

/// The number of tries, and the pauses between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetrySchedule {
    /// Number of tries in all.
    pub tries: u32,
    pub delay: Duration,
    /// Factor by which each further pause grows.
    pub backoff_factor: u32,
    pub max_delay: Duration,
}

/// For the ID of a step, right after its start.
pub const STEP_ID_RETRIES: RetrySchedule = RetrySchedule {
    tries: 5,
    delay: Duration::from_millis(200),
    backoff_factor: 1,
    max_delay: Duration::from_millis(200),
};

/// For the accounting of a step after its end: the accounting lags behind.
pub const SACCT_RETRIES: RetrySchedule =
    RetrySchedule { tries: 6, delay: Duration::from_secs(5), backoff_factor: 1, max_delay: Duration::from_secs(5) };

/// For a query of a Slurm that does not answer.
pub const QUERY_RETRIES: RetrySchedule =
    RetrySchedule { tries: 5, delay: Duration::from_secs(1), backoff_factor: 2, max_delay: Duration::from_secs(30) };

impl RetrySchedule {
    /// Returns the pause after a failed try, counted from 1; `None` after the last one.
    pub fn delay_after(&self, failed: u32) -> Option<Duration> {
        if failed >= self.tries {
            return None;
        }
        let factor = self.backoff_factor.saturating_pow(failed.saturating_sub(1));
        Some(self.delay.saturating_mul(factor).min(self.max_delay))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delays(schedule: RetrySchedule) -> Vec<u64> {
        (1..).map_while(|failed| schedule.delay_after(failed)).map(|delay| delay.as_millis() as u64).collect()
    }

    // S07
    #[test]
    fn a_steps_number_is_looked_for_five_times_200_ms_apart() {
        assert_eq!(delays(STEP_ID_RETRIES), [200; 4]);
    }

    // S10
    #[test]
    fn the_accounting_is_asked_six_times_5_s_apart() {
        assert_eq!(delays(SACCT_RETRIES), [5_000; 5]);
    }

    #[test]
    fn a_pause_grows_up_to_the_longest() {
        let schedule = RetrySchedule {
            tries: 6,
            delay: Duration::from_secs(3),
            backoff_factor: 3,
            max_delay: Duration::from_secs(50),
        };
        assert_eq!(delays(schedule), [3_000, 9_000, 27_000, 50_000, 50_000]);
        assert_eq!(schedule.delay_after(0), Some(Duration::from_secs(3)));
        assert_eq!(QUERY_RETRIES.max_delay, Duration::from_secs(30));
    }

    #[test]
    fn questions_back_off_and_end() {
        assert_eq!(delays(QUERY_RETRIES), [1_000, 2_000, 4_000, 8_000]);
        let long = RetrySchedule { tries: 100, ..QUERY_RETRIES };
        assert_eq!(long.delay_after(99), Some(long.max_delay));
        assert_eq!(long.delay_after(100), None);
    }
}
