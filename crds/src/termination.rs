//! Computes the end of an allocation as its jobs see it: the first signal, the kill, and the seconds left for the
//! runner.
//!
//! Sizing, matching, validation and the runner use the same functions. So an allocation that was sized for a job has
//! the time that the runner requires before it starts the job.

use std::time::Duration;

use crate::execution::{ExecutionConfig, ExecutionMode, SIGKILL_HEADROOM_SECONDS, SIGTERM_LEAD_SECONDS};

/// Slurm counts the time limit of a step in whole minutes.
const STEP_MINUTE: i64 = 60;
/// The smallest and the largest grace: a job may start with this much less time than it declares. Declared runtimes are
/// estimates, and the default of one minute is not declared at all.
const MIN_GRACE_SECONDS: i64 = 60;
const MAX_GRACE_SECONDS: i64 = 120;

/// The warning that `srun --signal` announces before the time limit of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepWarning {
    /// The signal, by name or number.
    pub signal: String,
    /// The time between the signal and the limit.
    pub before: Duration,
}

impl StepWarning {
    /// Parses `TERM@120`, `R:USR1` or `15@30`; 60 seconds if the text names none. Returns none for `B:`, which signals
    /// only the batch script.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (flags, rest) = text.split_once(':').unwrap_or(("", text));
        let (signal, before) = rest.split_once('@').unwrap_or((rest, "60"));
        let is_signal = !signal.is_empty() && signal.chars().all(|c| c.is_ascii_alphanumeric());
        if !is_signal || flags.contains('B') {
            return None;
        }
        Some(Self { signal: signal.to_owned(), before: Duration::from_secs(before.parse().ok()?) })
    }
}

/// The seconds at the end of an allocation, or of a runner's time, in which jobs are signaled and killed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EndMargin {
    /// Seconds between the kill, or the time limit of steps, and the end.
    pub headroom_seconds: i64,
    /// Seconds between the first signal and the kill, or the time limit of steps.
    pub notice_seconds: i64,
    /// The jobs are steps of Slurm, whose time limits are whole minutes.
    pub in_step: bool,
}

impl EndMargin {
    /// Returns the margin of jobs with this configuration, inside or outside of an allocation.
    pub fn of(config: Option<&ExecutionConfig>, in_allocation: bool) -> Self {
        let mode = config.and_then(|config| config.mode).unwrap_or_default();
        let in_step = in_allocation && mode != ExecutionMode::Direct;
        let headroom = config.and_then(|config| config.sigkill_headroom_seconds).unwrap_or(SIGKILL_HEADROOM_SECONDS);
        let lead = config.and_then(|config| config.sigterm_lead_seconds).unwrap_or(SIGTERM_LEAD_SECONDS);
        let warning = config.and_then(|config| config.srun_termination_signal.as_deref()).and_then(StepWarning::parse);
        let before = warning.map_or(0, |warning| i64::try_from(warning.before.as_secs()).unwrap_or(i64::MAX));
        Self { headroom_seconds: headroom.max(0), notice_seconds: if in_step { before } else { lead.max(0) }, in_step }
    }

    /// Returns the seconds that a job has before its first signal if it starts with `remaining_seconds` left. It cannot
    /// start if the result is 0 or negative.
    pub fn usable_seconds(&self, remaining_seconds: i64) -> i64 {
        let before_kill = remaining_seconds.saturating_sub(self.headroom_seconds);
        let limit = if self.in_step { before_kill.div_euclid(STEP_MINUTE) * STEP_MINUTE } else { before_kill };
        limit.saturating_sub(self.notice_seconds)
    }

    /// Returns the least remaining seconds with which a job has `runtime_seconds` before its first signal.
    pub fn seconds_for(&self, runtime_seconds: i64) -> i64 {
        let limit = runtime_seconds.max(1).saturating_add(self.notice_seconds);
        let limit = if self.in_step { up_to_minute(limit) } else { limit };
        limit.saturating_add(self.headroom_seconds)
    }

    /// Returns the most seconds that a job can lose at the end, whenever it starts: the limit of a step is rounded
    /// down.
    pub fn max_seconds(&self) -> i64 {
        let rounding = if self.in_step { STEP_MINUTE - 1 } else { 0 };
        self.headroom_seconds.saturating_add(self.notice_seconds).saturating_add(rounding)
    }

    /// Returns whether a job of this duration may start with `remaining_seconds` left.
    pub fn allows(&self, runtime_seconds: i64, remaining_seconds: i64) -> bool {
        remaining_seconds >= self.least_remaining(runtime_seconds)
    }

    /// Returns the least remaining seconds with which a runner starts a job of this duration.
    pub fn least_remaining(&self, runtime_seconds: i64) -> i64 {
        self.seconds_for(runtime_seconds.saturating_sub(grace_seconds(runtime_seconds)))
    }
}

/// Returns the seconds that a job may lack of its declared runtime when it starts.
pub fn grace_seconds(runtime_seconds: i64) -> i64 {
    (runtime_seconds / 10).clamp(MIN_GRACE_SECONDS, MAX_GRACE_SECONDS)
}

/// Rounds seconds up to whole minutes.
pub fn up_to_minute(seconds: i64) -> i64 {
    let over = seconds.rem_euclid(STEP_MINUTE);
    if over == 0 { seconds } else { seconds.saturating_add(STEP_MINUTE - over) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn config(mode: ExecutionMode, headroom: i64, lead: i64, signal: Option<&str>) -> ExecutionConfig {
        ExecutionConfig {
            mode: Some(mode),
            sigkill_headroom_seconds: Some(headroom),
            sigterm_lead_seconds: Some(lead),
            srun_termination_signal: signal.map(str::to_owned),
            ..ExecutionConfig::default()
        }
    }

    // X11
    #[test]
    fn warnings_are_parsed_as_srun_reads_them() {
        let cases = [
            ("TERM@120", Some(("TERM", 120))),
            ("R:USR1@30", Some(("USR1", 30))),
            (" 15@10 ", Some(("15", 10))),
            ("INT", Some(("INT", 60))),
            ("B:TERM@5", None),
            ("TERM@soon", None),
            ("@5", None),
            ("--name@5", None),
            ("", None),
        ];
        for (text, expected) in cases {
            let found = StepWarning::parse(text);
            let found = found.as_ref().map(|warning| (warning.signal.as_str(), warning.before.as_secs()));
            assert_eq!(found, expected, "{text:?}");
        }
    }

    // X05, X06, X10, X11
    #[test]
    fn the_margin_follows_mode_and_place() {
        use ExecutionMode::{Auto, Direct, Slurm};
        let margin =
            |headroom_seconds, notice_seconds, in_step| EndMargin { headroom_seconds, notice_seconds, in_step };
        assert_eq!(EndMargin::of(None, false), margin(60, 30, false));
        assert_eq!(EndMargin::of(None, true), margin(60, 0, true));
        let cases = [
            (Direct, true, margin(180, 20, false)),
            (Direct, false, margin(180, 20, false)),
            (Slurm, true, margin(180, 120, true)),
            (Slurm, false, margin(180, 20, false)),
            (Auto, true, margin(180, 120, true)),
            (Auto, false, margin(180, 20, false)),
        ];
        for (mode, in_allocation, expected) in cases {
            let config = config(mode, 180, 20, Some("TERM@120"));
            assert_eq!(EndMargin::of(Some(&config), in_allocation), expected, "{mode:?} {in_allocation}");
        }
    }

    // X05, X10, S05
    #[test]
    fn usable_time_ends_at_the_first_signal() {
        let direct = EndMargin { headroom_seconds: 60, notice_seconds: 30, in_step: false };
        let step = EndMargin { headroom_seconds: 180, notice_seconds: 120, in_step: true };
        let cases = [
            (direct, 600, 510),
            (direct, 91, 1),
            (direct, 90, 0),
            (direct, 0, -90),
            (step, 600, 300),
            (step, 599, 240),
            (step, 360, 60),
            (step, 359, 0),
            (step, 100, -240),
        ];
        for (margin, remaining, usable) in cases {
            assert_eq!(margin.usable_seconds(remaining), usable, "{margin:?} {remaining}");
        }
        assert_eq!((direct.seconds_for(60), step.seconds_for(60), step.seconds_for(61)), (150, 360, 420));
        assert_eq!((direct.seconds_for(0), step.seconds_for(0)), (91, 360));
    }

    // J39
    #[test]
    fn a_job_may_start_with_a_little_less_than_it_declares() {
        for (runtime, grace) in [(0, 60), (60, 60), (600, 60), (610, 61), (1_200, 120), (86_400, 120)] {
            assert_eq!(grace_seconds(runtime), grace, "{runtime}");
        }
        let direct = EndMargin { headroom_seconds: 60, notice_seconds: 30, in_step: false };
        for (runtime, least) in [(3_600, 3_570), (600, 630), (60, 91), (1, 91)] {
            assert!(direct.allows(runtime, least), "{runtime}");
            assert!(!direct.allows(runtime, least - 1), "{runtime}");
        }
        let step = EndMargin { headroom_seconds: 300, notice_seconds: 120, in_step: true };
        assert!(step.allows(60, 480) && !step.allows(60, 479), "a step needs a whole minute beyond its warning");
    }

    proptest! {
        #[test]
        fn the_least_time_is_enough_and_a_second_less_is_not(
            headroom_seconds in 0_i64..2_000, notice_seconds in 0_i64..2_000, in_step: bool, runtime in 1_i64..100_000,
        ) {
            let margin = EndMargin { headroom_seconds, notice_seconds, in_step };
            let least = margin.seconds_for(runtime);
            prop_assert!(margin.usable_seconds(least) >= runtime);
            prop_assert!(margin.usable_seconds(least - 1) < runtime);
        }
    }
}
