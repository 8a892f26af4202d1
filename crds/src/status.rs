//! The status of a workflow: counters, bounded samples and conditions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::state::{Cause, JobState};

/// The observed state of a workflow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkflowStatus {
    /// The generation of the document that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The number of the current run, counted from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<i32>,
    /// The start of the first job of this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<String>,
    /// The end of the last job of this run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<String>,
    /// Ended jobs out of all jobs, e.g. `812/100000`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// A summary of the expanded document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanSummary>,
    /// The number of jobs in each state.
    #[serde(default)]
    pub jobs: JobCounts,
    /// Slurm allocations by state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocations: Option<AllocationCounts>,
    /// The progress of recovery, while jobs are retried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<RecoveryProgress>,
    /// The URL of the server that runs this workflow.
    #[serde(default, rename = "apiURL", skip_serializing_if = "Option::is_none")]
    pub api_url: Option<String>,
    /// The latest failures, at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub failures: Vec<FailureSample>,
    /// The conditions Accepted, AllocationsReady, Suspended, Recovering, Stalled, Finished and Succeeded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// A summary of the expanded document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanSummary {
    /// The SHA-256 hash of the expanded jobs.
    pub digest: String,
    /// The number of jobs.
    pub job_count: i64,
}

/// The progress of recovery.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecoveryProgress {
    /// The largest number of retries of one job.
    pub round: i32,
    /// A sentence about the jobs that are retried.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1_024))]
    pub message: String,
}

/// The number of jobs in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct JobCounts {
    /// The number of all jobs.
    pub total: i64,
    /// Always 0. Torc 1.0 has this state.
    pub uninitialized: i64,
    /// Jobs that wait for other jobs.
    pub blocked: i64,
    /// Jobs that wait for a runner.
    pub ready: i64,
    /// Jobs that are leased to a runner and have not started.
    pub leased: i64,
    /// Jobs that a runner executes.
    pub running: i64,
    /// Jobs that ended with success.
    pub completed: i64,
    /// Jobs that failed and are not retried.
    pub failed: i64,
    /// Jobs that were canceled.
    pub canceled: i64,
    /// Jobs that were ended by a deadline and are not retried.
    pub terminated: i64,
    /// Always 0. Torc 1.0 has this state.
    pub disabled: i64,
    /// Failed jobs that need a manual decision.
    pub pending_failed: i64,
    /// Failed jobs that wait for their recovery script.
    pub recovering: i64,
}

impl JobCounts {
    /// Returns the counter of a state.
    pub fn of(&self, state: JobState) -> i64 {
        let mut copy = *self;
        *copy.slot(state)
    }

    /// Adds `change`, which may be negative, to the counter of a state.
    pub fn add(&mut self, state: JobState, change: i64) {
        *self.slot(state) += change;
        self.total += change;
    }

    /// Returns the number of jobs that have ended or were excluded.
    pub fn settled(&self) -> i64 {
        self.completed + self.failed + self.canceled + self.terminated + self.disabled
    }

    fn slot(&mut self, state: JobState) -> &mut i64 {
        match state {
            JobState::Uninitialized => &mut self.uninitialized,
            JobState::Blocked => &mut self.blocked,
            JobState::Ready => &mut self.ready,
            JobState::Leased => &mut self.leased,
            JobState::Running => &mut self.running,
            JobState::Completed => &mut self.completed,
            JobState::Failed => &mut self.failed,
            JobState::Canceled => &mut self.canceled,
            JobState::Terminated => &mut self.terminated,
            JobState::Disabled => &mut self.disabled,
            JobState::PendingFailed => &mut self.pending_failed,
            JobState::Recovering => &mut self.recovering,
        }
    }
}

/// Slurm allocations by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct AllocationCounts {
    /// Allocations that the jobs need.
    pub desired: i64,
    /// Allocations that wait in Slurm's queue.
    pub pending: i64,
    /// Allocations that have nodes.
    pub active: i64,
    /// Allocations that have ended.
    pub finished: i64,
}

/// A failed attempt of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailureSample {
    /// The job's name, unique in its workflow.
    pub job: String,
    /// The number of the attempt, counted from 1 in each run.
    pub attempt: i32,
    /// The exit code; 128 + signal if it was killed; −128 if it was lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub return_code: Option<i32>,
    /// The cause of the failure.
    pub cause: Cause,
    /// The end of the attempt, in RFC 3339.
    pub time: String,
}
