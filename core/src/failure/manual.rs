//! Recovery on request: each failed job is decided about by itself and by its cause.

use torc_api::state::Cause;

use super::diagnosis::{Evidence, diagnose};
use super::escalation::{Escalated, LimitReached, Multipliers, NodeShape, escalate};
use crate::expanded::Requirements;

/// Options of a recovery on request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryOptions {
    /// Factors for the memory or time that a job ran out of.
    pub multipliers: Multipliers,
    /// Jobs that failed by themselves are retried too.
    pub retry_unknown: bool,
}

/// The decision about a failed job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ManualDecision {
    /// It is retried as it is.
    Retry,
    /// It is retried and has these requirements from now on.
    RetryWith(Requirements),
    /// It stays failed: a retry would not help.
    Leave(Option<LimitReached>),
}

/// Decides about a failed job when a user asks for recovery.
pub fn decide(evidence: &Evidence<'_>, options: RecoveryOptions, nodes: &[NodeShape]) -> ManualDecision {
    match diagnose(evidence) {
        Cause::OutOfMemory | Cause::Timeout => match escalate(evidence, options.multipliers, nodes) {
            Escalated::To(requirements) => ManualDecision::RetryWith(requirements),
            Escalated::Not(limit) => ManualDecision::Leave(Some(limit)),
            Escalated::Unneeded => ManualDecision::Retry,
        },
        Cause::Lost | Cause::NodeFailure | Cause::Preempted | Cause::Stopped | Cause::Canceled => ManualDecision::Retry,
        Cause::ExitCode | Cause::StartFailed | Cause::MissingOutput if options.retry_unknown => ManualDecision::Retry,
        Cause::ExitCode | Cause::StartFailed | Cause::MissingOutput => ManualDecision::Leave(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::tests::{GIB, needs};

    // S20
    #[test]
    fn each_cause_has_its_own_remedy() {
        let needs = needs(4, 8, 0, 1, 2);
        let more_memory = Requirements { memory_bytes: 12 * GIB, ..needs.clone() };
        let more_time = Requirements { runtime_seconds: 3 * 3_600, ..needs.clone() };
        let cases = [
            (Some(Cause::ExitCode), 137, ManualDecision::RetryWith(more_memory.clone())),
            (Some(Cause::OutOfMemory), 1, ManualDecision::RetryWith(more_memory)),
            (Some(Cause::ExitCode), 152, ManualDecision::RetryWith(more_time.clone())),
            (Some(Cause::Timeout), 143, ManualDecision::RetryWith(more_time)),
            (Some(Cause::Lost), -128, ManualDecision::Retry),
            (Some(Cause::Preempted), -128, ManualDecision::Retry),
            (Some(Cause::NodeFailure), -128, ManualDecision::Retry),
            (Some(Cause::ExitCode), 1, ManualDecision::Leave(None)),
            (Some(Cause::StartFailed), 127, ManualDecision::Leave(None)),
        ];
        for (cause, return_code, expected) in cases {
            let evidence = Evidence {
                needs: &needs,
                cause,
                return_code,
                peak_memory_bytes: None,
                peak_cpu_percent: None,
                run_seconds: 60,
            };
            let decision = decide(&evidence, RecoveryOptions::default(), &[]);
            assert_eq!(decision, expected, "{cause:?} {return_code}");
            let options = RecoveryOptions { retry_unknown: true, ..RecoveryOptions::default() };
            let asked = decide(&evidence, options, &[]);
            let is_left = expected == ManualDecision::Leave(None);
            assert_eq!(asked, if is_left { ManualDecision::Retry } else { expected }, "{return_code}");
        }
    }
}
