//! The status of a workflow: counters, bounded samples and conditions.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::state::{Cause, JobState};

/// What is, as opposed to what is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkflowStatus {
    /// The generation of the document that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The current run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<i32>,
    /// When the first job of this run started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<String>,
    /// When the last job of this run ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<String>,
    /// Ended jobs out of all jobs, e.g. `812/100000`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<String>,
    /// The expanded document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanSummary>,
    /// Jobs by state.
    #[serde(default)]
    pub jobs: JobCounts,
    /// Slurm allocations by state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocations: Option<AllocationCounts>,
    /// How far recovery has come, while it is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<RecoveryProgress>,
    /// Where the server that runs this workflow can be reached.
    #[serde(default, rename = "apiURL", skip_serializing_if = "Option::is_none")]
    pub api_url: Option<String>,
    /// The latest failures, at most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub failures: Vec<FailureSample>,
    /// Accepted, AllocationsReady, Recovering, Stalled, Suspended, Finished, Succeeded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// The expanded document in a few words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanSummary {
    /// SHA-256 over the expanded jobs.
    pub digest: String,
    /// How many jobs there are.
    pub job_count: i64,
}

/// How far recovery has come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecoveryProgress {
    /// How often the job that was tried again most often has been.
    pub round: i32,
    /// What is being done, in a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1_024))]
    pub message: String,
}

/// Jobs by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct JobCounts {
    /// All jobs.
    pub total: i64,
    /// Known, not yet part of a run.
    pub uninitialized: i64,
    /// Waiting for other jobs.
    pub blocked: i64,
    /// Waiting for a runner.
    pub ready: i64,
    /// Promised to a runner.
    pub leased: i64,
    /// Running.
    pub running: i64,
    /// Ended well.
    pub completed: i64,
    /// Ended badly.
    pub failed: i64,
    /// Cancelled.
    pub canceled: i64,
    /// Ended by a deadline.
    pub terminated: i64,
    /// Left out.
    pub disabled: i64,
    /// Waiting for a person.
    pub pending_failed: i64,
    /// Waiting to be tried again.
    pub recovering: i64,
}

impl JobCounts {
    /// The counter of one state.
    pub fn of(&self, state: JobState) -> i64 {
        let mut copy = *self;
        *copy.slot(state)
    }

    /// Count `change` more (or fewer) jobs in a state.
    pub fn add(&mut self, state: JobState, change: i64) {
        *self.slot(state) += change;
        self.total += change;
    }

    /// Jobs that have ended or were left out.
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
    /// Wanted now.
    pub desired: i64,
    /// Submitted, waiting in Slurm's queue.
    pub pending: i64,
    /// Running.
    pub active: i64,
    /// Over.
    pub finished: i64,
}

/// One failed attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailureSample {
    /// The job's name.
    pub job: String,
    /// Which attempt.
    pub attempt: i32,
    /// Its return code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub return_code: Option<i32>,
    /// Why it failed.
    pub cause: Cause,
    /// When, in RFC 3339.
    pub time: String,
}
