//! Causes of failed steps, from the accounting.

use torc_api::slurm::SlurmState;
use torc_api::state::Cause;

use crate::error::{ProgramEnd, SlurmError, error_of};
use crate::sacct::StepAccount;

const SIGINT: i32 = 2;
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

/// Returns the cause of a failed step where its state says more than its exit code: out of memory with any code, and timeout
/// unless the exit code is 0.
pub fn cause(state: SlurmState, return_code: i32) -> Option<Cause> {
    match state {
        SlurmState::OutOfMemory => Some(Cause::OutOfMemory),
        SlurmState::Timeout | SlurmState::Deadline if return_code != 0 => Some(Cause::Timeout),
        SlurmState::NodeFailure | SlurmState::BootFailure if return_code != 0 => Some(Cause::NodeFailure),
        SlurmState::Preempted if return_code != 0 => Some(Cause::Preempted),
        // Canceled by another process than its runner.
        SlurmState::Cancelled if return_code != 0 => Some(Cause::Lost),
        _ => None,
    }
}

/// Returns whether Slurm created the step but never started it, so its end is not the job's and nothing was measured.
///
/// This happens when slurmd of its node has died; `srun` then exits with 233.
pub fn was_never_started(account: &StepAccount, return_code: i32) -> bool {
    let is_signal = [SIGTERM, SIGKILL, SIGINT].map(|signal| 128 + signal).contains(&return_code);
    account.state == SlurmState::Cancelled && !account.has_numbers() && return_code != 0 && !is_signal
}

/// Returns the error of `srun` if it could not request a step because Slurm's controller did not answer. Other errors, about a
/// step that cannot be allocated, count as the job's own.
pub fn was_never_requested(stderr: &str) -> Option<String> {
    let errors = stderr.lines().filter(|line| line.starts_with("srun: error: Unable to "));
    errors.rev().find_map(|line| match error_of("srun", ProgramEnd::Code(1), "", line, false) {
        Some(SlurmError::NoAnswer { reason, .. }) => Some(reason),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // S20
    #[test]
    fn the_state_tells_the_cause() {
        let cases = [
            (SlurmState::OutOfMemory, 137, Some(Cause::OutOfMemory)),
            (SlurmState::OutOfMemory, 1, Some(Cause::OutOfMemory)),
            (SlurmState::OutOfMemory, 0, Some(Cause::OutOfMemory)),
            (SlurmState::Timeout, 143, Some(Cause::Timeout)),
            (SlurmState::Timeout, 0, None),
            (SlurmState::NodeFailure, 143, Some(Cause::NodeFailure)),
            (SlurmState::Preempted, 143, Some(Cause::Preempted)),
            (SlurmState::Failed, 3, None),
            (SlurmState::Cancelled, 143, Some(Cause::Lost)),
            (SlurmState::Cancelled, 0, None),
            (SlurmState::Completed, 0, None),
            (SlurmState::Unknown, 1, None),
        ];
        for (state, code, expected) in cases {
            assert_eq!(cause(state, code), expected, "{state} {code}");
        }
    }

    // S20, R01
    #[test]
    fn every_state_with_and_without_an_exit_code() {
        let failed = |state: SlurmState| match state {
            SlurmState::OutOfMemory => Some(Cause::OutOfMemory),
            SlurmState::Timeout | SlurmState::Deadline => Some(Cause::Timeout),
            SlurmState::NodeFailure | SlurmState::BootFailure => Some(Cause::NodeFailure),
            SlurmState::Preempted => Some(Cause::Preempted),
            SlurmState::Cancelled => Some(Cause::Lost),
            SlurmState::Pending
            | SlurmState::Running
            | SlurmState::Suspended
            | SlurmState::ComingBack
            | SlurmState::Completed
            | SlurmState::Failed
            | SlurmState::Unknown => None,
        };
        for state in SlurmState::ALL.iter().copied() {
            for code in [-1, 1, 137, 152] {
                assert_eq!(cause(state, code), failed(state), "{state} {code}");
            }
            let ended_well = (state == SlurmState::OutOfMemory).then_some(Cause::OutOfMemory);
            assert_eq!(cause(state, 0), ended_well, "{state} 0");
        }
    }

    #[test]
    fn a_step_without_numbers_and_without_a_signal_never_began() {
        let account = |state: SlurmState, max_rss_bytes| StepAccount {
            name: "wf1_j1_r1_a1".to_owned(),
            max_rss_bytes,
            max_vm_size_bytes: None,
            max_disk_read_bytes: None,
            max_disk_write_bytes: None,
            ave_cpu_seconds: None,
            node_list: None,
            state_text: state.to_string(),
            state,
        };
        let canceled = account(SlurmState::Cancelled, None);
        // A dead slurmd, seen on Slurm 22.05: `srun` exits with 233, the accounting has CANCELLED, 0:105 and no measurements.
        assert!(was_never_started(&canceled, 233));
        for code in [0, 130, 137, 143] {
            assert!(!was_never_started(&canceled, code), "{code}");
        }
        assert!(!was_never_started(&account(SlurmState::Cancelled, Some(1)), 233), "it had memory");
        let busy = StepAccount { ave_cpu_seconds: Some(0.0), ..canceled.clone() };
        assert!(!was_never_started(&busy, 233), "it had CPU time");
        for code in [1, 129, 131, 136, 138, 142, 144] {
            assert!(was_never_started(&canceled, code), "{code}");
        }
        assert!(!was_never_started(&account(SlurmState::Failed, None), 233), "a job may end with 233, too");
    }

    // Printed by Slurm 22.05 without its controller, and with it.
    #[test]
    fn only_an_unreachable_controller_excuses_a_missing_step() {
        let away = "srun: error: Unable to confirm allocation for job 15: Unable to contact slurm controller (connect failure)\n\
                    srun: Check SLURM_JOB_ID environment variable. Expired or invalid job 15\n";
        let reason = "Unable to confirm allocation for job 15: Unable to contact slurm controller (connect failure)";
        assert_eq!(was_never_requested(away).as_deref(), Some(reason));
        let twice = "srun: error: Unable to a: Connection refused\nsrun: error: Unable to b: Connection refused\nsrun: error: Unable to c\n";
        assert_eq!(
            was_never_requested(twice).as_deref(),
            Some("Unable to b: Connection refused"),
            "the last one that says so"
        );
        for own in [
            "",
            "Traceback (most recent call last): connection refused\n",
            "srun: error: Unable to create step for job 15: Memory required by task is not available\n",
            "srun: error: n1: task 0: Exited with exit code 1\n",
        ] {
            assert_eq!(was_never_requested(own), None, "{own}");
        }
    }
}
