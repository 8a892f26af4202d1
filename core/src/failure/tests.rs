//! One table for everything that gives a job more: the recovery policy, a recovery on request, and a correction.

use torc_api::failure::{Escalation, Recovery, RecoveryPolicy};
use torc_api::state::Cause;

use super::correction::CORRECTION_PERCENT;
use super::*;
use crate::expanded::Requirements;

pub const GIB: i64 = 1 << 30;
const MIB: i64 = 1 << 20;

/// Requirements that a document declares.
pub fn needs(cpus: i64, gib: i64, gpus: i64, nodes: i64, hours: i64) -> Requirements {
    Requirements {
        name: "r".to_owned(),
        num_cpus: cpus,
        memory_bytes: gib * GIB,
        num_gpus: gpus,
        num_nodes: nodes,
        runtime_seconds: hours * 3_600,
    }
}

/// An attempt that ran out of something: its requirements, what was observed, what there is, and what the next one gets.
struct Case {
    cause: Cause,
    /// The declared requirement, in MiB or seconds.
    declared: i64,
    /// The measured use, in MiB or seconds.
    observed: i64,
    /// The largest node or walltime, in MiB or seconds.
    largest: Option<i64>,
    /// MiB or seconds at 120 %; none where the limit is reached.
    next: Option<i64>,
}

const fn case(cause: Cause, declared: i64, observed: i64, largest: Option<i64>, next: Option<i64>) -> Case {
    Case { cause, declared, observed, largest, next }
}

const CASES: [Case; 12] = [
    case(Cause::OutOfMemory, 100, 400, None, Some(480)),
    case(Cause::OutOfMemory, 100, 50, None, Some(120)),
    case(Cause::OutOfMemory, 100, 400, Some(1_000), Some(480)),
    case(Cause::OutOfMemory, 100, 400, Some(450), Some(450)),
    case(Cause::OutOfMemory, 100, 400, Some(300), Some(300)),
    case(Cause::OutOfMemory, 100, 400, Some(100), None),
    case(Cause::Timeout, 60, 432, None, Some(520)),
    case(Cause::Timeout, 5, 22, None, Some(27)),
    case(Cause::Timeout, 60, 30, None, Some(72)),
    case(Cause::Timeout, 60, 432, Some(480), Some(480)),
    case(Cause::Timeout, 60, 432, Some(432), None),
    case(Cause::Timeout, 60, 30, Some(60), None),
];

impl Case {
    fn is_memory(&self) -> bool {
        self.cause == Cause::OutOfMemory
    }

    fn needs(&self) -> Requirements {
        let name = "r".to_owned();
        match self.is_memory() {
            true => Requirements { name, memory_bytes: self.declared * MIB, ..Requirements::default() },
            false => Requirements { name, runtime_seconds: self.declared, ..Requirements::default() },
        }
    }

    fn nodes(&self) -> Vec<NodeShape> {
        let node = |amount: i64| match self.is_memory() {
            true => NodeShape { memory_bytes: amount * MIB, ..NodeShape::UNLIMITED },
            false => NodeShape { seconds: amount, ..NodeShape::UNLIMITED },
        };
        self.largest.map(node).into_iter().collect()
    }

    fn evidence<'a>(&self, needs: &'a Requirements) -> Evidence<'a> {
        Evidence {
            needs,
            cause: Some(self.cause),
            return_code: 1,
            peak_memory_bytes: self.is_memory().then_some(self.observed * MIB),
            peak_cpu_percent: None,
            run_seconds: if self.is_memory() { 1 } else { self.observed },
        }
    }

    fn given(&self, next: &Requirements) -> i64 {
        if self.is_memory() { next.memory_bytes / MIB } else { next.runtime_seconds }
    }

    fn automatic(&self) -> Option<i64> {
        let more = Some(Escalation { limit: None, increase_percent: i32::try_from(CORRECTION_PERCENT).ok() });
        let recovery = Recovery {
            policy: Some(RecoveryPolicy::Auto),
            out_of_memory: more.clone(),
            timeout: more,
            ..Recovery::default()
        };
        let (needs, nodes) = (self.needs(), self.nodes());
        let failure = AttemptFailure { cause: self.cause, evidence: self.evidence(&needs), count: 1, nodes: &nodes };
        match policy::decide(&failure, Policy { recovery: Some(&recovery), ..Policy::default() }) {
            FailureDecision::RetryWith(next) => Some(self.given(&next)),
            FailureDecision::Fail(Some(_)) => None,
            other => panic!("{other:?}"),
        }
    }

    fn on_request(&self) -> Option<i64> {
        let percent = CORRECTION_PERCENT;
        let multipliers = Multipliers { memory_percent: percent, runtime_percent: percent };
        let options = RecoveryOptions { multipliers, retry_unknown: false };
        let needs = self.needs();
        match manual::decide(&self.evidence(&needs), options, &self.nodes()) {
            ManualDecision::RetryWith(next) => Some(self.given(&next)),
            ManualDecision::Leave(Some(_)) => None,
            other => panic!("{other:?}"),
        }
    }

    fn corrected(&self) -> Option<i64> {
        let needs = self.needs();
        let evidence = self.evidence(&needs);
        let observed = ObservedJob {
            succeeded: false,
            peak_memory_bytes: evidence.peak_memory_bytes,
            peak_cpu_percent: None,
            run_seconds: Some(evidence.run_seconds),
        };
        correct(&needs, &[observed], true, &self.nodes()).map(|next| self.given(&next))
    }
}

// S20
#[test]
fn everything_that_gives_a_job_more_agrees() {
    for case in &CASES {
        let Case { cause, declared, observed, largest, next } = case;
        let which = format!("{cause}: declared {declared}, observed {observed}, largest {largest:?}");
        assert_eq!(case.automatic(), *next, "policy Auto, {which}");
        assert_eq!(case.on_request(), *next, "on request, {which}");
        // A correction goes by what was observed alone: asked for twice, it must not grow twice. It retries nothing, so where the
        // limit is reached it asks for all there is.
        let all = largest.filter(|largest| largest > declared);
        let expected = next.or(all).filter(|_| observed > declared);
        assert_eq!(case.corrected(), expected, "corrected, {which}");
    }
}
