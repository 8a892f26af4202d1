//! The runner protocol: register once, then one call that says what is and is answered with what should be.
//!
//! Times are durations, measured on each side with a clock that goes on during suspend; no side trusts the other's clock.
//! What a runner says it holds is the truth. A sequence number orders the messages of one registration.

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

/// Amounts of what a node has and a job needs. Memory is in bytes.
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
    /// A machine on which `torc` itself was started.
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
    /// The workflows that were applied since the server started: what a foreground `torc apply` runs.
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
    /// The version of Torc that the runner is.
    pub version: String,
    /// The name of the runner's host.
    pub host: String,
    /// Process id of the runner.
    pub pid: u32,
    /// The environment that the runner runs in.
    #[serde(default)]
    pub kind: RunnerKind,
    /// The resources that the runner may use in total.
    pub capacity: Resources,
    /// The number of jobs at once for the queue strategy, which ignores resources; absent for the other strategy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_parallel_jobs: Option<u32>,
    /// Labels. It runs only jobs with a subset of them.
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
    /// The host and folder of its shim. A runner in the place of an earlier one is its successor: leases of the
    /// earlier one that the successor's first sync does not name are lost.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub place: String,
    /// The identity of the process `pid`; absent if the machine does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessIdentity>,
}

/// A process of one machine. A PID alone is ambiguous: PIDs are reused, and each namespace has its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProcessIdentity {
    /// The boot of the machine: Linux makes a random one at each.
    pub boot_id: String,
    /// The PID namespace that the PID is of.
    pub pid_namespace: String,
    /// Start of the process, in clock ticks since the boot.
    pub start_ticks: u64,
}

/// The answer to a registration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RegisterResponse {
    /// The runner's number, for the path of its syncs.
    pub runner: i64,
    /// The version of Torc that the server is.
    pub version: String,
    /// Milliseconds of silence after which the runner loses its leases.
    pub lease_ms: u64,
}

/// Identifies one lease of one attempt. `lease_id` distinguishes a revoked lease from its successor.
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

    /// Returns the paths of the logs that the attempt may have: standard output, standard error, and both in one.
    pub fn log_files(&self, output_dir: &str) -> [String; 3] {
        let stem = format!("{}/job_stdio/job_{}", output_dir.trim_end_matches('/'), self.label());
        ["o", "e", "log"].map(|extension| format!("{stem}.{extension}"))
    }
}

impl From<&SlurmStats> for AttemptKey {
    /// Returns the attempt that the numbers are about, of whatever lease.
    fn from(stats: &SlurmStats) -> Self {
        Self { workflow: stats.workflow, job: stats.job, run: stats.run, attempt: stats.attempt, lease_id: 0 }
    }
}

/// `POST /v1/runners/{id}/sync`: what is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SyncRequest {
    /// Rises with every message of this registration; a repeated number is answered again and changes nothing twice.
    pub sequence: u64,
    /// The highest sequence number whose answer the runner has taken in. A lease of such an answer that is in none of the
    /// lists below is one that the runner does not have. Answers that arrive out of order must be thrown away.
    #[serde(default)]
    pub acknowledged: u64,
    /// Its shim was running before it, so it knows every job that was started in its place. Otherwise the jobs of a
    /// predecessor are unknown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shim_found: bool,
    /// Leases that wait in the runner.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queued: Vec<AttemptKey>,
    /// Leases whose job runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub running: Vec<RunningAttempt>,
    /// Attempts that ended since the last answered message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finished: Vec<FinishedAttempt>,
    /// Slurm's accounting of steps whose end was reported before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slurm_stats: Vec<SlurmStats>,
    /// Leases that the runner gives back unstarted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub returned: Vec<AttemptKey>,
    /// Those of them that it returns because too little of its time is left.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub out_of_time: Vec<AttemptKey>,
    /// The work that it requests.
    #[serde(default)]
    pub want: WorkRequest,
    /// The longest time to wait for work, in milliseconds.
    #[serde(default)]
    pub wait_ms: u64,
    /// Milliseconds until it has to end; absent for no end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaining_ms: Option<u64>,
    /// The requested duration of its leases in seconds; that of the workflows when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_seconds: Option<u32>,
    /// It takes no more work, but still holds some.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopping: bool,
    /// It holds no more jobs and is about to leave, so it requests the actions for a worker's end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub completing: bool,
    /// It is leaving: it takes no more work, and what it holds is in this message.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leaving: bool,
}

/// The work that a runner requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkRequest {
    /// The resources that are free once all leased jobs have started.
    pub free: Resources,
    /// Jobs to lease beyond that if they are alike, so that their order does not matter. Each fits the runner when it is empty.
    pub ahead: u32,
    /// Those of them that bridge a round trip to the server. Of jobs that differ in urgency or requirements no more are leased ahead:
    /// the server can still give the rest to the runner that first has room for them.
    #[serde(default)]
    pub bridge: u32,
    /// The most jobs in one answer.
    pub limit: u32,
}

/// A job that runs.
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
    /// Exit code; 128 + signal for one that was killed; −128 for one that was lost.
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
    /// Its input files, as found before its start, and its output files; only of an attempt that succeeded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileStat>,
    /// Slurm's accounting of it, if it is known already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slurm_stats: Option<Box<SlurmStats>>,
}

/// A file as a runner saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FileStat {
    /// As the document writes it.
    pub path: String,
    /// Its size; 0 for a folder.
    pub size_bytes: i64,
    /// The modification time in milliseconds since 1970, by the clock of its file system.
    pub modified_ms: i64,
    /// SHA-256 in hexadecimal digits; absent for a folder and for what was too large to be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// The resource usage of an attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// The most memory at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<i64>,
    /// The average memory in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub average_memory_bytes: Option<i64>,
    /// The most CPU at once, 100 for one core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_cpu_percent: Option<f64>,
    /// CPU on average, 100 for one core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub average_cpu_percent: Option<f64>,
    /// The busiest that its GPUs were, 100 for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_gpu_percent: Option<f64>,
    /// The average GPU utilization in percent; 100 for one busy GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub average_gpu_percent: Option<f64>,
    /// The most memory in use on its GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_gpu_memory_bytes: Option<i64>,
}

/// The answer to a sync: what should be. An answer means that everything in the request is durable.
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
    /// Something is pending that could still add work or nodes: being idle is no reason to leave.
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
    /// It leaves when it has had nothing to do for so long (the longest of its workflows).
    pub wait_for_new_jobs_seconds: u64,
    /// It stays after everything has completed (if any of its workflows says so).
    pub ignore_workflow_completion: bool,
    /// By number of jobs, it takes none when less time than this is left (the longest of its workflows).
    pub min_time_for_new_jobs_seconds: u64,
    /// It keeps trying to reach the server for so long before it drains offline (the longest of its workflows).
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
    /// Everything it serves has settled.
    Complete,
    /// Its workflows were canceled.
    Canceled,
    /// It must not take part any more, e.g. because its allocation has ended.
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
    /// Index into the answer's profiles.
    pub profile: u32,
    /// Priority of the job. A runner starts the most urgent of the leases that wait in it first.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: i64,
    /// Declared runtimes along the longest chain of jobs that waits for this one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub downstream_seconds: u32,
    /// Its role. Only a job takes resources; the others start at once, even on a full node.
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
    /// The commands of an action; the key's job is the action's number.
    Action,
    /// The recovery script of a job whose attempt failed; the key is that attempt's, with an lease_id of its own.
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
    format!("'{text}' is no kind of lease")
}

/// The properties that several leases share.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Profile {
    /// The resources of the job on each of its nodes.
    pub resources: Resources,
    /// The expected duration in seconds.
    pub runtime_seconds: i64,
    /// The job declared no requirements: no limits are enforced.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unlimited: bool,
    /// The workflow's name, for readers.
    pub workflow_name: String,
    /// The folder the command runs in.
    pub working_dir: String,
    /// Environment variables of the workflow and the job.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// A prefix of the command, or a script before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invocation_script: Option<String>,
    /// Streams that are kept, and how; those of the execution configuration when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdio: Option<Stdio>,
    /// Files that must exist before the job starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub input_files: Vec<String>,
    /// Every file is read for its hash, however large it is.
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
    /// Tasks per node, when the command is itself the parallel program.
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

/// The answer to a replay: what became of each result, in the order of the request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplayResponse {
    /// One for each result.
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
    /// It counts from now on.
    Accepted,
    /// It was written down before; nothing has changed.
    AlreadyKnown,
    /// It does not count, and nothing has changed.
    Rejected,
}

#[cfg(test)]
mod tests;
