//! The states of a job and the causes of its failures, under the same names everywhere.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where a job stands.
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
    /// Known, but not yet part of a run.
    Uninitialized = 0,
    /// Waits for other jobs.
    Blocked = 1,
    /// Waits for a runner.
    Ready = 2,
    /// Promised to a runner, not yet started.
    Leased = 3,
    /// Runs.
    Running = 4,
    /// Ended well.
    Completed = 5,
    /// Ended badly, for good.
    Failed = 6,
    /// Will not run, because of a person or because a job it depends on failed.
    Canceled = 7,
    /// Ended by a deadline or a shutdown.
    Terminated = 8,
    /// Left out by a person.
    Disabled = 9,
    /// Failed, and a person has to say what happens next.
    PendingFailed = 10,
    /// Failed, and waits for its recovery script or its back-off before it is tried again.
    Recovering = 11,
}

impl JobState {
    /// Every state, in order of its number.
    pub const ALL: &[Self] = <Self as strum::VariantArray>::VARIANTS;

    /// The number that stands for the state in the store.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The state for a number of the store.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// The name in documents, tables and logs.
    pub const fn as_str(self) -> &'static str {
        self.into_str()
    }

    /// The job has ended: jobs that depend on it may be decided.
    pub const fn is_complete(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Canceled | Self::Terminated)
    }

    /// Nothing more will happen to the job without a person.
    pub const fn is_settled(self) -> bool {
        self.is_complete() || matches!(self, Self::Disabled)
    }

    /// A runner has it.
    pub const fn is_held(self) -> bool {
        matches!(self, Self::Leased | Self::Running)
    }
}

fn unknown_state(text: &str) -> String {
    format!("unknown job state '{text}'")
}

/// Why an attempt did not succeed.
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
    /// Its node failed.
    NodeFailure,
    /// Its allocation was preempted.
    Preempted,
    /// Its runner disappeared.
    Lost,
    /// It ended with an exit code other than 0.
    ExitCode,
    /// A person or the workflow cancelled it.
    Canceled,
    /// It could not be started.
    StartFailed,
    /// It ended with exit code 0 but a declared output file is missing.
    MissingOutput,
    /// Its runner was stopped while it ran, or Slurm did not start its step.
    Stopped,
}

impl Cause {
    /// The name in documents, tables and logs.
    pub const fn as_str(self) -> &'static str {
        self.into_str()
    }

    /// The attempt ended through no fault of the job.
    pub const fn is_loss(self) -> bool {
        matches!(self, Self::NodeFailure | Self::Preempted | Self::Lost)
    }
}
