//! Conditions of workflows and Slurm clusters, as Kubernetes writes them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A statement about a workflow or a Slurm cluster.
///
/// Type and reason are text, because a later version may know more of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Accepted, AllocationsReady, Suspended, Recovering, Stalled, Finished or Succeeded; Ready for a Slurm cluster.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 316))]
    pub type_: String,
    /// True, False or Unknown.
    pub status: ConditionStatus,
    /// The reason in one word, for programs.
    pub reason: String,
    /// The reason in a sentence, for readers.
    #[serde(default)]
    #[schemars(length(max = 32_768))]
    pub message: String,
    /// The time at which `status` last changed, in RFC 3339.
    pub last_transition_time: String,
    /// The generation of the document that this condition describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

impl Condition {
    /// Creates a condition without a time and a generation.
    pub fn new(type_: ConditionType, status: ConditionStatus, reason: ConditionReason, message: String) -> Self {
        debug_assert!(type_.reasons().contains(&reason), "{type_}: {reason}");
        Self {
            type_: type_.to_string(),
            status,
            reason: reason.to_string(),
            message,
            last_transition_time: String::new(),
            observed_generation: None,
        }
    }

    /// Returns whether this is the condition of a type, and true.
    pub fn holds(&self, type_: ConditionType) -> bool {
        self.type_ == type_.as_str() && self.status == ConditionStatus::True
    }

    /// Returns whether it has one of `reasons`.
    pub fn has_reason(&self, reasons: &[ConditionReason]) -> bool {
        reasons.iter().any(|reason| self.reason == reason.as_str())
    }
}

/// The value of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, strum::Display)]
#[schemars(inline)]
pub enum ConditionStatus {
    /// The statement is true.
    True,
    /// The statement is false.
    False,
    /// It is not known yet.
    Unknown,
}

impl From<bool> for ConditionStatus {
    fn from(is_true: bool) -> Self {
        if is_true { Self::True } else { Self::False }
    }
}

/// The type of a condition.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    strum::Display,
    strum::EnumIter,
    strum::EnumMessage,
    strum::EnumString,
    strum::IntoStaticStr,
)]
#[strum(const_into_str)]
pub enum ConditionType {
    /// The document is valid.
    Accepted,
    /// Slurm gives enough capacity for the ready jobs, or none is needed.
    AllocationsReady,
    /// No new jobs start.
    Suspended,
    /// Jobs are retried because an attempt was lost or ran out of memory or time; `status.recovery` counts them.
    Recovering,
    /// Nothing moves until the user acts; the message says why.
    Stalled,
    /// Nothing more happens unless the user acts.
    Finished,
    /// All jobs have completed with success.
    Succeeded,
    /// Slurm answers (of a SlurmCluster).
    Ready,
}

impl ConditionType {
    /// The conditions that every workflow has, in the order in which they are shown.
    pub const OF_WORKFLOW: [Self; 7] = [
        Self::Accepted,
        Self::AllocationsReady,
        Self::Suspended,
        Self::Recovering,
        Self::Stalled,
        Self::Finished,
        Self::Succeeded,
    ];

    /// Returns the name in documents and logs.
    pub const fn as_str(self) -> &'static str {
        self.into_str()
    }

    /// Returns every reason that a condition of this type can have.
    pub const fn reasons(self) -> &'static [ConditionReason] {
        use ConditionReason as Reason;
        match self {
            Self::Accepted => &[
                Reason::Planned,
                Reason::InvalidSpec,
                Reason::CycleFound,
                Reason::DuplicateName,
                Reason::SourceMissing,
                Reason::TooLarge,
                Reason::ClusterNotFound,
                Reason::Pending,
            ],
            Self::AllocationsReady => &[
                Reason::Active,
                Reason::NotNeeded,
                Reason::WaitingForSlurm,
                Reason::SubmitFailed,
                Reason::LimitReached,
                Reason::Suspended,
            ],
            Self::Suspended => &[Reason::UserRequest, Reason::ManagedByOther, Reason::NotSuspended],
            Self::Recovering => &[
                Reason::OutOfMemory,
                Reason::Timeout,
                Reason::NodeFailure,
                Reason::Preempted,
                Reason::Lost,
                Reason::NotRecovering,
            ],
            Self::Stalled => &[
                Reason::PendingFailedJobs,
                Reason::NoMatchingPartition,
                Reason::RecoveryExhausted,
                Reason::SlurmUnreachable,
                Reason::NotStalled,
            ],
            Self::Finished => &[
                Reason::Succeeded,
                Reason::Failed,
                Reason::Canceled,
                Reason::DeadlineExceeded,
                Reason::Running,
                Reason::NotStarted,
            ],
            Self::Succeeded => &[
                Reason::Completed,
                Reason::JobsFailed,
                Reason::Canceled,
                Reason::DeadlineExceeded,
                Reason::InvalidSpec,
                Reason::Pending,
                Reason::WaitingForAllocation,
                Reason::Running,
                Reason::Recovering,
                Reason::Suspended,
                Reason::Stalled,
            ],
            Self::Ready => &[Reason::Answered, Reason::Unreachable, Reason::NotAsked],
        }
    }
}

/// The reason of a condition.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    strum::Display,
    strum::EnumIter,
    strum::EnumMessage,
    strum::EnumString,
    strum::IntoStaticStr,
)]
#[strum(const_into_str)]
pub enum ConditionReason {
    /// The document was expanded into jobs.
    Planned,
    /// The document has problems; the message lists them.
    InvalidSpec,
    /// Jobs wait for each other in a cycle.
    CycleFound,
    /// Two objects of the document have the same name.
    DuplicateName,
    /// A table that the document names cannot be read.
    SourceMissing,
    /// The expanded document exceeds a limit.
    TooLarge,
    /// The SlurmCluster that the document names does not exist.
    ClusterNotFound,
    /// Nothing is known yet: the document was not read, or no job has started.
    Pending,
    /// Allocations run and have nodes.
    Active,
    /// No job waits for an allocation.
    NotNeeded,
    /// Allocations wait in Slurm's queue; the message has Slurm's reasons.
    WaitingForSlurm,
    /// Slurm has refused an allocation; the message has Slurm's text.
    SubmitFailed,
    /// The limit `maxAllocations` allows no more allocations.
    LimitReached,
    /// The workflow is suspended.
    Suspended,
    /// The user has suspended the workflow.
    UserRequest,
    /// `managedBy` names another controller.
    ManagedByOther,
    /// The workflow is not suspended.
    NotSuspended,
    /// Jobs are retried because they exceeded their memory.
    OutOfMemory,
    /// Jobs are retried because they ran out of time.
    Timeout,
    /// Jobs are retried because their node failed.
    NodeFailure,
    /// Jobs are retried because their allocation was preempted.
    Preempted,
    /// Jobs are retried because their runner disappeared.
    Lost,
    /// No job is retried because it was lost or ran out of memory or time.
    NotRecovering,
    /// Jobs in state `pending_failed` need a manual decision.
    PendingFailedJobs,
    /// No partition can run a job that is ready.
    NoMatchingPartition,
    /// Several allocations in a row have ended before a job ended in them, so no more are submitted.
    RecoveryExhausted,
    /// Slurm does not answer.
    SlurmUnreachable,
    /// The workflow does not need manual action.
    NotStalled,
    /// All jobs have completed with success.
    Succeeded,
    /// All jobs have ended, and not all completed.
    Failed,
    /// The workflow was canceled.
    Canceled,
    /// The workflow ran out of the time that its document gives it.
    DeadlineExceeded,
    /// Jobs are running, or can run.
    Running,
    /// The workflow has not started.
    NotStarted,
    /// All jobs have completed with success.
    Completed,
    /// Jobs failed, were terminated or were canceled; the message counts them.
    JobsFailed,
    /// Jobs are ready and wait for an allocation.
    WaitingForAllocation,
    /// Jobs are retried because an attempt was lost or ran out of memory or time.
    Recovering,
    /// Nothing moves until the user acts.
    Stalled,
    /// Slurm has answered the last command.
    Answered,
    /// Slurm has not answered the last command; the message says why.
    Unreachable,
    /// The controller has not contacted Slurm yet.
    NotAsked,
}

impl ConditionReason {
    /// Returns the name in documents and logs.
    pub const fn as_str(self) -> &'static str {
        self.into_str()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use strum::{EnumMessage as _, IntoEnumIterator as _};

    use super::*;

    #[test]
    fn names_are_written_as_they_are_and_described() {
        for type_ in ConditionType::iter() {
            assert_eq!((type_.as_str(), type_.to_string()), (format!("{type_:?}").as_str(), format!("{type_:?}")));
            assert!(type_.get_documentation().unwrap().ends_with('.'), "{type_}");
        }
        for reason in ConditionReason::iter() {
            assert_eq!((reason.as_str(), reason.to_string()), (format!("{reason:?}").as_str(), format!("{reason:?}")));
            assert!(reason.get_documentation().unwrap().ends_with('.'), "{reason}");
        }
    }

    #[test]
    fn every_reason_belongs_to_a_type() {
        let listed: Vec<&ConditionReason> = ConditionType::iter().flat_map(ConditionType::reasons).collect();
        for reason in ConditionReason::iter() {
            assert!(listed.contains(&&reason), "{reason}");
        }
    }

    #[test]
    fn unknown_types_and_reasons_are_kept() {
        let text = r#"{"type":"New","status":"Unknown","reason":"Newer","message":"m","lastTransitionTime":"t"}"#;
        let condition: Condition = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&condition).unwrap(), text);
    }
}
