//! Resources of the HTTP API. Keys are camelCase, times are RFC 3339 in UTC, and unknown values are absent, not null.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::action::{ActionState, ActionType, TriggerType};
use crate::cluster::{SlurmClusterSpec, SlurmClusterStatus};
use crate::document::WorkflowDocument;
use crate::error_code::ErrorCode;
use crate::problem::Problem;
use crate::state::{Cause, JobState};
use crate::status::WorkflowStatus;
use crate::wire::{ProcessIdentity, Resources, RunnerKind, Usage};

/// A page of a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Page<T> {
    /// The items of this page.
    pub items: Vec<T>,
    /// The value for `cursor` in the request for the next page; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl<T> Page<T> {
    /// Creates the only page of a complete list.
    pub fn whole(items: Vec<T>) -> Self {
        Self { items, next: None }
    }
}

/// `POST /v1/workflows`: create or update a workflow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApplyRequest {
    /// The complete document, which replaces an earlier one of the same name.
    pub document: WorkflowDocument,
    /// The folder in which jobs run. It applies to new workflows only.
    pub working_dir: String,
    /// Report the changes without making them.
    #[serde(default)]
    pub dry_run: bool,
    /// Store a new workflow without running it. The owner of a folder's store then runs it only on request.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub store_only: bool,
}

/// The changes that an apply made or would make.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApplyResponse {
    /// The workflow's name, unique in its namespace.
    pub name: String,
    /// The namespace of the workflow.
    pub namespace: String,
    /// The workflow's number; absent for a dry run of a new workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<i64>,
    /// The change of the workflow.
    pub outcome: ApplyOutcome,
    /// The changes of its jobs.
    pub changes: JobChanges,
}

/// A request that changed something or was refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditEntry {
    /// A number that rises with every entry.
    pub sequence: i64,
    /// The time, in RFC 3339.
    pub time: String,
    /// The user or runner that made the request.
    pub who: String,
    /// The scope of the token: `admin`, `owner`, `viewer`, `editor`, `runner`, `pool` or `metrics`.
    pub scope: String,
    /// The request as a verb, e.g. `apply` or `create token`.
    pub verb: String,
    /// The object of the request, e.g. a workflow.
    pub object: String,
    /// The outcome: `ok`, or the code of the error.
    pub outcome: String,
}

/// The change that an apply made to a workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ApplyOutcome {
    /// The workflow or cluster is new.
    Created,
    /// The document differs from the stored one.
    Configured,
    /// The document equals the stored one.
    Unchanged,
}

/// The changes that an apply made to jobs. Each list has at most 1,000 names; the counts are complete.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct JobChanges {
    /// Jobs that only the new document has.
    pub added: JobNames,
    /// Jobs that only the earlier document had.
    pub removed: JobNames,
    /// Jobs that run again because their definition changed.
    pub changed: JobNames,
    /// Jobs that run again because the document has a higher `runId`.
    pub rerun: JobNames,
    /// Jobs that run again because a dependency does.
    pub downstream: JobNames,
    /// Jobs whose next attempt has other resources, priority or labels, and that do not run again.
    pub adjusted: JobNames,
    /// The number of jobs that do not change and keep their results.
    pub unchanged: i64,
}

/// Names of jobs, and their number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct JobNames {
    /// The number of jobs.
    pub count: i64,
    /// Names of the first jobs, at most 1,000.
    pub names: Vec<String>,
}

impl JobNames {
    /// The largest number of names in a list.
    pub const MAX_LISTED: usize = 1_000;

    /// Counts a job, and keeps its name if the list has fewer than [`Self::MAX_LISTED`].
    pub fn push(&mut self, name: &str) {
        self.count += 1;
        if self.names.len() < Self::MAX_LISTED {
            self.names.push(name.to_owned());
        }
    }
}

/// A workflow: document and status.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Workflow {
    /// The workflow's number, unique in the store.
    pub id: i64,
    /// The workflow's name, unique in its namespace.
    pub name: String,
    /// The namespace of the workflow.
    pub namespace: String,
    /// The user who owns it.
    pub owner: String,
    /// The generation of the document: 1 at first, raised by every change.
    pub generation: i64,
    /// The time at which it was first applied.
    pub creation_time: String,
    /// The folder in which jobs run.
    pub working_dir: String,
    /// Suspended by `torc suspend` or the document.
    pub suspended: bool,
    /// Canceled by `torc cancel` or the document.
    pub canceled: bool,
    /// The SlurmCluster that its jobs run on; absent if they run outside of Slurm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slurm_cluster: Option<String>,
    /// The document enables the RO-Crate record.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub enable_ro_crate: bool,
    /// The document; absent in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document: Option<WorkflowDocument>,
    /// The observed state: counters, latest failures and conditions.
    pub status: WorkflowStatus,
}

/// A job of a workflow after expansion.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Job {
    /// The job's number, unique in the store.
    pub id: i64,
    /// The workflow's name, unique in its namespace.
    pub workflow: String,
    /// The job's name, unique in its workflow.
    pub name: String,
    /// The job's present state.
    pub status: JobState,
    /// The run it belongs to.
    pub run_id: i32,
    /// The number of the current attempt, counted from 1 in each run.
    pub attempt: i32,
    /// The command after expansion of parameters and variables.
    pub command: String,
    /// The priority. Jobs with a higher one start first.
    pub priority: i64,
    /// The resources that it needs.
    pub resources: JobResources,
    /// Names of jobs that it depends on; absent in lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,
    /// The number of jobs that it depends on and that have not ended.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub waiting_for: i64,
    /// Labels that a runner must have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// The host of its runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The runner that holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner: Option<i64>,
    /// The runner is silent, so it is not known whether the job still runs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_doubt: bool,
    /// The start of the current attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<String>,
    /// `spawn` for a job that another one has added; absent for one of the document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// The loop that a spawned job belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lineage: Option<String>,
}

fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// The resources of a job, per node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobResources {
    /// The number of CPUs.
    pub num_cpus: i64,
    /// The amount of memory in bytes.
    pub memory_bytes: i64,
    /// The number of GPUs.
    pub num_gpus: i64,
    /// The number of nodes, each with these resources.
    pub num_nodes: i64,
    /// The expected duration in seconds.
    pub runtime_seconds: i64,
}

/// One attempt of a job, as it ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobResult {
    /// The workflow's name, unique in its namespace.
    pub workflow: String,
    /// The job's name, unique in its workflow.
    pub job: String,
    /// The job's number, unique in the store.
    pub job_id: i64,
    /// The number of the run, counted from 1.
    pub run_id: i32,
    /// The number of the attempt, counted from 1 in each run.
    pub attempt: i32,
    /// The final state: completed, failed, canceled or terminated.
    pub status: JobState,
    /// The exit code; 128 + signal if it was killed; −128 if it was lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub return_code: Option<i32>,
    /// The cause of the failure; absent if it succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// A sentence about what happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The time at which it started; absent if it never did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<String>,
    /// The time at which it ended.
    pub end_time: String,
    /// The duration in seconds.
    pub duration_seconds: f64,
    /// The host it ran on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The runner that ran it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner: Option<i64>,
    /// The path of its standard output; absent when it wrote none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<String>,
    /// The path of its standard error; absent when it wrote none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
    /// The measured resource usage.
    #[serde(flatten)]
    pub usage: Usage,
}

/// An action of a workflow, or its part for one worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkflowAction {
    /// The number, which follows `n` in the names of its log files.
    pub id: i64,
    /// The event that triggers the action.
    pub trigger_type: TriggerType,
    /// The type of the action: run commands, or submit allocations.
    pub action_type: ActionType,
    /// The present state of the action.
    pub status: ActionState,
    /// The action runs once for every worker. This entry represents the entries of the workers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub every_worker: bool,
    /// Recovery has created the action. It is removed when the workflow runs again.
    #[serde(default)]
    pub is_recovery: bool,
    /// For `schedule_nodes`: the name of an entry of `slurmSchedulers`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<String>,
    /// For `schedule_nodes`: the number of allocations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub num_allocations: Option<i64>,
    /// The worker that this entry belongs to; absent for the workflow's own entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<i64>,
    /// The number of the run, counted from 1.
    pub run_id: i32,
    /// The number of its latest attempt, counted from 1 in each run.
    pub attempt: i32,
    /// The number of attempts that ended.
    pub tries: i32,
    /// The runner that holds it, or held it last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner: Option<i64>,
    /// The host of that runner, while it is registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The start of its latest attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<String>,
    /// The end of its latest attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_time: Option<String>,
    /// Exit code of its latest attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub return_code: Option<i32>,
    /// A sentence about what happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The path of its standard output; absent when it wrote none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<String>,
    /// The path of its standard error; absent when it wrote none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
    /// The commands of a `run_commands` action, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<String>,
}

/// A registration of a runner, present or past.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Runner {
    /// The runner's number, unique in the store.
    pub id: i64,
    /// The host that it runs on.
    pub host: String,
    /// The PID of its process.
    pub pid: i64,
    /// The environment that the runner runs in.
    pub kind: RunnerKind,
    /// active, silent or gone.
    pub status: RunnerStatus,
    /// The resources that it may use.
    pub capacity: Resources,
    /// The labels with which it registered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// The workflow that it serves; absent if it serves all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<String>,
    /// The Slurm job that it runs in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slurm_job_id: Option<String>,
    /// The folder of its job logs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub output_dir: String,
    /// The host and the folder of its shim.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub place: String,
    /// The identity of the process `pid`; absent if the machine does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessIdentity>,
    /// The runner's version of Torc, e.g. `0.1.0`.
    pub version: String,
    /// The number of leased jobs that have not started.
    pub queued: i64,
    /// The number of running jobs.
    pub running: i64,
    /// The time of its registration.
    pub start_time: String,
    /// The time of its last report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_contact_time: Option<String>,
    /// The time at which it left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_time: Option<String>,
}

/// The state of a runner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunnerStatus {
    /// It reports to the server.
    Active,
    /// It has not reported for longer than its lease.
    Silent,
    /// It has left, or was declared lost.
    Gone,
}

/// A record of a change. Sequence numbers may have gaps, and events never change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// A number that rises with every event. A watch can continue after the last number that it has read.
    pub sequence: i64,
    /// The time, in RFC 3339.
    pub time: String,
    /// The name of the workflow that it is about; absent for other events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<String>,
    /// The number of the workflow that it is about; absent for other events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow_id: Option<i64>,
    /// The reason in one word, for programs, e.g. `JobsChanged`.
    pub reason: String,
    /// A sentence for readers.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The jobs that changed state, for the reason `JobsChanged`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<JobTransition>,
}

/// A change of a job's state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobTransition {
    /// The job's number, unique in the store.
    pub id: i64,
    /// The job's name; absent if it is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The number of the job's attempt after the change.
    pub attempt: i32,
    /// The state after the change.
    pub status: JobState,
}

/// `POST /v1/workflows/{workflow}/retry`: run jobs again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RetryRequest {
    /// Jobs by name or number; all failed, terminated and canceled ones if empty.
    pub jobs: Vec<String>,
    /// Run all jobs again, as a new run.
    pub all: bool,
    /// Run the named jobs, whose files have changed, and jobs whose user data has changed since they completed.
    pub changed: bool,
    /// Report the jobs without resetting them.
    pub dry_run: bool,
}

/// The number of jobs that a request changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AffectedJobs {
    /// The number of jobs.
    pub jobs: i64,
    /// Names of the first jobs, in a dry run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
}

/// `POST /v1/gc`: delete old records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GcRequest {
    /// The least age in seconds of records to delete.
    pub older_than_seconds: i64,
    /// Report what would be deleted without deleting it.
    #[serde(default)]
    pub dry_run: bool,
}

/// The number of deleted records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GcResponse {
    /// Deleted results of superseded attempts.
    pub results: i64,
    /// The number of deleted events.
    pub events: i64,
    /// Deleted runners that had left.
    pub runners: i64,
    /// Deleted Slurm allocations that had ended.
    #[serde(default)]
    pub allocations: i64,
    /// Log files of deleted results. The caller removes them.
    pub log_files: Vec<String>,
}

/// `POST /v1/backup`: write a copy of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupRequest {
    /// The path of the copy: absolute, on the server's machine, and not existing yet.
    pub path: String,
}

/// An error of the API.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ErrorBody {
    /// The code, for programs.
    pub code: ErrorCode,
    /// A sentence for readers.
    pub message: String,
    /// The field that is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// A hint that helps to solve the problem, often a command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// All problems of a document.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<serde_json::Value>")]
    pub problems: Vec<Problem>,
}

/// `GET /v1/version`: the versions of the server and its protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Version {
    /// The server's version of Torc, e.g. `0.1.0`.
    pub version: String,
    /// The runner protocol's version.
    pub protocol: u32,
}

/// A Slurm cluster and how to reach it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SlurmCluster {
    /// The name of the SlurmCluster; `local` for the Slurm of the server's machine.
    pub name: String,
    /// The generation of the document; 0 for the Slurm of this machine, which has no document.
    pub generation: i64,
    /// The time at which it was first applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<String>,
    /// The cluster in the document.
    pub spec: SlurmClusterSpec,
    /// The status of the cluster; absent until Slurm was contacted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<SlurmClusterStatus>,
}

/// The change that an apply made to a SlurmCluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterApplied {
    /// The name of the SlurmCluster.
    pub name: String,
    /// The change of the cluster.
    pub outcome: ApplyOutcome,
}

#[cfg(test)]
mod tests;
