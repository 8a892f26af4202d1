//! States of Slurm jobs and their meaning for allocations.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::state::Cause;

/// The state of an allocation in Slurm. Slurm has about thirty states; these are the ones that matter.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
    strum::Display,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[strum(const_into_str)]
pub enum SlurmState {
    /// It waits for nodes in Slurm's queue.
    Pending,
    /// Has nodes, or is about to give them back.
    Running,
    /// Has nodes but gets no time on them.
    Suspended,
    /// Was running, and waits to run again under the same number.
    ComingBack,
    /// Ended by a preemption.
    Preempted,
    /// Ended because a node failed.
    NodeFailure,
    /// Never started because a node could not be made ready.
    BootFailure,
    /// Ended because of its memory.
    OutOfMemory,
    /// Ended because it could not be over by its deadline.
    Deadline,
    /// Ended because its time was up.
    Timeout,
    /// Ended with `scancel` by a user or an administrator.
    Cancelled,
    /// Ended by itself with success.
    Completed,
    /// Ended by itself with a failure.
    Failed,
    /// A state that this version does not know. It changes nothing.
    Unknown,
}

impl SlurmState {
    /// All states, in the order of declaration.
    pub const ALL: &[Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns its name in documents, tables and logs.
    pub const fn as_str(self) -> &'static str {
        self.into_str()
    }

    /// Returns whether it will never run again. An unknown state is not final.
    pub const fn is_over(self) -> bool {
        !self.has_nodes() && !matches!(self, Self::Pending | Self::ComingBack | Self::Unknown)
    }

    /// Returns whether jobs in it may be alive.
    pub const fn has_nodes(self) -> bool {
        matches!(self, Self::Running | Self::Suspended)
    }

    /// Returns the cause for the jobs of an allocation that has ended or was requeued; none while they may be alive.
    pub const fn cause_of_its_jobs(self) -> Option<Cause> {
        match self {
            Self::Pending | Self::Running | Self::Suspended | Self::Unknown => None,
            // Slurm requeues for preemption and for dead nodes, and does not say which.
            Self::ComingBack | Self::Preempted => Some(Cause::Preempted),
            Self::NodeFailure | Self::BootFailure => Some(Cause::NodeFailure),
            Self::Deadline | Self::Timeout => Some(Cause::Timeout),
            // Slurm does not report which job exceeded the memory.
            Self::OutOfMemory | Self::Cancelled | Self::Completed | Self::Failed => Some(Cause::Lost),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_state_is_over_or_may_have_jobs_or_is_yet_to_come() {
        for state in SlurmState::ALL.iter().copied() {
            let kinds = [
                state.is_over(),
                state.has_nodes(),
                matches!(state, SlurmState::Pending | SlurmState::ComingBack),
                state == SlurmState::Unknown,
            ];
            assert_eq!(kinds.iter().filter(|kind| **kind).count(), 1, "{state}");
            assert!(!state.is_over() || state.cause_of_its_jobs().is_some(), "{state} ends jobs without a cause");
            assert!(!state.has_nodes() || state.cause_of_its_jobs().is_none(), "{state} has jobs");
            assert_eq!(serde_json::to_value(state).unwrap(), state.as_str());
        }
        assert_eq!(SlurmState::Unknown.cause_of_its_jobs(), None);
    }
}
