//! Why a step ended, as the accounting tells it.

use torc_api::slurm::SlurmState;
use torc_api::state::Cause;

/// Why a step failed, where its state says more than its exit code: out of memory whatever the code, out of time unless it
/// ended well all the same.
pub fn cause(state: SlurmState, return_code: i32) -> Option<Cause> {
    match state {
        SlurmState::OutOfMemory => Some(Cause::OutOfMemory),
        SlurmState::Timeout | SlurmState::Deadline if return_code != 0 => Some(Cause::Timeout),
        SlurmState::NodeFailure | SlurmState::BootFailure if return_code != 0 => Some(Cause::NodeFailure),
        SlurmState::Preempted if return_code != 0 => Some(Cause::Preempted),
        // Somebody ended it who is not its runner.
        SlurmState::Cancelled if return_code != 0 => Some(Cause::Lost),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
