//! The reasons of events: one word that programs can compare.

/// The reason of an event.
///
/// Stored and sent as its name. A reader keeps the text, because a later version may know more reasons.
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
pub enum EventReason {
    /// A workflow was created.
    WorkflowCreated,
    /// An edited document has changed jobs of a workflow.
    WorkflowConfigured,
    /// An edited document has changed settings of a workflow, but no job.
    WorkflowUpdated,
    /// A workflow was suspended: no new jobs start.
    WorkflowSuspended,
    /// A suspended workflow was resumed.
    WorkflowResumed,
    /// A workflow was canceled.
    WorkflowCanceled,
    /// Jobs were reset to run again.
    WorkflowRetried,
    /// A workflow has run for as long as it may, and its jobs are canceled.
    DeadlineExceeded,
    /// All jobs of a workflow have completed.
    WorkflowFinished,
    /// A workflow has ended, and not all of its jobs completed.
    WorkflowFailed,
    /// A workflow was deleted.
    WorkflowDeleted,
    /// Jobs have changed their states in one commit; the event lists them with their new state and attempt.
    JobsChanged,
    /// A job has added jobs to its workflow.
    JobsSpawned,
    /// A loop of spawned jobs has converged.
    LoopConverged,
    /// User data was written or deleted.
    UserDataChanged,
    /// The commands of an action have succeeded.
    ActionExecuted,
    /// The commands of an action have failed and run again.
    ActionRetried,
    /// The commands of an action have failed and do not run again.
    ActionFailed,
    /// The first job is retried because it was lost or ran out of memory or time.
    RecoveryStarted,
    /// A job already had as much memory or time as there is, so it is not retried.
    RecoveryLimitReached,
    /// Several allocations in a row have ended before a job ended in them, so no more are submitted.
    RecoveryExhausted,
    /// The recovery script of a job has succeeded, and the job is retried.
    JobRecovered,
    /// The recovery script of a job has failed.
    RecoveryFailed,
    /// The user has decided whether jobs in state `pending_failed` are retried.
    FailuresDecided,
    /// The requirements of jobs were corrected to what the jobs used.
    RequirementsCorrected,
    /// Schedulers were generated for jobs that have to run again.
    AllocationsRegenerated,
    /// Slurm has accepted an allocation.
    AllocationSubmitted,
    /// Slurm has refused an allocation, or has not answered.
    AllocationRefused,
    /// An allocation has nodes.
    AllocationStarted,
    /// Slurm has requeued an allocation.
    AllocationRequeued,
    /// An allocation has ended.
    AllocationEnded,
    /// Running jobs were lost with their allocations or runners.
    OrphansReclaimed,
    /// A SlurmCluster was created or edited.
    ClusterConfigured,
    /// A SlurmCluster was deleted.
    ClusterDeleted,
    /// A runner has registered.
    RunnerRegistered,
    /// A runner has sent nothing for longer than its lease.
    RunnerSilent,
    /// A runner has left, or ended with its allocation.
    RunnerLeft,
    /// A runner has returned a job that it cannot finish in the time that it has left.
    LeaseReturned,
    /// A runner has reported the end of an attempt that was superseded; the report changes nothing.
    ResultRefused,
    /// The document of a Workflow object was accepted (Kubernetes only).
    PlanAccepted,
    /// The document of a Workflow object was rejected (Kubernetes only).
    PlanRejected,
    /// A Workflow object was deleted before Slurm confirmed that its allocations have ended (Kubernetes only).
    CleanupGivenUp,
}

impl EventReason {
    /// Returns the name in the API and the store.
    pub const fn as_str(self) -> &'static str {
        self.into_str()
    }
}

#[cfg(test)]
mod tests {
    use strum::{EnumMessage as _, IntoEnumIterator as _};

    use super::*;

    #[test]
    fn reasons_are_written_as_their_names_and_described() {
        for reason in EventReason::iter() {
            assert_eq!((reason.as_str(), reason.to_string()), (format!("{reason:?}").as_str(), format!("{reason:?}")));
            assert_eq!(reason.as_str().parse(), Ok(reason));
            assert!(reason.get_documentation().is_some_and(|text| text.ends_with('.')), "{reason}");
        }
        assert!("FromTheFuture".parse::<EventReason>().is_err());
    }
}
