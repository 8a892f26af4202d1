//! The states of a job and the causes of its failures, under the same names everywhere.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The state of a job.
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
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[strum(serialize_all = "snake_case", const_into_str, parse_err_ty = String, parse_err_fn = unknown_state)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum JobState {
    /// Not planned yet. No stored job has this state.
    Uninitialized = 0,
    /// Waits for other jobs.
    Blocked = 1,
    /// Waits for a runner.
    Ready = 2,
    /// Leased to a runner, not yet started.
    Leased = 3,
    /// A runner executes it.
    Running = 4,
    /// Ended with exit code 0 and all declared output files.
    Completed = 5,
    /// Ended with a failure, and is not retried.
    Failed = 6,
    /// Will not run: the user canceled it, or a dependency failed.
    Canceled = 7,
    /// Ended by a deadline or a shutdown.
    Terminated = 8,
    /// Excluded by the user. No command leads to this state.
    Disabled = 9,
    /// Failed, and needs a manual decision.
    PendingFailed = 10,
    /// Failed, and waits for its recovery script or its back-off before it is retried.
    Recovering = 11,
}

impl JobState {
    /// All states, in the order of their codes.
    pub const ALL: &[Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns the code of the state in the store.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the state with this code.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// Returns its name in documents, tables and logs.
    pub const fn as_str(self) -> &'static str {
        self.into_str()
    }

    /// Returns whether the job has ended, so that its dependents can be decided.
    pub const fn is_complete(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Canceled | Self::Terminated)
    }

    /// Returns whether nothing more happens to the job without the user.
    pub const fn is_settled(self) -> bool {
        self.is_complete() || matches!(self, Self::Disabled)
    }

    /// Returns whether a runner holds the job.
    pub const fn is_held(self) -> bool {
        matches!(self, Self::Leased | Self::Running)
    }
}

fn unknown_state(text: &str) -> String {
    format!("unknown job state '{text}'")
}

/// The cause of a failed attempt.
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
)]
#[strum(const_into_str)]
pub enum Cause {
    /// It exceeded its memory.
    OutOfMemory,
    /// It ran out of time.
    Timeout,
    /// Its node failed or could not boot.
    NodeFailure,
    /// Its allocation was preempted.
    Preempted,
    /// Its runner or its allocation disappeared.
    Lost,
    /// It ended with an exit code other than 0.
    ExitCode,
    /// The user or the workflow canceled it.
    Canceled,
    /// It could not be started.
    StartFailed,
    /// It ended with exit code 0 but a declared output file is missing.
    MissingOutput,
    /// Its runner was stopped while it ran, or Slurm did not start its step.
    Stopped,
}

impl Cause {
    /// Returns its name in documents, tables and logs.
    pub const fn as_str(self) -> &'static str {
        self.into_str()
    }

    /// Returns whether the attempt was lost through no fault of the job.
    pub const fn is_loss(self) -> bool {
        matches!(self, Self::NodeFailure | Self::Preempted | Self::Lost)
    }
}
