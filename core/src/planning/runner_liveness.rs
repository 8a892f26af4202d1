//! Decides whether a runner that holds jobs is there, is lost, or cannot be judged.
//!
//! A runner is lost only if all of its processes are known to have ended, or if the user says so and nothing speaks against it.
//! The process that holds the jobs, the shim, outlives the one that registered: while it may live, its jobs are not lost, because
//! a second attempt would run beside the first.

use torc_api::allocation::UnreachableReason;
use torc_api::recovery::{MachineMatch, ProcessState, RunnerEvidence};

/// The last report of a runner, as seen by the process that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunnerContact {
    /// It reported within its lease.
    Heard,
    /// It has been silent for longer than its lease.
    Silent,
    /// The store was opened a moment ago, and the runner has not reported since.
    NotYet,
}

/// Everything that is known of a runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunnerFacts<'a> {
    /// Contact with the store, judged by the runner's lease.
    pub contact: RunnerContact,
    /// No process served the store: the runner could not report.
    pub is_unserved: bool,
    /// It lives in a Slurm allocation. Steps of its jobs run on other machines, so only the end of the allocation counts.
    pub is_in_slurm: bool,
    /// The user declares it lost.
    pub is_assumed_lost: bool,
    /// The state of its processes as seen from the caller's machine.
    pub evidence: Option<&'a RunnerEvidence>,
}

/// The decision about a runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunnerLiveness {
    /// It reports, or has time left to do so.
    Present,
    /// Its jobs are lost.
    Lost(LossReason),
    /// It does not report, and its jobs may run.
    Unreachable(UnreachableReason),
}

/// The reason why a runner is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossReason {
    /// All of its processes have ended.
    Ended,
    /// Its machine has booted since.
    Rebooted,
    /// The user has declared it lost.
    Assumed,
}

impl LossReason {
    /// Returns the message of the results of its jobs.
    pub const fn message(self) -> &'static str {
        match self {
            Self::Ended => "its runner's processes have ended",
            Self::Rebooted => "its runner's machine has rebooted",
            Self::Assumed => "its runner was declared lost",
        }
    }
}

/// Decides about a runner.
pub fn runner_liveness(facts: &RunnerFacts<'_>) -> RunnerLiveness {
    let reports = facts.contact == RunnerContact::Heard || facts.contact == RunnerContact::NotYet && !facts.is_unserved;
    let living = facts.evidence.and_then(living);
    if let Some(reason) = living {
        return if reports { RunnerLiveness::Present } else { RunnerLiveness::Unreachable(reason) };
    }
    if !facts.is_in_slurm
        && let Some(loss) = facts.evidence.and_then(proven_loss)
    {
        let has_results = facts.evidence.is_some_and(|evidence| evidence.left_results > 0);
        return match has_results && !facts.is_assumed_lost {
            true => RunnerLiveness::Unreachable(UnreachableReason::ResultsLeft),
            false => RunnerLiveness::Lost(loss),
        };
    }
    if facts.contact == RunnerContact::Heard {
        return RunnerLiveness::Present;
    }
    if facts.is_assumed_lost {
        return RunnerLiveness::Lost(LossReason::Assumed);
    }
    match (reports, facts.is_in_slurm) {
        (true, _) => RunnerLiveness::Present,
        (false, true) => RunnerLiveness::Unreachable(UnreachableReason::AllocationRuns),
        (false, false) => RunnerLiveness::Unreachable(UnreachableReason::NotVerified),
    }
}

/// Returns the kind of process that still runs: the agent, the shim or a job. None if the caller's machine sees none.
fn living(evidence: &RunnerEvidence) -> Option<UnreachableReason> {
    if evidence.machine != MachineMatch::Same {
        return None;
    }
    if evidence.agent == ProcessState::Running {
        Some(UnreachableReason::AgentRuns)
    } else if evidence.shim == ProcessState::Running {
        Some(UnreachableReason::ShimRuns)
    } else if evidence.left_processes > 0 {
        Some(UnreachableReason::JobsRun)
    } else {
        None
    }
}

/// Returns the loss that the state of the processes proves, if any.
fn proven_loss(evidence: &RunnerEvidence) -> Option<LossReason> {
    let have_ended = evidence.agent == ProcessState::Ended && evidence.shim == ProcessState::Ended;
    match evidence.machine {
        MachineMatch::Same => have_ended.then_some(LossReason::Ended),
        MachineMatch::Rebooted => Some(LossReason::Rebooted),
        MachineMatch::Other => None,
    }
}

#[cfg(test)]
mod tests {
    use MachineMatch::{Other, Rebooted, Same};
    use ProcessState::{Ended, Running, Unknown};
    use UnreachableReason::{AgentRuns, AllocationRuns, JobsRun, NotVerified, ResultsLeft, ShimRuns};

    use super::*;

    fn evidence(machine: MachineMatch, agent: ProcessState, shim: ProcessState) -> RunnerEvidence {
        RunnerEvidence { runner: 1, machine, agent, shim, left_processes: 0, left_results: 0 }
    }

    fn facts(contact: RunnerContact, evidence: Option<&RunnerEvidence>) -> RunnerFacts<'_> {
        RunnerFacts { contact, is_unserved: false, is_in_slurm: false, is_assumed_lost: false, evidence }
    }

    // R03
    #[test]
    fn a_runner_is_lost_when_all_its_processes_have_ended() {
        for (machine, agent, shim, expected) in [
            (Same, Ended, Ended, RunnerLiveness::Lost(LossReason::Ended)),
            (Same, Running, Ended, RunnerLiveness::Unreachable(AgentRuns)),
            (Same, Ended, Running, RunnerLiveness::Unreachable(ShimRuns)),
            (Same, Running, Running, RunnerLiveness::Unreachable(AgentRuns)),
            (Same, Ended, Unknown, RunnerLiveness::Unreachable(NotVerified)),
            (Same, Unknown, Ended, RunnerLiveness::Unreachable(NotVerified)),
            (Rebooted, Unknown, Unknown, RunnerLiveness::Lost(LossReason::Rebooted)),
            (Other, Ended, Ended, RunnerLiveness::Unreachable(NotVerified)),
            // A PID of another machine says nothing, whatever it does here.
            (Other, Running, Running, RunnerLiveness::Unreachable(NotVerified)),
        ] {
            let evidence = evidence(machine, agent, shim);
            assert_eq!(runner_liveness(&facts(RunnerContact::Silent, Some(&evidence))), expected, "{evidence:?}");
        }
    }

    // R03
    #[test]
    fn silence_alone_proves_nothing() {
        for (contact, is_unserved, expected) in [
            (RunnerContact::Heard, false, RunnerLiveness::Present),
            (RunnerContact::NotYet, false, RunnerLiveness::Present),
            (RunnerContact::NotYet, true, RunnerLiveness::Unreachable(NotVerified)),
            (RunnerContact::Silent, false, RunnerLiveness::Unreachable(NotVerified)),
        ] {
            let known = RunnerFacts { is_unserved, ..facts(contact, None) };
            assert_eq!(runner_liveness(&known), expected, "{contact:?} {is_unserved}");
        }
        // The end of the processes counts before the lease has run out.
        let ended = evidence(Same, Ended, Ended);
        assert_eq!(
            runner_liveness(&facts(RunnerContact::Heard, Some(&ended))),
            RunnerLiveness::Lost(LossReason::Ended)
        );
    }

    #[test]
    fn the_user_may_declare_lost_what_does_not_report() {
        let assumed = |contact, evidence| RunnerFacts { is_assumed_lost: true, ..facts(contact, evidence) };
        let elsewhere = evidence(Other, Unknown, Unknown);
        for known in [
            assumed(RunnerContact::Silent, None),
            assumed(RunnerContact::NotYet, None),
            assumed(RunnerContact::Silent, Some(&elsewhere)),
            RunnerFacts { is_in_slurm: true, ..assumed(RunnerContact::Silent, None) },
        ] {
            assert_eq!(runner_liveness(&known), RunnerLiveness::Lost(LossReason::Assumed), "{known:?}");
        }
        assert_eq!(runner_liveness(&assumed(RunnerContact::Heard, None)), RunnerLiveness::Present);
    }

    /// Two attempts of a job never run at once, whatever the user says.
    #[test]
    fn what_still_runs_is_never_lost() {
        let left = |machine| RunnerEvidence { left_processes: 1, ..evidence(machine, Ended, Ended) };
        for (known, reason) in [
            (evidence(Same, Ended, Running), ShimRuns),
            (evidence(Same, Running, Ended), AgentRuns),
            (left(Same), JobsRun),
        ] {
            for is_assumed_lost in [false, true] {
                for is_in_slurm in [false, true] {
                    let known =
                        RunnerFacts { is_assumed_lost, is_in_slurm, ..facts(RunnerContact::Silent, Some(&known)) };
                    assert_eq!(runner_liveness(&known), RunnerLiveness::Unreachable(reason), "{known:?}");
                    let heard = RunnerFacts { contact: RunnerContact::Heard, ..known };
                    assert_eq!(runner_liveness(&heard), RunnerLiveness::Present, "{heard:?}");
                }
            }
        }
    }

    // J16
    #[test]
    fn results_that_wait_are_given_up_only_when_the_user_says_so() {
        let waiting = RunnerEvidence { left_results: 1, ..evidence(Same, Ended, Ended) };
        let known = facts(RunnerContact::Silent, Some(&waiting));
        assert_eq!(runner_liveness(&known), RunnerLiveness::Unreachable(ResultsLeft));
        assert_eq!(
            runner_liveness(&RunnerFacts { is_assumed_lost: true, ..known }),
            RunnerLiveness::Lost(LossReason::Ended)
        );
    }

    /// Steps of its jobs may run on other nodes of the allocation.
    #[test]
    fn in_slurm_only_the_end_of_the_allocation_counts() {
        let ended = evidence(Same, Ended, Ended);
        let known = RunnerFacts { is_in_slurm: true, ..facts(RunnerContact::Silent, Some(&ended)) };
        assert_eq!(runner_liveness(&known), RunnerLiveness::Unreachable(AllocationRuns));
        let unserved = RunnerFacts { is_unserved: true, contact: RunnerContact::NotYet, ..known };
        assert_eq!(runner_liveness(&unserved), RunnerLiveness::Unreachable(AllocationRuns));
        assert_eq!(runner_liveness(&RunnerFacts { contact: RunnerContact::Heard, ..known }), RunnerLiveness::Present);
    }
}
