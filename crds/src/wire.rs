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

/// The version of these messages. A server speaks this one and the one before.
pub const PROTOCOL: u32 = 1;
/// How long a lease lasts unless the workflow says otherwise.
pub const LEASE_SECONDS: u64 = 120;
/// The longest time a sync waits on the server.
pub const LONG_POLL_SECONDS: u64 = 30;

/// Amounts of what a node has and a job needs. Memory is in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Resources {
    /// CPUs.
    pub cpus: i64,
    /// Bytes of memory.
    pub memory_bytes: i64,
    /// GPUs.
    pub gpus: i64,
    /// Nodes.
    pub nodes: i64,
}

/// What kind of place a runner lives in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunnerKind {
    /// This machine.
    #[default]
    Local,
    /// A Slurm allocation.
    Slurm,
    /// A machine reached over SSH.
    Remote,
    /// A Kubernetes Pod.
    Pod,
}

/// Which workflows a runner serves.
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

/// `POST /v1/runners`: a runner introduces itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RegisterRequest {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// The runner's version.
    pub version: String,
    /// Host name.
    pub host: String,
    /// Process id of the runner.
    pub pid: u32,
    /// What kind of place it lives in.
    #[serde(default)]
    pub kind: RunnerKind,
    /// What the runner may use in total.
    pub capacity: Resources,
    /// The queue strategy: this many jobs at once, whatever they need.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_parallel_jobs: Option<u32>,
    /// Labels: which labelled jobs it may run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// Which workflows it serves.
    #[serde(default)]
    pub scope: RunnerScope,
    /// The Slurm scheduler whose allocation it lives in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<String>,
    /// The Slurm job it lives in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slurm_job_id: Option<String>,
    /// The name of the allocation it lives in, e.g. `torc-wf3-a12`, if it was told one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation: Option<String>,
    /// Where its job logs are.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub output_dir: String,
    /// Where its shim is found (host and folder). A runner in the place of an earlier one is its successor: what the
    /// earlier one held and the successor's first sync does not name is gone.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub place: String,
    /// The process behind `pid`; absent where the machine does not tell.
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
    /// The server's version.
    pub version: String,
    /// A runner that is silent for so long loses its leases.
    pub lease_ms: u64,
}

/// Names one attempt of one job; `lease_id` is the lease's number, so that a lease that was taken back is told from its successor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AttemptKey {
    /// The workflow's number.
    pub workflow: i64,
    /// The job's number.
    pub job: i64,
    /// The run.
    pub run: i32,
    /// The attempt.
    pub attempt: i32,
    /// The lease.
    pub lease_id: i64,
}

impl AttemptKey {
    /// The attempt in the names of log files and Slurm steps: `wf1_j2_r1_a3`.
    pub fn label(&self) -> String {
        format!("wf{}_j{}_r{}_a{}", self.workflow, self.job, self.run, self.attempt)
    }

    /// The logs that a runner writes while the attempt runs: standard output, standard error, and both in one, whichever there are.
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
    /// Its shim was there before it, so it knows of everything that was started in its place. Otherwise nobody knows what
    /// a predecessor may have started.
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
    /// What Slurm's accounting said of steps whose end was reported before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slurm_stats: Vec<SlurmStats>,
    /// Leases that the runner gives back unstarted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub returned: Vec<AttemptKey>,
    /// Those of them that it returns because too little of its time is left.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub out_of_time: Vec<AttemptKey>,
    /// How much more work it could use.
    #[serde(default)]
    pub want: WorkRequest,
    /// How long it is willing to wait for work.
    #[serde(default)]
    pub wait_ms: u64,
    /// How long until it has to end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaining_ms: Option<u64>,
    /// How long it wants to be allowed to be silent; the workflows' wish when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_seconds: Option<u32>,
    /// It takes no more work, but still holds some.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopping: bool,
    /// It holds nothing more, is about to leave in order, and asks for what is to be run at a worker's end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub completing: bool,
    /// It is leaving: it takes no more work, and what it holds is in this message.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leaving: bool,
}

/// How much more work a runner could use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkRequest {
    /// What would be free once everything that is queued has started: jobs are packed into it.
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
    /// Which attempt.
    pub key: AttemptKey,
    /// How long it has been running.
    pub elapsed_ms: u64,
}

/// An attempt that ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FinishedAttempt {
    /// Which attempt.
    pub key: AttemptKey,
    /// Exit code; 128 + signal for one that was killed; −128 for one that was lost.
    pub return_code: i32,
    /// Why it did not succeed; absent when it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// How long it ran.
    pub duration_ms: u64,
    /// How long ago it ended.
    pub ended_ms_ago: u64,
    /// Where its output is; absent when there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<String>,
    /// Where its error output is; absent when there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
    /// What was measured of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// A sentence about what happened, e.g. why it could not be started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What it read, as found before its start, and what it wrote; only of an attempt that succeeded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileStat>,
    /// What Slurm's accounting said of it, if that is known already.
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
    /// When it was last changed, in milliseconds since 1970, by the clock of its file system.
    pub modified_ms: i64,
    /// SHA-256 in hexadecimal digits; absent for a folder and for what was too large to be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// What was measured of an attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// The most memory at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<i64>,
    /// Memory on average.
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
    /// How busy its GPUs were on average, 100 for one.
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
    /// New work.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leases: Vec<Lease>,
    /// What the leases have in common; a lease names its profile by index.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<Profile>,
    /// What jobs of the leases' workflows show to the server: one for each workflow, for them and for nobody else.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub job_tokens: Vec<JobToken>,
    /// Attempts that the runner must end and not report as failed: cancelled, or no longer its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cancel: Vec<AttemptKey>,
    /// Queued leases that the runner must give back if it has not started them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub give_back: Vec<AttemptKey>,
    /// Reports that changed nothing, because a newer attempt exists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<AttemptKey>,
    /// What the runner should do next.
    #[serde(default)]
    pub verdict: RunnerDirective,
    /// A runner that is silent for so long loses its leases.
    pub lease_ms: u64,
    /// How far to lease ahead, when the workflow says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefetch: Option<Prefetch>,
    /// How long the runner stays, as the workflows that it serves say.
    #[serde(default)]
    pub terms: RunnerPolicy,
    /// Something is pending that could still add work or nodes: being idle is no reason to leave.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub capacity_expected: bool,
}

/// What the jobs of a workflow show to the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobToken {
    /// The workflow's number.
    pub workflow: i64,
    /// The token.
    pub token: String,
}

/// How long a runner stays. Where it serves several workflows the most patient one decides, field by field.
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

/// What a runner should do next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum RunnerDirective {
    /// Go on.
    #[default]
    Continue,
    /// Everything it serves has settled.
    Complete,
    /// What it serves was cancelled.
    Canceled,
    /// It must not take part any more, e.g. because its allocation has ended.
    Leave,
}

/// A job promised to a runner, with everything that is needed to start it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Lease {
    /// Which attempt.
    pub key: AttemptKey,
    /// The job's name.
    pub name: String,
    /// What to run.
    pub command: String,
    /// Index into the answer's profiles.
    pub profile: u32,
    /// Priority of the job. A runner starts the most urgent of the leases that wait in it first.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: i64,
    /// Declared runtimes along the longest chain of jobs that waits for this one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub downstream_seconds: u32,
    /// What it is. Only a job takes resources; everything else starts at once, even on a full node.
    #[serde(default, skip_serializing_if = "LeaseRole::is_job")]
    pub role: LeaseRole,
    /// Environment variables of this lease alone, over those of the profile.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

fn is_zero<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
}

/// What a lease is.
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
    /// It is an attempt of a job.
    pub const fn is_job(&self) -> bool {
        matches!(self, Self::Job)
    }

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        self.into_str()
    }

    /// The name of a lease's log files, without extension: `job_wf1_j2_r1_a3`, `action_wf1_n7_r1_a1`.
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

/// What leases have in common.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Profile {
    /// What the job needs on each of its nodes.
    pub resources: Resources,
    /// How long it is expected to run.
    pub runtime_seconds: i64,
    /// The job declared no requirements: no limits are enforced.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unlimited: bool,
    /// The workflow's name, for people.
    pub workflow_name: String,
    /// The folder the command runs in.
    pub working_dir: String,
    /// Environment variables of the workflow and the job.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// A prefix of the command, or a script before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub invocation_script: Option<String>,
    /// Where output goes.
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
    /// How jobs are started, limited and ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_config: Option<ExecutionConfig>,
    /// What is measured.
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

/// A result with the time of day at which the attempt ended: whoever replays it may be another host, days later.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JournalledResult {
    /// When the attempt ended, in milliseconds since 1970 on the clock of its host.
    pub ended_ms: i64,
    /// The number under which the runner was registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner: Option<i64>,
    /// The job's name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// How it ended; `endedMsAgo` says nothing here.
    pub finished: FinishedAttempt,
}

/// The answer to a replay: what became of each result, in the order of the request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplayResponse {
    /// One for each result.
    pub replayed: Vec<Replayed>,
}

/// What became of a replayed result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Replayed {
    /// Which attempt.
    pub key: AttemptKey,
    /// What became of it.
    pub outcome: ReplayOutcome,
    /// Why it was rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What became of a replayed result.
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
