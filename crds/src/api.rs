//! What the HTTP API gives out: one type a resource, camelCase, RFC 3339 in UTC, absent instead of null.

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

/// A page of a list; `next` is the cursor of the following one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Page<T> {
    /// The items of this page.
    pub items: Vec<T>,
    /// Pass it as `cursor` to get the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl<T> Page<T> {
    /// A list that is complete.
    pub fn whole(items: Vec<T>) -> Self {
        Self { items, next: None }
    }
}

/// `POST /v1/workflows`: make the world match this document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApplyRequest {
    /// The document.
    pub document: WorkflowDocument,
    /// The folder jobs run in; used when the workflow is new.
    pub working_dir: String,
    /// Only say what would change.
    #[serde(default)]
    pub dry_run: bool,
    /// Only store it: where the owner of a folder's store runs what it is given, it leaves a new workflow alone until
    /// somebody asks for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub store_only: bool,
}

/// What an apply did, or would do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApplyResponse {
    /// The workflow's name.
    pub name: String,
    /// The workflow's namespace.
    pub namespace: String,
    /// The workflow's number; absent for a dry run of a new workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<i64>,
    /// What happened to the workflow.
    pub outcome: ApplyOutcome,
    /// What happened to its jobs.
    pub changes: JobChanges,
}

/// Somebody did something, or was refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditEntry {
    /// Rises.
    pub sequence: i64,
    /// When.
    pub time: String,
    /// Who.
    pub who: String,
    /// What their token allows: `admin`, `owner`, `runner` or `metrics`.
    pub scope: String,
    /// What they did.
    pub verb: String,
    /// To what.
    pub object: String,
    /// What came of it: `ok`, or the code of the error.
    pub outcome: String,
}

/// What an apply did to a workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ApplyOutcome {
    /// It is new.
    Created,
    /// It has changed.
    Configured,
    /// Nothing has changed.
    Unchanged,
}

/// What an apply did to jobs, by name. Lists hold at most 1,000 names each; the counts are complete.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct JobChanges {
    /// New jobs.
    pub added: JobNames,
    /// Jobs that are gone.
    pub removed: JobNames,
    /// Jobs that run again because their definition changed.
    pub changed: JobNames,
    /// Jobs that run again because the document asks for a new run.
    pub rerun: JobNames,
    /// Jobs that run again because something they depend on does.
    pub downstream: JobNames,
    /// Jobs whose next attempt has other resources, priority or labels, and that do not run again for it.
    pub adjusted: JobNames,
    /// Jobs that keep what they have.
    pub unchanged: i64,
}

/// Names of jobs and how many there are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct JobNames {
    /// How many.
    pub count: i64,
    /// The first of them.
    pub names: Vec<String>,
}

impl JobNames {
    /// The most names listed.
    pub const LISTED: usize = 1_000;

    /// Adds a name.
    pub fn push(&mut self, name: &str) {
        self.count += 1;
        if self.names.len() < Self::LISTED {
            self.names.push(name.to_owned());
        }
    }
}

/// A workflow: document and status.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Workflow {
    /// The workflow's number.
    pub id: i64,
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Whose it is.
    pub owner: String,
    /// How often the document has changed.
    pub generation: i64,
    /// When it was first applied.
    pub creation_time: String,
    /// The folder jobs run in.
    pub working_dir: String,
    /// Held back by `torc suspend` or the document.
    pub suspended: bool,
    /// Cancelled by `torc cancel` or the document.
    pub canceled: bool,
    /// The SlurmCluster that its jobs run on, if they do not run on this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slurm_cluster: Option<String>,
    /// The document asks for a record of its provenance.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub enable_ro_crate: bool,
    /// The document; absent in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document: Option<WorkflowDocument>,
    /// What is.
    pub status: WorkflowStatus,
}

/// A job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Job {
    /// The job's number.
    pub id: i64,
    /// The workflow's name.
    pub workflow: String,
    /// The job's name.
    pub name: String,
    /// Where it stands.
    pub status: JobState,
    /// The run it belongs to.
    pub run_id: i32,
    /// The current attempt.
    pub attempt: i32,
    /// What it runs.
    pub command: String,
    /// Higher starts first.
    pub priority: i64,
    /// What it needs.
    pub resources: JobResources,
    /// Names of jobs that it depends on; only when one job is asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,
    /// How many jobs it still waits for.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub waiting_for: i64,
    /// Labels a runner must have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// The host that has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The runner that has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner: Option<i64>,
    /// Its runner is silent: whether it still runs is not known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_doubt: bool,
    /// When the current attempt started.
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

/// What a job needs, all per node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobResources {
    /// CPUs.
    pub num_cpus: i64,
    /// Bytes of memory.
    pub memory_bytes: i64,
    /// GPUs.
    pub num_gpus: i64,
    /// Nodes.
    pub num_nodes: i64,
    /// Expected duration.
    pub runtime_seconds: i64,
}

/// One attempt of a job, as it ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobResult {
    /// The workflow's name.
    pub workflow: String,
    /// The job's name.
    pub job: String,
    /// The job's number.
    pub job_id: i64,
    /// The run.
    pub run_id: i32,
    /// The attempt.
    pub attempt: i32,
    /// How it ended: completed, failed, canceled or terminated.
    pub status: JobState,
    /// Exit code; 128 + signal for one that was killed; −128 for one that was lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub return_code: Option<i32>,
    /// Why it did not succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// A sentence about what happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<String>,
    /// When it ended.
    pub end_time: String,
    /// How long it ran.
    pub duration_seconds: f64,
    /// The host it ran on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The runner that ran it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner: Option<i64>,
    /// Where its output is; absent when there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<String>,
    /// Where its error output is; absent when there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
    /// What was measured.
    #[serde(flatten)]
    pub usage: Usage,
}

/// An action of a workflow, or its part for one worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkflowAction {
    /// Its number: the N of its log names.
    pub id: i64,
    /// What sets it off.
    pub trigger_type: TriggerType,
    /// What it does.
    pub action_type: ActionType,
    /// Where it stands.
    pub status: ActionState,
    /// It is carried out once for every worker: this entry stands for those of the workers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub every_worker: bool,
    /// Recovery has made it; it goes when jobs are put back to the start.
    #[serde(default)]
    pub is_recovery: bool,
    /// For `schedule_nodes`: the scheduler's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<String>,
    /// For `schedule_nodes`: how many allocations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub num_allocations: Option<i64>,
    /// The worker that this part is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<i64>,
    /// The run.
    pub run_id: i32,
    /// The attempt.
    pub attempt: i32,
    /// How often it was tried to its end.
    pub tries: i32,
    /// The runner that has it, or had it last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner: Option<i64>,
    /// That runner's host, while it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// When its latest attempt started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<String>,
    /// When its latest attempt ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_time: Option<String>,
    /// Exit code of its latest attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub return_code: Option<i32>,
    /// A sentence about what happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Where its output is; absent when there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<String>,
    /// Where its error output is; absent when there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
    /// What runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<String>,
}

/// A runner.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Runner {
    /// The runner's number.
    pub id: i64,
    /// The host it lives on.
    pub host: String,
    /// Its process.
    pub pid: i64,
    /// What kind of place it lives in.
    pub kind: RunnerKind,
    /// active, silent or gone.
    pub status: RunnerStatus,
    /// What it may use.
    pub capacity: Resources,
    /// Labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// The one workflow it serves; absent for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<String>,
    /// The Slurm job it lives in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slurm_job_id: Option<String>,
    /// Where its job logs are.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub output_dir: String,
    /// Host and folder of its shim.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub place: String,
    /// The process behind `pid`; absent where its machine did not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessIdentity>,
    /// The runner's version.
    pub version: String,
    /// Jobs that wait in it.
    pub queued: i64,
    /// Jobs that it runs.
    pub running: i64,
    /// When it registered.
    pub start_time: String,
    /// When it was last heard of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_contact_time: Option<String>,
    /// When it left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_time: Option<String>,
}

/// Whether a runner is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunnerStatus {
    /// It reports.
    Active,
    /// It has not reported for longer than its lease.
    Silent,
    /// It has left.
    Gone,
}

/// Something that happened, numbered without gaps being promised, never changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// Rises; a watch goes on after the last one seen.
    pub sequence: i64,
    /// When.
    pub time: String,
    /// The workflow's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<String>,
    /// The workflow's number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow_id: Option<i64>,
    /// One word: what kind of thing.
    pub reason: String,
    /// A sentence for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Jobs that changed state, when that is what happened.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<JobTransition>,
}

/// A job changed its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobTransition {
    /// The job's number.
    pub id: i64,
    /// The job's name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The attempt.
    pub attempt: i32,
    /// The new state.
    pub status: JobState,
}

/// `POST /v1/workflows/{workflow}/retry`: which jobs run again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RetryRequest {
    /// Jobs by name or number; empty means every failed, terminated and cancelled one.
    pub jobs: Vec<String>,
    /// Run everything again, as a new run.
    pub all: bool,
    /// Run the named jobs, whose files have changed, and those whose data has changed since they completed.
    pub changed: bool,
    /// Only say which jobs would run again.
    pub dry_run: bool,
}

/// How many jobs something was done to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AffectedJobs {
    /// How many jobs.
    pub jobs: i64,
    /// The first of them, in a dry run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
}

/// `POST /v1/gc`: what to forget.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GcRequest {
    /// Forget what is older than this many seconds.
    pub older_than_seconds: i64,
    /// Only say what would go.
    #[serde(default)]
    pub dry_run: bool,
}

/// What was forgotten.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GcResponse {
    /// Superseded results that are gone.
    pub results: i64,
    /// Events that are gone.
    pub events: i64,
    /// Runners that left and are gone.
    pub runners: i64,
    /// Slurm allocations that are over and gone.
    #[serde(default)]
    pub allocations: i64,
    /// Log files of the results that are gone; the caller removes them.
    pub log_files: Vec<String>,
}

/// `POST /v1/backup`: write a copy of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupRequest {
    /// Where to, an absolute path on the server's machine; nothing may be there yet.
    pub path: String,
}

/// Any error of the API.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ErrorBody {
    /// One word for programs.
    pub code: ErrorCode,
    /// A sentence for people.
    pub message: String,
    /// The field that is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Everything that is wrong with a document.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<serde_json::Value>")]
    pub problems: Vec<Problem>,
}

/// `GET /v1/version`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Version {
    /// The server's version.
    pub version: String,
    /// The runner protocol's version.
    pub protocol: u32,
}

/// A Slurm cluster and how to reach it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SlurmCluster {
    /// Its name.
    pub name: String,
    /// How often the document has changed; 0 for the Slurm of this machine, which needs none.
    pub generation: i64,
    /// When it was first applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<String>,
    /// What the document says.
    pub spec: SlurmClusterSpec,
    /// What is known of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<SlurmClusterStatus>,
}

/// What applying a cluster's document did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterApplied {
    /// The cluster's name.
    pub name: String,
    /// What happened to it.
    pub outcome: ApplyOutcome,
}

#[cfg(test)]
mod tests;
