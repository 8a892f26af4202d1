//! Requests that find lost jobs, recover failed jobs, re-plan allocations and correct requirements.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::allocation::OrphanedJob;
use crate::cluster::Partition;
use crate::state::Cause;

/// A request to look for lost allocations, runners and jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SyncStatusRequest {
    /// Report the changes without making them.
    pub dry_run: bool,
    /// No process served the store before this request, so runners could not report.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_unserved: bool,
    /// The state of the runners' processes as seen from the caller's machine.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<RunnerEvidence>,
    /// Runners that the caller declares lost. Only their jobs of this workflow are lost.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub assume_lost: Vec<i64>,
}

/// The state of a runner's processes, as the caller's machine sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunnerEvidence {
    /// The runner's number, unique in the store.
    pub runner: i64,
    /// The comparison of the runner's machine with the caller's, by host name and boot.
    pub machine: MachineMatch,
    /// The process that registered.
    pub agent: ProcessState,
    /// The process that holds the jobs.
    pub shim: ProcessState,
    /// Processes of jobs that run although the shim has ended.
    pub left_processes: i64,
    /// Results that the shim left for the next runner in its folder.
    pub left_results: i64,
}

/// A machine compared with the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MachineMatch {
    /// The same machine and boot, and the same PID namespace.
    Same,
    /// The same machine, but it has booted since.
    Rebooted,
    /// Another machine, or one that cannot be compared.
    Other,
}

/// The state of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ProcessState {
    /// The process is alive.
    Running,
    /// The process does not exist any more.
    Ended,
    /// It cannot be checked.
    Unknown,
}

/// A request to retry failed jobs, with more memory or time if they lacked it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RecoverRequest {
    /// Report the changes without making them.
    pub dry_run: bool,
    /// The new memory of a job that ran out of it, in percent of what it used or had (150 when absent).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 100, max = 10_000))]
    pub memory_percent: Option<i32>,
    /// The new time of a job that ran out of it, in percent of what it ran or had (150 when absent).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 100, max = 10_000))]
    pub runtime_percent: Option<i32>,
    /// Retry jobs that failed with another cause, too.
    pub retry_unknown: bool,
    /// Plan allocations for the jobs that are still to run, as `regenerate` does. Its own `dryRun` is ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regenerate: Option<Box<RegenerateRequest>>,
    /// The partitions of the workflow's cluster, which limit the new memory and time. If empty, the server uses those
    /// that it knows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub partitions: Vec<Partition>,
    /// Jobs that a dry run treats as lost: those that a dry run of `sync-status` has found. Ignored otherwise.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<OrphanedJob>,
}

/// The decisions about failed jobs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RecoverReport {
    /// The request was a dry run: nothing was changed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// The jobs that had failed, each with its decision.
    pub jobs: Vec<RecoveredJob>,
    /// The number of jobs that run again, dependents included.
    pub again: i64,
    /// The allocations that were planned for the jobs that are still to run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regenerated: Option<RegenerateReport>,
}

/// A job that had failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecoveredJob {
    /// The job's name, unique in its workflow.
    pub job: String,
    /// The attempt that failed.
    pub attempt: i32,
    /// The exit code; 128 + signal if it was killed; −128 if it was lost.
    pub return_code: i32,
    /// The cause that all present evidence suggests.
    pub cause: Cause,
    /// The decision of the recovery policy.
    pub decision: RecoveryDecision,
    /// Requirements that were raised, e.g. `memory from 1 GiB to 1.5 GiB`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub raised: Vec<String>,
    /// The reason why the job stays failed, if a retry would fail again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The decision about a failed job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RecoveryDecision {
    /// The job is retried with a new attempt.
    Retry,
    /// The job stays failed.
    Leave,
}

/// A request to plan schedulers and allocations for the jobs that are still to run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RegenerateRequest {
    /// Report the changes without making them.
    pub dry_run: bool,
    /// Submit the allocations of jobs that do not wait for others.
    pub submit: bool,
    /// The account to charge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// The partition for all allocations; absent to choose one for each job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// The walltime of the allocations (computed from the jobs when absent).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub walltime: Option<String>,
    /// Request one allocation with all nodes instead of one for each node.
    pub single_allocation: bool,
    /// Further jobs to plan for, by name or number, in any state.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub include_jobs: Vec<String>,
    /// The partitions that allocations may use.
    pub partitions: Vec<Partition>,
}

/// The schedulers and allocations that were planned.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RegenerateReport {
    /// The request was a dry run: nothing was changed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// The number of jobs that are still to run.
    pub pending_jobs: i64,
    /// The number of actions that were marked as executed, so that they do not request allocations as well.
    pub superseded_actions: i64,
    /// The schedulers that were generated, one for each group of similar jobs.
    pub schedulers: Vec<RecoveryScheduler>,
    /// Names of the allocations that are submitted now.
    pub allocations: Vec<String>,
    /// Jobs that fit no partition, with the reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unplaced: Vec<UnplacedJob>,
}

/// A Slurm scheduler that recovery generated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecoveryScheduler {
    /// The name. It ends with `_deferred` if the jobs wait for others.
    pub name: String,
    /// The partition of its allocations; absent if Slurm chooses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// The number of jobs that use it.
    pub jobs: i64,
    /// The number of allocations.
    pub allocations: i64,
    /// The number of nodes of each allocation.
    pub nodes: i64,
    /// The walltime of each allocation, in seconds.
    pub walltime_seconds: i64,
    /// The allocations are submitted when its jobs are ready.
    pub deferred: bool,
    /// The node hours if every allocation uses its whole walltime.
    pub node_hours: f64,
}

/// A job whose requirements fit no partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnplacedJob {
    /// The job's name, unique in its workflow.
    pub job: String,
    /// The reason why no partition fits, in a sentence.
    pub reason: String,
}

/// A request to compare requirements with measurements, and to correct them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CorrectResourcesRequest {
    /// Report the changes without making them.
    pub dry_run: bool,
    /// Raise requirements only, and never reduce them.
    pub no_downsize: bool,
    /// The jobs to consider, by name or number; all if empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<String>,
}

/// The requirements that were corrected.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CorrectResourcesReport {
    /// The request was a dry run: nothing was changed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
    /// The requirements that differ from the measurements.
    pub corrections: Vec<Correction>,
}

/// A set of requirements and its correction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Correction {
    /// The name of the requirements, as jobs refer to them.
    pub requirements: String,
    /// The number of jobs with these requirements.
    pub jobs: i64,
    /// The number of these jobs that were measured.
    pub observed: i64,
    /// Changed requirements, e.g. `memory from 1 GiB to 2 GiB`.
    pub changes: Vec<String>,
}

/// The user's decision about a failed job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum FailureClass {
    /// The jobs are retried.
    Retry,
    /// The jobs fail and are not retried.
    Fail,
}

/// A decision about failed jobs in state `pending_failed`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClassifyRequest {
    /// The jobs, by name or number; all in state `pending_failed` if empty.
    #[serde(default)]
    pub jobs: Vec<String>,
    /// The decision for all of these jobs.
    pub class: FailureClass,
}

/// A request to submit allocations of a Slurm scheduler.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ScheduleNodesRequest {
    /// A Slurm scheduler of the document. It may be absent if the document has exactly one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<String>,
    /// The number of allocations (1 when absent).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub num_allocations: Option<i64>,
    /// Start a runner on every node instead of one for the allocation.
    pub start_one_worker_per_node: bool,
    /// The number of jobs that each runner starts at once, regardless of their requirements; limited by resources if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_parallel_jobs: Option<i32>,
}

/// The allocations that `schedule-nodes` requested.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodesScheduled {
    /// The names of the new allocations.
    pub allocations: Vec<String>,
}
