//! What the state of a Slurm job means to the allocation that it is.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::state::Cause;

/// What becomes of an allocation. Slurm knows about thirty states; these are the ones that make a difference.
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
    /// Waits for nodes.
    Pending,
    /// Has nodes, or is about to give them back.
    Running,
    /// Has nodes but gets no time on them.
    Suspended,
    /// Was running, and waits to run again under the same number.
    ComingBack,
    /// Ended because somebody else was more important.
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
    /// Ended by a person, or by us.
    Cancelled,
    /// Ended by itself, well.
    Completed,
    /// Ended by itself, badly.
    Failed,
    /// Slurm said something that nobody here understands: nothing follows from it.
    Unknown,
}

impl SlurmState {
    /// Every state.
    pub const ALL: &[Self] = <Self as strum::VariantArray>::VARIANTS;

    /// The name in documents, tables and logs.
    pub const fn as_str(self) -> &'static str {
        self.into_str()
    }

    /// It will never run again. An unknown state is not over.
    pub const fn is_over(self) -> bool {
        !self.has_nodes() && !matches!(self, Self::Pending | Self::ComingBack | Self::Unknown)
    }

    /// Jobs in it may be alive.
    pub const fn has_nodes(self) -> bool {
        matches!(self, Self::Running | Self::Suspended)
    }

    /// Why the jobs ended that were running in an allocation which is over or had to start again; none while they may be alive.
    pub const fn cause_of_its_jobs(self) -> Option<Cause> {
        match self {
            Self::Pending | Self::Running | Self::Suspended | Self::Unknown => None,
            // Slurm requeues for preemption and for dead nodes, and does not say which.
            Self::ComingBack | Self::Preempted => Some(Cause::Preempted),
            Self::NodeFailure | Self::BootFailure => Some(Cause::NodeFailure),
            Self::Deadline | Self::Timeout => Some(Cause::Timeout),
            // Whose memory it was, nobody knows.
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
