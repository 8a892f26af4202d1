//! Why an attempt failed, and what the next one should have: for one job, from what is known of that job.

use torc_api::state::Cause;

use crate::expanded::Requirements;
use crate::verdict::ESCALATION_PERCENT;

/// The exit code of a job that was killed for its memory.
const OUT_OF_MEMORY: i32 = 137;
/// The exit code of a job that was ended for its time.
const OUT_OF_TIME: i32 = 152;
/// The exit code of a job that was asked to end.
const TERMINATED: i32 = 143;

/// What is known of a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evidence<'a> {
    /// What it asked for.
    pub needs: &'a Requirements,
    /// What was found out at the time.
    pub cause: Option<Cause>,
    /// Its exit code.
    pub return_code: i32,
    /// The most memory at once.
    pub peak_memory_bytes: Option<i64>,
    /// The most CPU at once, 100 for one core.
    pub peak_cpu_percent: Option<f64>,
    /// How long it ran.
    pub run_seconds: i64,
}

/// Factors, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Factors {
    /// Of memory.
    pub memory_percent: i64,
    /// Of time.
    pub runtime_percent: i64,
}

impl Default for Factors {
    fn default() -> Self {
        Self { memory_percent: i64::from(ESCALATION_PERCENT), runtime_percent: i64::from(ESCALATION_PERCENT) }
    }
}

/// Why it failed. What was found out at the time counts; otherwise memory above the limit, the exit code, and how long it ran decide.
pub fn diagnose(evidence: &Evidence<'_>) -> Cause {
    match evidence.cause {
        Some(Cause::ExitCode) | None => {}
        Some(cause) => return cause,
    }
    let limit = evidence.needs.memory_bytes;
    if evidence.return_code == 0 {
        return Cause::ExitCode;
    }
    if evidence.peak_memory_bytes.is_some_and(|peak| peak > limit) {
        return Cause::OutOfMemory;
    }
    let was_late = evidence.run_seconds.saturating_mul(10) > evidence.needs.runtime_seconds.saturating_mul(9);
    // A measured peak well below the limit speaks against memory.
    let had_room = evidence.peak_memory_bytes.is_some_and(|peak| peak < limit / 2);
    match evidence.return_code {
        OUT_OF_TIME => Cause::Timeout,
        OUT_OF_MEMORY if was_late && had_room => Cause::Timeout,
        OUT_OF_MEMORY => Cause::OutOfMemory,
        TERMINATED if was_late => Cause::Timeout,
        _ => Cause::ExitCode,
    }
}

/// What the next attempt should have, if more of something could help it. Only this job gets it.
pub fn escalate(evidence: &Evidence<'_>, factors: Factors) -> Option<Requirements> {
    let needs = evidence.needs;
    let grown = |amount: i64, percent: i64| {
        i64::try_from(i128::from(amount) * i128::from(percent) / 100).unwrap_or(i64::MAX).max(amount)
    };
    let mut next = match diagnose(evidence) {
        Cause::OutOfMemory => {
            let used = evidence.peak_memory_bytes.unwrap_or(0).max(needs.memory_bytes);
            Requirements { memory_bytes: grown(used, factors.memory_percent), ..needs.clone() }
        }
        Cause::Timeout => {
            Requirements { runtime_seconds: grown(needs.runtime_seconds, factors.runtime_percent), ..needs.clone() }
        }
        _ => return None,
    };
    // It used more CPUs than it asked for, so its neighbours and itself were slow.
    if let Some(percent) = evidence.peak_cpu_percent.filter(|percent| *percent > needs.num_cpus as f64 * 100.0) {
        next.num_cpus = next.num_cpus.max((percent / 100.0).ceil() as i64);
    }
    Some(next)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::partition::tests::{GIB, needs};
    use super::*;

    const HOUR: i64 = 3_600;

    fn evidence(needs: &Requirements, return_code: i32, peak_gib: Option<i64>, run_seconds: i64) -> Evidence<'_> {
        let peak_memory_bytes = peak_gib.map(|gib| gib * GIB);
        Evidence { needs, cause: None, return_code, peak_memory_bytes, peak_cpu_percent: None, run_seconds }
    }

    // S20
    #[test]
    fn the_cause_of_a_failure() {
        let needs = needs(4, 8, 0, 1, 1);
        let cases = [
            ("above its limit", 1, Some(9), 60, Cause::OutOfMemory),
            ("killed early", 137, None, 60, Cause::OutOfMemory),
            ("killed late, nothing known of its memory", 137, None, HOUR, Cause::OutOfMemory),
            ("killed late with memory to spare", 137, Some(1), HOUR, Cause::Timeout),
            ("killed late, near its limit", 137, Some(7), HOUR, Cause::OutOfMemory),
            ("killed between 80 and 90 percent of its time", 137, None, HOUR * 85 / 100, Cause::OutOfMemory),
            ("ended for its time", 152, None, 60, Cause::Timeout),
            ("asked to end when its time was up", 143, None, HOUR * 95 / 100, Cause::Timeout),
            ("asked to end early", 143, None, 60, Cause::ExitCode),
            ("failed by itself, late", 1, Some(1), HOUR * 95 / 100, Cause::ExitCode),
            ("failed by itself", 2, None, 1, Cause::ExitCode),
        ];
        for (why, code, peak, seconds, expected) in cases {
            assert_eq!(diagnose(&evidence(&needs, code, peak, seconds)), expected, "{why}");
        }
        let known = Evidence { cause: Some(Cause::NodeFailure), ..evidence(&needs, 137, Some(9), 60) };
        assert_eq!(diagnose(&known), Cause::NodeFailure, "what was found out at the time counts");
        let coded = Evidence { cause: Some(Cause::ExitCode), ..evidence(&needs, 152, None, 60) };
        assert_eq!(diagnose(&coded), Cause::Timeout);
    }

    #[test]
    fn no_moment_leaves_a_killed_job_without_a_cause_that_more_would_help() {
        let needs = needs(4, 8, 0, 1, 1);
        for percent in 0..=120 {
            for peak in [None, Some(1), Some(4), Some(7), Some(9)] {
                let killed = evidence(&needs, 137, peak, HOUR * percent / 100);
                let cause = diagnose(&killed);
                assert!(
                    matches!(cause, Cause::OutOfMemory | Cause::Timeout),
                    "{cause} at {percent} % with {peak:?} GiB"
                );
                assert!(escalate(&killed, Factors::default()).is_some());
            }
        }
    }

    // S20
    #[test]
    fn more_of_what_ran_out_for_this_job_alone() {
        let needs = needs(4, 8, 0, 1, 1);
        let next = |evidence: Evidence<'_>| escalate(&evidence, Factors::default());
        let memory = next(evidence(&needs, 137, None, 60)).unwrap();
        assert_eq!((memory.memory_bytes, memory.runtime_seconds, memory.num_cpus), (12 * GIB, HOUR, 4));
        assert_eq!(next(evidence(&needs, 1, Some(10), 60)).unwrap().memory_bytes, 15 * GIB, "of what it used");
        assert_eq!(next(evidence(&needs, 137, Some(2), 60)).unwrap().memory_bytes, 12 * GIB, "never less than it had");
        let time = next(evidence(&needs, 152, None, HOUR)).unwrap();
        assert_eq!((time.memory_bytes, time.runtime_seconds), (8 * GIB, HOUR * 3 / 2));
        let busy = Evidence { peak_cpu_percent: Some(730.0), ..evidence(&needs, 152, None, HOUR) };
        assert_eq!(next(busy).unwrap().num_cpus, 8);
        assert_eq!(next(evidence(&needs, 1, None, 60)), None, "nothing that could be given would help");
        let factors = Factors { memory_percent: 200, runtime_percent: 300 };
        assert_eq!(escalate(&evidence(&needs, 152, None, HOUR), factors).unwrap().runtime_seconds, 3 * HOUR);
        assert_eq!(escalate(&evidence(&needs, 137, None, 60), factors).unwrap().memory_bytes, 16 * GIB);
    }
}
