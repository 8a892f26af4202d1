//! The runner protocol: a runner registers once, then it reports its state with each sync and receives leases and
//! directives.
//!
//! Times are durations, measured on each side with a clock that continues during suspend; neither side trusts the
//! other's clock. The server believes what a runner reports about its leases. A sequence number orders the messages of
//! one registration.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::execution::{ExecutionConfig, ResourceMonitor, Stdio};
use crate::failure::Prefetch;
use crate::slurm_stats::SlurmStats;
use crate::state::Cause;

/// The version of these messages. A server accepts this version and the previous one.
pub const PROTOCOL: u32 = 1;
/// The default duration of a lease in seconds.
pub const LEASE_SECONDS: u64 = 120;
/// The longest time that a sync waits for work, in seconds.
pub const LONG_POLL_SECONDS: u64 = 30;

/// Amounts of resources that a node has or a job needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Resources {
    /// The number of CPUs.
    pub cpus: i64,
    /// The amount of memory in bytes.
    pub memory_bytes: i64,
    /// The number of GPUs.
    pub gpus: i64,
    /// The number of nodes.
    pub nodes: i64,
}

/// The environment of a runner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunnerKind {
    /// A machine on which the runner was started directly.
    #[default]
    Local,
    /// A node of a Slurm allocation.
    Slurm,
    /// A machine reached over SSH.
    Remote,
    /// A Pod of a runner pool in Kubernetes.
    Pod,
}

/// The workflows that a runner serves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum RunnerScope {
    /// Every workflow of the store.
    #[default]
    All,
    /// The workflows that were applied since the server started. A foreground `torc apply` runs these.
    Session,
    /// One workflow, as `name`, `namespace/name` or number.
    Workflow(String),
}

/// `POST /v1/runners`: register a runner.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RegisterRequest {
    /// The version of the protocol that the runner speaks: its [`PROTOCOL`].
    pub protocol: u32,
    /// The runner's version of Torc, e.g. `0.1.0`.
    pub version: String,
    /// The name of the runner's host.
    pub host: String,
    /// The process ID of the runner.
    pub pid: u32,
    /// The environment that the runner runs in.
    #[serde(default)]
    pub kind: RunnerKind,
    /// The resources that the runner may use in total.
    pub capacity: Resources,
    /// The number of jobs at once for the queue strategy, which ignores resources; absent for the resource strategy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_parallel_jobs: Option<u32>,
    /// The labels of the runner. It runs only jobs whose labels are among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// The workflows that it serves.
    #[serde(default)]
    pub scope: RunnerScope,
    /// The Slurm scheduler whose allocation it runs in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<String>,
    /// The Slurm job that it runs in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slurm_job_id: Option<String>,
    /// The name of the allocation that it runs in, e.g. `torc-wf3-a12`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation: Option<String>,
    /// The folder of its job logs.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub output_dir: String,
    /// The host and folder of its shim. A runner in the same place as an earlier one is its successor. Leases of the
    /// earlier runner are lost if the first sync of the successor does not name them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub place: String,
    /// The identity of the process `pid`; absent if the machine does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessIdentity>,
}

/// The identity of a process on one machine. A PID alone is ambiguous: PIDs are reused, and each namespace has its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProcessIdentity {
    /// The boot of the machine, for which Linux creates a random ID.
    pub boot_id: String,
    /// The PID namespace that the PID belongs to.
    pub pid_namespace: String,
    /// The start of the process, in clock ticks since the boot.
    pub start_ticks: u64,
}

/// The answer to a registration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RegisterResponse {
    /// The runner's number, for the path of its syncs.
    pub runner: i64,
    /// The server's version of Torc, e.g. `0.1.0`.
    pub version: String,
    /// Milliseconds of silence after which the runner loses its leases.
    pub lease_ms: u64,
}

/// The identity of one lease of one attempt. `lease_id` distinguishes a revoked lease from its successor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AttemptKey {
    /// The workflow's number, unique in the store.
    pub workflow: i64,
    /// The number of the job, or of the action for a lease with the role `action`.
    pub job: i64,
    /// The number of the run, counted from 1.
    pub run: i32,
    /// The number of the attempt, counted from 1 in each run.
    pub attempt: i32,
    /// The number of the lease, new for every lease of the same attempt.
    pub lease_id: i64,
}

impl AttemptKey {
    /// Returns the attempt in the names of log files and Slurm steps: `wf1_j2_r1_a3`.
    pub fn label(&self) -> String {
        format!("wf{}_j{}_r{}_a{}", self.workflow, self.job, self.run, self.attempt)
    }

    /// Returns the possible paths of the attempt's logs: standard output, standard error, and both in one.
    pub fn log_files(&self, output_dir: &str) -> [String; 3] {
        let stem = format!("{}/job_stdio/job_{}", output_dir.trim_end_matches('/'), self.label());
        ["o", "e", "log"].map(|extension| format!("{stem}.{extension}"))
    }
}

impl From<&SlurmStats> for AttemptKey {
    /// Returns the attempt that the record is about, without a lease.
    fn from(stats: &SlurmStats) -> Self {
        Self { workflow: stats.workflow, job: stats.job, run: stats.run, attempt: stats.attempt, lease_id: 0 }
    }
}

/// `POST /v1/runners/{id}/sync`: the state of a runner, and the work that it requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SyncRequest {
    /// A number that rises with every message of this registration. The server answers a repeated number again without
    /// applying it twice.
    pub sequence: u64,
    /// The highest sequence number whose answer the runner has processed. If none of the lists below has a lease of
    /// such an answer, the runner does not hold it. The runner must ignore answers that arrive out of order.
    #[serde(default)]
    pub acknowledged: u64,
    /// The shim ran before the runner started, so the runner knows every job that was started in its place. Otherwise
    /// the jobs of a predecessor are unknown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shim_found: bool,
    /// Leases that wait in the runner and have not started.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queued: Vec<AttemptKey>,
    /// Leases whose jobs run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub running: Vec<RunningAttempt>,
    /// Attempts that ended since the last answered message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finished: Vec<FinishedAttempt>,
    /// Slurm's accounting of steps whose end was reported before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slurm_stats: Vec<SlurmStats>,
    /// Leases that the runner returns without having started them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub returned: Vec<AttemptKey>,
    /// The part of `returned` for which too little of the runner's time is left.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub out_of_time: Vec<AttemptKey>,
    /// The work that it requests.
    #[serde(default)]
    pub want: WorkRequest,
    /// The longest time to wait for work, in milliseconds.
    #[serde(default)]
    pub wait_ms: u64,
    /// Milliseconds until the runner has to end; absent for no end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaining_ms: Option<u64>,
    /// The requested duration of its leases in seconds; if absent, the workflows decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_seconds: Option<u32>,
    /// The runner takes no more work, but still holds jobs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopping: bool,
    /// The runner holds no more jobs and is about to leave, so it requests the actions for a worker's end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub completing: bool,
    /// The runner leaves: it takes no more work, and this message reports all that it holds.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leaving: bool,
}

/// The work that a runner requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkRequest {
    /// The resources that are free once all leased jobs have started.
    pub free: Resources,
    /// The number of jobs to lease beyond that if they are alike, so that their order does not matter. Each must fit
    /// the empty runner.
    pub ahead: u32,
    /// The part of `ahead` that bridges a round trip to the server. It limits the jobs that differ in urgency or
    /// requirements. So the server can give the others to the runner that first has room for them.
    #[serde(default)]
    pub bridge: u32,
    /// The largest number of jobs in one answer.
    pub limit: u32,
}

/// An attempt that runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunningAttempt {
    /// The attempt and its lease.
    pub key: AttemptKey,
    /// Milliseconds since its start.
    pub elapsed_ms: u64,
}

/// An attempt that ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FinishedAttempt {
    /// The attempt and its lease.
    pub key: AttemptKey,
    /// The exit code; 128 + signal if it was killed; −128 if it was lost.
    pub return_code: i32,
    /// The cause of the failure; absent if it succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// The duration in milliseconds.
    pub duration_ms: u64,
    /// Milliseconds since its end.
    pub ended_ms_ago: u64,
    /// The path of its standard output; absent when it wrote none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<String>,
    /// The path of its standard error; absent when it wrote none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
    /// The measured resource usage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// A sentence about what happened, e.g. why it could not be started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Its input files, as found before its start, and its output files; empty unless the attempt succeeded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileStat>,
    /// Slurm's accounting of it, if it is known already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slurm_stats: Option<Box<SlurmStats>>,
}

/// The state of a file that a runner found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FileStat {
    /// The path as the document has it.
    pub path: String,
    /// The size in bytes; 0 for a folder.
    pub size_bytes: i64,
    /// The modification time in milliseconds since 1970, by the clock of its file system.
    pub modified_ms: i64,
    /// The SHA-256 hash in hexadecimal digits; absent for folders and for files that were too large to be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// The resource usage of an attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// The peak memory in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<i64>,
    /// The average memory in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub average_memory_bytes: Option<i64>,
    /// The peak CPU use in percent; 100 for one core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_cpu_percent: Option<f64>,
    /// The average CPU use in percent; 100 for one core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub average_cpu_percent: Option<f64>,
    /// The peak GPU utilization in percent; 100 for one busy GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_gpu_percent: Option<f64>,
    /// The average GPU utilization in percent; 100 for one busy GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub average_gpu_percent: Option<f64>,
    /// The peak memory in use on its GPUs, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_gpu_memory_bytes: Option<i64>,
}

/// The answer to a sync, with leases and directives. It means that everything in the request is durable.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SyncResponse {
    /// The request's sequence number.
    pub sequence: u64,
    /// Attempts that the runner may start from now on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leases: Vec<Lease>,
    /// The profiles of the leases; a lease names its profile by index.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<Profile>,
    /// The tokens with which jobs call the server: one for each workflow of the leases.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub job_tokens: Vec<JobToken>,
    /// Attempts that the runner must end and not report as failed: canceled ones, or ones of other runners.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cancel: Vec<AttemptKey>,
    /// Queued leases that the runner must give back if it has not started them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub give_back: Vec<AttemptKey>,
    /// Reports that changed nothing, because a newer attempt exists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<AttemptKey>,
    /// The next step of the runner.
    #[serde(default)]
    pub directive: RunnerDirective,
    /// Milliseconds of silence after which the runner loses its leases.
    pub lease_ms: u64,
    /// The prefetch settings of the workflows, if they have any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefetch: Option<Prefetch>,
    /// The settings that decide how long the runner stays.
    #[serde(default)]
    pub terms: RunnerPolicy,
    /// Work or nodes may still be added, so a runner without work should not leave.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub capacity_expected: bool,
}

/// The token with which the jobs of a workflow call the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobToken {
    /// The workflow's number, unique in the store.
    pub workflow: i64,
    /// The token with the scope `runner` for this workflow.
    pub token: String,
}

/// The settings that decide how long a runner stays. With several workflows, the largest value of each field applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RunnerPolicy {
    /// Seconds without work after which it leaves (the longest of its workflows).
    pub wait_for_new_jobs_seconds: u64,
    /// It stays after everything has completed (if one of its workflows says so).
    pub ignore_workflow_completion: bool,
    /// With the queue strategy, the least remaining seconds with which it takes jobs (the longest of its workflows).
    pub min_time_for_new_jobs_seconds: u64,
    /// Minutes it keeps trying to reach the server before it drains offline (the longest of its workflows).
    pub wait_for_healthy_database_minutes: u64,
}

impl Default for RunnerPolicy {
    fn default() -> Self {
        Self {
            wait_for_new_jobs_seconds: 90,
            ignore_workflow_completion: false,
            min_time_for_new_jobs_seconds: 300,
            wait_for_healthy_database_minutes: 20,
        }
    }
}

/// The next step of a runner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum RunnerDirective {
    /// Nothing ends: the runner goes on with its work.
    #[default]
    Continue,
    /// All workflows that it serves have ended.
    Complete,
    /// All workflows that it serves were canceled.
    Canceled,
    /// It must leave, e.g. because its allocation has ended.
    Leave,
}

/// A job that is leased to a runner, with everything that is needed to start it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Lease {
    /// The attempt and its lease.
    pub key: AttemptKey,
    /// The job's name, for logs.
    pub name: String,
    /// The command after expansion of parameters and variables.
    pub command: String,
    /// The index of its profile in `profiles` of the answer.
    pub profile: u32,
    /// The priority of the job. A runner starts the most urgent of its waiting leases first.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: i64,
    /// The sum of declared runtimes, in seconds, along the longest chain of jobs that wait for this one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub downstream_seconds: u32,
    /// The role of the lease. Only jobs take resources; the others start at once, even on a full node.
    #[serde(default, skip_serializing_if = "LeaseRole::is_job")]
    pub role: LeaseRole,
    /// Environment variables of this lease alone, over those of the profile.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

fn is_zero<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
}

/// The role of a lease.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
    strum::EnumString,
    strum::IntoStaticStr,
)]
#[strum(serialize_all = "snake_case", const_into_str, parse_err_ty = String, parse_err_fn = unknown_role)]
#[serde(rename_all = "snake_case")]
pub enum LeaseRole {
    /// An attempt of a job.
    #[default]
    Job,
    /// The commands of an action. The `job` of the key is the action's number.
    Action,
    /// The recovery script of a job whose attempt failed. The key is that attempt's, with its own `lease_id`.
    Recovery,
}

impl LeaseRole {
    /// Returns whether the lease is of a job.
    pub const fn is_job(&self) -> bool {
        matches!(self, Self::Job)
    }

    /// Returns the name of the role in the store.
    pub const fn as_str(self) -> &'static str {
        self.into_str()
    }

    /// Returns the name of a lease's log files without extension: `job_wf1_j2_r1_a3`, `action_wf1_n7_r1_a1`.
    pub fn log_name(self, key: &AttemptKey) -> String {
        match self {
            Self::Job => format!("job_{}", key.label()),
            Self::Action => format!("action_wf{}_n{}_r{}_a{}", key.workflow, key.job, key.run, key.attempt),
            Self::Recovery => format!("recovery_{}", key.label()),
        }
    }
}

fn unknown_role(text: &str) -> String {
    format!("unknown kind of lease '{text}'")
}

/// The properties that several leases share.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Profile {
    /// The resources of the job on each of its nodes.
    pub resources: Resources,
    /// The expected duration in seconds.
    pub runtime_seconds: i64,
    /// The job declares no requirements, so no limits are enforced.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unlimited: bool,
    /// The workflow's name, for readers.
    pub workflow_name: String,
    /// The folder the command runs in.
    pub working_dir: String,
    /// Environment variables of the workflow and the job.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// A prefix of the command, or a script that runs before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invocation_script: Option<String>,
    /// The streams to keep, and their files; those of the execution configuration if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdio: Option<Stdio>,
    /// Files that must exist before the job starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub input_files: Vec<String>,
    /// Files are read for their hash, however large they are.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hash_large_files: bool,
    /// Files that must exist after the job has succeeded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub output_files: Vec<String>,
    /// Settings for the start, the limits and the end of jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_config: Option<ExecutionConfig>,
    /// Settings for the measurement of CPU and memory use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_monitor: Option<ResourceMonitor>,
    /// The number of tasks per node if the command is itself the parallel program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks_per_node: Option<i32>,
}

/// `POST /v1/workflows/{workflow}/runs/{run}/results`: results that runners wrote down while the server was away.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplayRequest {
    /// The results, of this workflow and run.
    pub results: Vec<JournalledResult>,
}

/// A result with the wall-clock time of its end, because it may be replayed on another host, days later.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JournalledResult {
    /// The end of the attempt in milliseconds since 1970, by the clock of its host.
    pub ended_ms: i64,
    /// The number under which the runner was registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner: Option<i64>,
    /// The job's name, for messages; absent if it is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The end of the attempt; `endedMsAgo` is ignored.
    pub finished: FinishedAttempt,
}

/// The answer to a replay: the outcome of each result, in the order of the request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplayResponse {
    /// The outcomes, one for each result.
    pub replayed: Vec<Replayed>,
}

/// The outcome of a replayed result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Replayed {
    /// The attempt that the result is about.
    pub key: AttemptKey,
    /// The effect of the result on the store.
    pub outcome: ReplayOutcome,
    /// The reason for a rejection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The outcome of a replayed result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ReplayOutcome {
    /// The result counts from now on.
    Accepted,
    /// The result was already in the store, so nothing has changed.
    AlreadyKnown,
    /// The result does not count, and nothing has changed.
    Rejected,
}

#[cfg(test)]
mod tests;
