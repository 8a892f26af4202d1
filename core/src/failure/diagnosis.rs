//! The cause of a failed attempt, from everything that is known of it.

use torc_api::resources::DEFAULT_REQUIREMENTS;
use torc_api::state::Cause;
use torc_api::wire::FinishedAttempt;

use super::exit_codes::{KILLED, LOST, TERMINATED, TIMED_OUT};
use crate::accounting::complete;
use crate::expanded::Requirements;
use crate::rows::ResultRow;

/// Facts about a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evidence<'a> {
    /// The requirements that the attempt ran with.
    pub needs: &'a Requirements,
    /// The cause that was reported when the attempt ended.
    pub cause: Option<Cause>,
    /// Exit code of the attempt.
    pub return_code: i32,
    /// Its highest memory use in bytes, measured by the runner or by Slurm.
    pub peak_memory_bytes: Option<i64>,
    /// Its highest CPU use, 100 for one core.
    pub peak_cpu_percent: Option<f64>,
    /// The time that it ran.
    pub run_seconds: i64,
}

impl<'a> Evidence<'a> {
    /// Returns the evidence of a stored result; a job that failed without one was lost.
    pub fn of_result(needs: &'a Requirements, row: Option<&ResultRow>) -> Self {
        Self {
            needs,
            cause: row.map_or(Some(Cause::Lost), |row| row.cause),
            return_code: row.map_or(LOST, |row| row.return_code),
            peak_memory_bytes: row.and_then(|row| row.usage.peak_memory_bytes),
            peak_cpu_percent: row.and_then(|row| row.usage.peak_cpu_percent),
            run_seconds: row.map_or(0, |row| (row.ended_ms - row.started_ms).max(0) / 1_000),
        }
    }

    /// Returns the evidence of a report that has just come in, with what Slurm's accounting adds to it.
    pub fn of_report(needs: &'a Requirements, finished: &FinishedAttempt) -> Self {
        let seen = finished.usage.unwrap_or_default();
        let run_ms = i64::try_from(finished.duration_ms).unwrap_or(i64::MAX);
        let usage = finished.slurm_stats.as_deref().map_or(seen, |stats| complete(seen, stats, run_ms));
        Self {
            needs,
            cause: finished.cause,
            return_code: finished.return_code,
            peak_memory_bytes: usage.peak_memory_bytes,
            peak_cpu_percent: usage.peak_cpu_percent,
            run_seconds: run_ms / 1_000,
        }
    }
}

/// Returns the cause of a failure. A cause that was found out when the attempt ended counts; otherwise memory above the limit, the
/// exit code and the run time decide.
pub fn diagnose(evidence: &Evidence<'_>) -> Cause {
    match evidence.cause {
        Some(Cause::ExitCode) | None => {}
        Some(cause) => return cause,
    }
    let limit = evidence.needs.memory_bytes;
    if evidence.return_code == 0 {
        return Cause::ExitCode;
    }
    // The requirements of a job that declares none are assumed, not limits.
    let is_declared = evidence.needs.name != DEFAULT_REQUIREMENTS;
    if is_declared && evidence.peak_memory_bytes.is_some_and(|peak| peak > limit) {
        return Cause::OutOfMemory;
    }
    let was_late = evidence.run_seconds.saturating_mul(10) > evidence.needs.runtime_seconds.saturating_mul(9);
    // A measured peak well below the limit speaks against memory.
    let had_room = evidence.peak_memory_bytes.is_some_and(|peak| peak < limit / 2);
    match evidence.return_code {
        TIMED_OUT => Cause::Timeout,
        KILLED if was_late && had_room => Cause::Timeout,
        KILLED => Cause::OutOfMemory,
        TERMINATED if was_late && is_declared => Cause::Timeout,
        _ => Cause::ExitCode,
    }
}

#[cfg(test)]
mod tests {
    use torc_api::slurm_stats::SlurmStats;
    use torc_api::wire::Usage;

    use super::super::{Escalated, Multipliers, escalate};
    use super::*;
    use crate::failure::tests::{GIB, needs};

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
    fn undeclared_requirements_are_not_limits() {
        let none = Requirements::default();
        for (code, expected) in [(1, Cause::ExitCode), (143, Cause::ExitCode), (137, Cause::OutOfMemory)] {
            assert_eq!(diagnose(&evidence(&none, code, Some(3), HOUR)), expected, "{code}");
        }
    }

    // S12
    #[test]
    fn a_report_counts_with_what_the_accounting_adds() {
        let needs = needs(4, 8, 0, 1, 1);
        let stats = SlurmStats { max_rss_bytes: Some(9 * GIB), ..SlurmStats::default() };
        let usage = Usage { peak_memory_bytes: Some(7 * GIB), peak_cpu_percent: Some(120.0), ..Usage::default() };
        let finished = FinishedAttempt {
            return_code: 137,
            cause: Some(Cause::OutOfMemory),
            duration_ms: 22_900,
            usage: Some(usage),
            slurm_stats: Some(Box::new(stats)),
            ..FinishedAttempt::default()
        };
        let known = Evidence::of_report(&needs, &finished);
        let expected = Evidence {
            cause: Some(Cause::OutOfMemory),
            peak_cpu_percent: Some(120.0),
            ..evidence(&needs, 137, Some(9), 22)
        };
        assert_eq!(known, expected);
        let alone = FinishedAttempt { slurm_stats: None, ..finished };
        assert_eq!(Evidence::of_report(&needs, &alone).peak_memory_bytes, Some(7 * GIB));
    }

    #[test]
    fn every_killed_job_has_a_cause_that_more_would_help() {
        let needs = needs(4, 8, 0, 1, 1);
        for percent in 0..=120 {
            for peak in [None, Some(1), Some(4), Some(7), Some(9)] {
                let killed = evidence(&needs, 137, peak, HOUR * percent / 100);
                let cause = diagnose(&killed);
                assert!(
                    matches!(cause, Cause::OutOfMemory | Cause::Timeout),
                    "{cause} at {percent} % with {peak:?} GiB"
                );
                assert!(matches!(escalate(&killed, Multipliers::default(), &[]), Escalated::To(_)));
            }
        }
    }
}
