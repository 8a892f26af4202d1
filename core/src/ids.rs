//! Numbers that a store assigns once.

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub i64);

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// A workflow of a store: the W of log and step names.
    WorkflowId
);
id!(
    /// A job of a store: the J of log and step names.
    JobId
);
id!(
    /// One registration of a runner.
    RunnerId
);
id!(
    /// A profile: the properties that several jobs of a workflow share.
    ProfileId
);
id!(
    /// A Slurm allocation of a store: the N of its name.
    AllocationId
);

/// The key of an allocation: its workflow and its number.
pub type AllocationKey = (WorkflowId, AllocationId);

/// The two clocks a decision may need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Wall-clock time in milliseconds since 1970.
    pub wall_ms: i64,
    /// Milliseconds of a clock that never jumps and goes on during suspend, for leases and deadlines.
    pub mono_ms: u64,
}
