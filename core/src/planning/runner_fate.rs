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
pub enum RunnerFate {
    /// It reports, or has time left to do so.
    Present,
    /// Its jobs are lost.
    Lost(Loss),
    /// It does not report, and its jobs may run.
    Unreachable(UnreachableReason),
}

/// The reason why a runner is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// All of its processes have ended.
    Ended,
    /// Its machine has booted since.
    Rebooted,
    /// The user has declared it lost.
    Assumed,
}

impl Loss {
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
pub fn runner_fate(facts: &RunnerFacts<'_>) -> RunnerFate {
    let reports = facts.contact == RunnerContact::Heard || facts.contact == RunnerContact::NotYet && !facts.is_unserved;
    let living = facts.evidence.and_then(living);
    if let Some(reason) = living {
        return if reports { RunnerFate::Present } else { RunnerFate::Unreachable(reason) };
    }
    if !facts.is_in_slurm
        && let Some(loss) = facts.evidence.and_then(proven_loss)
    {
        let has_results = facts.evidence.is_some_and(|evidence| evidence.left_results > 0);
        return match has_results && !facts.is_assumed_lost {
            true => RunnerFate::Unreachable(UnreachableReason::ResultsLeft),
            false => RunnerFate::Lost(loss),
        };
    }
    if facts.contact == RunnerContact::Heard {
        return RunnerFate::Present;
    }
    if facts.is_assumed_lost {
        return RunnerFate::Lost(Loss::Assumed);
    }
    match (reports, facts.is_in_slurm) {
        (true, _) => RunnerFate::Present,
        (false, true) => RunnerFate::Unreachable(UnreachableReason::AllocationRuns),
        (false, false) => RunnerFate::Unreachable(UnreachableReason::NotVerified),
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
fn proven_loss(evidence: &RunnerEvidence) -> Option<Loss> {
    let have_ended = evidence.agent == ProcessState::Ended && evidence.shim == ProcessState::Ended;
    match evidence.machine {
        MachineMatch::Same => have_ended.then_some(Loss::Ended),
        MachineMatch::Rebooted => Some(Loss::Rebooted),
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
            (Same, Ended, Ended, RunnerFate::Lost(Loss::Ended)),
            (Same, Running, Ended, RunnerFate::Unreachable(AgentRuns)),
            (Same, Ended, Running, RunnerFate::Unreachable(ShimRuns)),
            (Same, Running, Running, RunnerFate::Unreachable(AgentRuns)),
            (Same, Ended, Unknown, RunnerFate::Unreachable(NotVerified)),
            (Same, Unknown, Ended, RunnerFate::Unreachable(NotVerified)),
            (Rebooted, Unknown, Unknown, RunnerFate::Lost(Loss::Rebooted)),
            (Other, Ended, Ended, RunnerFate::Unreachable(NotVerified)),
            // A PID of another machine says nothing, whatever it does here.
            (Other, Running, Running, RunnerFate::Unreachable(NotVerified)),
        ] {
            let evidence = evidence(machine, agent, shim);
            assert_eq!(runner_fate(&facts(RunnerContact::Silent, Some(&evidence))), expected, "{evidence:?}");
        }
    }

    // R03
    #[test]
    fn silence_alone_proves_nothing() {
        for (contact, is_unserved, expected) in [
            (RunnerContact::Heard, false, RunnerFate::Present),
            (RunnerContact::NotYet, false, RunnerFate::Present),
            (RunnerContact::NotYet, true, RunnerFate::Unreachable(NotVerified)),
            (RunnerContact::Silent, false, RunnerFate::Unreachable(NotVerified)),
        ] {
            let known = RunnerFacts { is_unserved, ..facts(contact, None) };
            assert_eq!(runner_fate(&known), expected, "{contact:?} {is_unserved}");
        }
        // The end of the processes counts before the lease has run out.
        let ended = evidence(Same, Ended, Ended);
        assert_eq!(runner_fate(&facts(RunnerContact::Heard, Some(&ended))), RunnerFate::Lost(Loss::Ended));
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
            assert_eq!(runner_fate(&known), RunnerFate::Lost(Loss::Assumed), "{known:?}");
        }
        assert_eq!(runner_fate(&assumed(RunnerContact::Heard, None)), RunnerFate::Present);
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
                    assert_eq!(runner_fate(&known), RunnerFate::Unreachable(reason), "{known:?}");
                    let heard = RunnerFacts { contact: RunnerContact::Heard, ..known };
                    assert_eq!(runner_fate(&heard), RunnerFate::Present, "{heard:?}");
                }
            }
        }
    }

    // J16
    #[test]
    fn results_that_wait_are_given_up_only_when_the_user_says_so() {
        let waiting = RunnerEvidence { left_results: 1, ..evidence(Same, Ended, Ended) };
        let known = facts(RunnerContact::Silent, Some(&waiting));
        assert_eq!(runner_fate(&known), RunnerFate::Unreachable(ResultsLeft));
        assert_eq!(runner_fate(&RunnerFacts { is_assumed_lost: true, ..known }), RunnerFate::Lost(Loss::Ended));
    }

    /// Steps of its jobs may run on other nodes of the allocation.
    #[test]
    fn in_slurm_only_the_end_of_the_allocation_counts() {
        let ended = evidence(Same, Ended, Ended);
        let known = RunnerFacts { is_in_slurm: true, ..facts(RunnerContact::Silent, Some(&ended)) };
        assert_eq!(runner_fate(&known), RunnerFate::Unreachable(AllocationRuns));
        let unserved = RunnerFacts { is_unserved: true, contact: RunnerContact::NotYet, ..known };
        assert_eq!(runner_fate(&unserved), RunnerFate::Unreachable(AllocationRuns));
        assert_eq!(runner_fate(&RunnerFacts { contact: RunnerContact::Heard, ..known }), RunnerFate::Present);
    }
}
