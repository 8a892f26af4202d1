//! Explanations in the HTTP API.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::JobResources;
use crate::state::{Cause, JobState};

/// The reasons for a job's state, its attempts and its failures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobExplanation {
    /// The workflow's name, unique in its namespace.
    pub workflow: String,
    /// The job's name, unique in its workflow.
    pub job: String,
    /// The job's present state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<JobState>,
    /// The number of the run, counted from 1.
    pub run_id: i32,
    /// The number of the current attempt, counted from 1 in each run.
    pub attempt: i32,
    /// The reasons for its state, the most important one first.
    pub reasons: Vec<Reason>,
    /// The resources that the job needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<JobResources>,
    /// Requirements that recovery has raised, e.g. `memory from 1 GiB to 1.5 GiB`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub raised: Vec<String>,
    /// The attempts that have ended, the first one first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<AttemptReport>,
    /// Commands and changes that help.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub next: Vec<String>,
}

/// The reasons for the states of a workflow's jobs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkflowExplanation {
    /// The workflow's name, unique in its namespace.
    pub workflow: String,
    /// Ended jobs out of all jobs.
    pub progress: String,
    /// The reasons for the states of its jobs, the most important one first.
    pub reasons: Vec<Reason>,
    /// Commands and changes that help.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub next: Vec<String>,
}

/// One reason for the state of a job or of several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Reason {
    /// The kind of reason.
    pub reason: ReasonKind,
    /// A sentence for readers.
    pub message: String,
    /// The number of jobs that it holds for, if the request was about several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<i64>,
    /// Jobs that it is about, at most twenty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<JobPhase>,
    /// Names of Slurm allocations that it is about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allocations: Vec<String>,
}

impl Reason {
    /// Creates a reason without a count, jobs and allocations.
    pub fn new(reason: ReasonKind, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), count: None, jobs: Vec::new(), allocations: Vec::new() }
    }
}

/// A job and its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobPhase {
    /// The job's name, unique in its workflow.
    pub job: String,
    /// The job's present state.
    pub status: JobState,
}

/// The kinds of reasons for a job's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ReasonKind {
    /// A runner executes the job.
    Running,
    /// It is leased to a runner, which will start it.
    Promised,
    /// Its runner is silent, so it is not known whether the job runs.
    RunnerSilent,
    /// It waits for jobs that have not ended.
    Dependency,
    /// A job that it depends on did not succeed.
    DependencyFailed,
    /// No runner serves its workflow.
    NoRunner,
    /// No Slurm allocation of its workflow runs or waits.
    NoAllocation,
    /// No runner has the labels that it needs.
    Label,
    /// No runner is big enough.
    Capacity,
    /// No runner has enough time left.
    TimeLeft,
    /// Runners that could run it are busy.
    Busy,
    /// A Slurm allocation for it waits.
    AllocationPending,
    /// Slurm refused an allocation for it.
    AllocationRefused,
    /// No partition of the cluster is for it.
    NoPartition,
    /// Slurm does not answer.
    SlurmUnreachable,
    /// There may be no more allocations at once.
    AllocationLimit,
    /// Allocations have ended one after another without a job having ended in them.
    AllocationsFruitless,
    /// An earlier attempt of it is still being ended.
    AttemptEnding,
    /// Its recovery script has not succeeded yet.
    RecoveryScript,
    /// The workflow's first commands have not ended.
    StartActions,
    /// The user or the document has suspended the workflow.
    Suspended,
    /// The user or the document has canceled it.
    Canceled,
    /// It was left out.
    Disabled,
    /// It failed and needs a manual decision.
    NeedsDecision,
    /// It failed for good.
    Failed,
    /// It completed with success.
    Completed,
    /// It is not part of a run yet.
    NotStarted,
}

/// An attempt that has ended, and what followed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AttemptReport {
    /// The number of the run, counted from 1.
    pub run_id: i32,
    /// The number of the attempt, counted from 1 in each run.
    pub attempt: i32,
    /// The final state of the attempt.
    pub status: JobState,
    /// The exit code; 128 + signal if it was killed; −128 if it was lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub return_code: Option<i32>,
    /// The cause that was found when it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// The cause that all present evidence suggests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diagnosis: Option<Cause>,
    /// The time at which it ended.
    pub end_time: String,
    /// The duration in seconds.
    pub duration_seconds: f64,
    /// The host it ran on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The most memory at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<i64>,
    /// The evidence for the diagnosis, one sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<String>,
    /// The path of its standard error; absent when it wrote none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
    /// The end of its error output, where it can be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stderr_tail: Vec<String>,
    /// The reason for the next attempt; absent for the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub then: Option<String>,
}
