//! Schedules of retries. The caller sleeps.

use std::time::Duration;

/// The number of tries, and the pauses between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Number of tries in all.
    pub tries: u32,
    pub pause: Duration,
    /// Factor by which each further pause grows.
    pub growth: u32,
    pub longest: Duration,
}

/// For the ID of a step, right after its start.
pub const STEP_NUMBER: Schedule =
    Schedule { tries: 5, pause: Duration::from_millis(200), growth: 1, longest: Duration::from_millis(200) };

/// For the accounting of a step after its end: the accounting lags behind.
pub const ACCOUNTING: Schedule =
    Schedule { tries: 6, pause: Duration::from_secs(5), growth: 1, longest: Duration::from_secs(5) };

/// For a query of a Slurm that does not answer.
pub const QUESTION: Schedule =
    Schedule { tries: 5, pause: Duration::from_secs(1), growth: 2, longest: Duration::from_secs(30) };

impl Schedule {
    /// Returns the pause after a failed try, counted from 1; `None` after the last one.
    pub fn pause_after(&self, failed: u32) -> Option<Duration> {
        if failed >= self.tries {
            return None;
        }
        let factor = self.growth.saturating_pow(failed.saturating_sub(1));
        Some(self.pause.saturating_mul(factor).min(self.longest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pauses(schedule: Schedule) -> Vec<u64> {
        (1..).map_while(|failed| schedule.pause_after(failed)).map(|pause| pause.as_millis() as u64).collect()
    }

    // S07
    #[test]
    fn a_steps_number_is_looked_for_five_times_200_ms_apart() {
        assert_eq!(pauses(STEP_NUMBER), [200; 4]);
    }

    // S10
    #[test]
    fn the_accounting_is_asked_six_times_5_s_apart() {
        assert_eq!(pauses(ACCOUNTING), [5_000; 5]);
    }

    #[test]
    fn a_pause_grows_up_to_the_longest() {
        let schedule =
            Schedule { tries: 6, pause: Duration::from_secs(3), growth: 3, longest: Duration::from_secs(50) };
        assert_eq!(pauses(schedule), [3_000, 9_000, 27_000, 50_000, 50_000]);
        assert_eq!(schedule.pause_after(0), Some(Duration::from_secs(3)));
        assert_eq!(QUESTION.longest, Duration::from_secs(30));
    }

    #[test]
    fn questions_back_off_and_end() {
        assert_eq!(pauses(QUESTION), [1_000, 2_000, 4_000, 8_000]);
        let long = Schedule { tries: 100, ..QUESTION };
        assert_eq!(long.pause_after(99), Some(long.longest));
        assert_eq!(long.pause_after(100), None);
    }
}
