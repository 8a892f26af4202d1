//! What a person's request to recover does about failed jobs: each is judged by itself and by its cause.

use torc_api::state::Cause;

use super::diagnosis::{Evidence, Factors, diagnose, escalate};
use crate::expanded::Requirements;

/// What a person asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// How much more memory or time.
    pub factors: Factors,
    /// Jobs that failed by themselves are tried again too.
    pub retry_unknown: bool,
}

/// What is done about a failed job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It is tried again as it is.
    Retry,
    /// It is tried again, and has these requirements from now on.
    RetryWith(Requirements),
    /// It stays failed: trying it again would not help.
    Leave,
}

/// Why a job failed, and what is done about it.
pub fn decide(evidence: &Evidence<'_>, options: Options) -> (Cause, Decision) {
    let cause = diagnose(evidence);
    let decision = match cause {
        Cause::OutOfMemory | Cause::Timeout => {
            escalate(evidence, options.factors).map_or(Decision::Retry, Decision::RetryWith)
        }
        Cause::Lost | Cause::NodeFailure | Cause::Preempted | Cause::Stopped | Cause::Canceled => Decision::Retry,
        Cause::ExitCode | Cause::StartFailed | Cause::MissingOutput if options.retry_unknown => Decision::Retry,
        Cause::ExitCode | Cause::StartFailed | Cause::MissingOutput => Decision::Leave,
    };
    (cause, decision)
}

#[cfg(test)]
mod tests {
    use super::super::partition::tests::{GIB, needs};
    use super::*;

    // S20
    #[test]
    fn each_cause_has_its_own_remedy() {
        let needs = needs(4, 8, 0, 1, 2);
        let more_memory = Requirements { memory_bytes: 12 * GIB, ..needs.clone() };
        let more_time = Requirements { runtime_seconds: 3 * 3_600, ..needs.clone() };
        let cases = [
            (Some(Cause::ExitCode), 137, Decision::RetryWith(more_memory.clone())),
            (Some(Cause::OutOfMemory), 1, Decision::RetryWith(more_memory)),
            (Some(Cause::ExitCode), 152, Decision::RetryWith(more_time.clone())),
            (Some(Cause::Timeout), 143, Decision::RetryWith(more_time)),
            (Some(Cause::Lost), -128, Decision::Retry),
            (Some(Cause::Preempted), -128, Decision::Retry),
            (Some(Cause::NodeFailure), -128, Decision::Retry),
            (Some(Cause::ExitCode), 1, Decision::Leave),
            (Some(Cause::StartFailed), 127, Decision::Leave),
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
            let (_, decision) = decide(&evidence, Options::default());
            assert_eq!(decision, expected, "{cause:?} {return_code}");
            let (_, asked) = decide(&evidence, Options { retry_unknown: true, ..Options::default() });
            assert_eq!(asked, if expected == Decision::Leave { Decision::Retry } else { expected }, "{return_code}");
        }
    }
}
