//!
//! The rows of the store, in plain types.
//!
//! A command returns [`Changes`]. The store writes them in one transaction and decides nothing.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use torc_api::action::{Action, ActionState};
use torc_api::allocation::{AllocationOrigin, AllocationStatus};
use torc_api::execution::Stdio;
use torc_api::resources::SlurmScheduler;
use torc_api::slurm_stats::SlurmStats;
use torc_api::state::{Cause, JobState};
use torc_api::wire::{LeaseRole, ProcessIdentity, Resources, RunnerKind, RunnerScope, Usage};

use crate::expanded::Requirements;
use crate::ids::{AllocationId, JobId, ProfileId, RunnerId, WorkflowId};

/// Everything that one group of commands changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// Workflows that are new or changed, whole.
    pub workflows: Vec<WorkflowRow>,
    /// Workflows that were deleted, with all their rows.
    pub deleted_workflows: Vec<WorkflowId>,
    /// New profiles.
    pub profiles: Vec<ProfileRow>,
    /// Jobs that are new or whose definition changed, whole.
    pub jobs: Vec<JobRow>,
    /// Jobs that are no longer part of their workflow; their results stay.
    pub removed_jobs: Vec<JobId>,
    /// Jobs that moved; the last entry of a job wins.
    pub job_updates: Vec<JobUpdate>,
    /// Actions that are new or changed, whole.
    pub actions: Vec<ActionRow>,
    /// Actions that are no longer part of their workflow.
    pub removed_actions: Vec<JobId>,
    /// Jobs that wait for a recovery script, new or changed, whole.
    pub recoveries: Vec<RecoveryRow>,
    /// Jobs that wait for theirs no longer.
    pub ended_recoveries: Vec<JobId>,
    /// Attempts that ended.
    pub results: Vec<ResultRow>,
    /// Slurm's accounting of steps; the last entry of an attempt wins.
    pub slurm_stats: Vec<SlurmStats>,
    /// Files as jobs that succeeded found or left them; the last entry of a job and path wins.
    pub files: Vec<FileRow>,
    /// Data that is new or changed, whole; the last entry of a name wins.
    pub user_data: Vec<UserDataRow>,
    /// Data that is gone; none of it is also in `user_data`.
    pub removed_user_data: Vec<(WorkflowId, String)>,
    /// Runners that are new or changed, whole.
    pub runners: Vec<RunnerRow>,
    /// Leases that have become detached, whole.
    pub detached_leases: Vec<DetachedLease>,
    /// Numbers of leases that are over; never one of `detached_leases`.
    pub ended_leases: Vec<i64>,
    /// Slurm allocations that are new or changed, whole.
    pub allocations: Vec<AllocationRow>,
    /// Slurm clusters that are new or changed, whole.
    pub clusters: Vec<ClusterRow>,
    /// Slurm clusters that are gone.
    pub removed_clusters: Vec<String>,
    /// Events, in order.
    pub events: Vec<EventRow>,
    /// Audit entries, in order.
    pub audit: Vec<AuditRow>,
}

impl Changes {
    /// Returns whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A workflow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkflowRow {
    /// W.
    pub id: WorkflowId,
    /// Namespace.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// The user who owns it.
    pub owner: String,
    /// The document as JSON.
    #[serde(skip)]
    pub document: String,
    /// The generation of the document: 1 at first, raised by every change.
    pub generation: i64,
    /// SHA-256 of the expanded jobs, in hex.
    pub digest: String,
    /// The folder jobs run in: that of the first apply.
    pub working_dir: String,
    /// The current run.
    pub run: i32,
    /// Held back by a verb, whatever the document says.
    pub suspended: bool,
    /// Canceled by a command, whatever the document says.
    pub canceled: bool,
    /// Canceled because it exceeded `activeDeadlineSeconds`.
    pub expired: bool,
    /// First apply.
    pub created_ms: i64,
    /// First start of this run.
    pub started_ms: Option<i64>,
    /// Last end of this run.
    pub completed_ms: Option<i64>,
    /// Conditions as JSON, with the times of their last change.
    pub conditions: String,
    /// Schedulers that recovery has made, as JSON; empty if there are none.
    pub recovery_schedulers: String,
}

/// A scheduler that recovery has made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Regenerated {
    /// The scheduler.
    pub scheduler: SlurmScheduler,
    /// The action that submits its allocations.
    pub action: Action,
    /// The number of allocations requested manually; for jobs that wait, an action requests them.
    pub asked: i64,
}

impl Regenerated {
    /// Returns the allocations requested manually, by the scheduler's name.
    pub fn asked(&self) -> Option<(String, (i64, Action))> {
        let name = self.scheduler.name.clone().filter(|_| self.asked > 0)?;
        Some((name, (self.asked, self.action.clone())))
    }
}

/// The properties that several jobs share, stored once.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileRow {
    /// Its number.
    pub id: ProfileId,
    /// The workflow that it belongs to.
    pub workflow: WorkflowId,
    /// The content.
    pub profile: JobProfile,
}

/// The properties that several jobs share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobProfile {
    /// The resources that each job needs.
    pub requirements: Requirements,
    /// The resources that the document declares, if recovery has raised them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub declared: Option<Box<Requirements>>,
    /// Labels a runner must have, sorted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// The Slurm scheduler they belong to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<String>,
    /// The one that recovery has made for them, in place of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovery_scheduler: Option<String>,
    /// Environment.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Prefix or script.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub invocation_script: Option<String>,
    /// Streams that are kept, and how; those of the execution configuration when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdio: Option<Stdio>,
    /// Paths that must exist before the start.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub input_files: Vec<String>,
    /// Paths that must exist afterwards.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub output_files: Vec<String>,
    /// Names of data that must have a value before the start.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub input_user_data: Vec<String>,
    /// Names of data that they write.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub output_user_data: Vec<String>,
    /// The loop that spawned them; none for jobs of the document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spawned: Option<Spawned>,
    /// Tasks per node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks_per_node: Option<i32>,
    /// Name of a failure handler.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_handler: Option<String>,
    /// The job is canceled when one of its dependencies fails.
    pub cancel_on_blocking_job_failure: bool,
}

/// Jobs that a running job has added to its workflow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Spawned {
    /// The loop they belong to.
    pub lineage: String,
    /// The job that added them.
    pub by: JobId,
}

impl JobProfile {
    /// Returns whether it equals `document`, except for resources that recovery has raised.
    pub fn is_as_declared(&self, document: &JobProfile) -> bool {
        let requirements = self.declared.as_deref().unwrap_or(&self.requirements).clone();
        Self { requirements, declared: None, recovery_scheduler: None, ..self.clone() } == *document
    }
}

/// A job, whole.
#[derive(Clone, Debug, PartialEq)]
pub struct JobRow {
    /// J.
    pub id: JobId,
    /// The workflow that it belongs to.
    pub workflow: WorkflowId,
    /// Its name.
    pub name: String,
    /// The command.
    pub command: String,
    /// The properties that it shares with other jobs.
    pub profile: ProfileId,
    /// The priority. Jobs with a higher one start first.
    pub priority: i64,
    /// SHA-256 over everything that makes it run again when it changes.
    pub hash: [u8; 32],
    /// Jobs it depends on, sorted.
    pub depends_on: Vec<JobId>,
    /// The state of the job.
    pub state: JobState,
    /// The run it belongs to.
    pub run: i32,
    /// Current attempt.
    pub attempt: i32,
    /// Number of the current attempt's latest lease; 0 before the first.
    pub lease_id: i64,
    /// The runner that holds it.
    pub runner: Option<RunnerId>,
    /// The start of the current attempt, in milliseconds since 1970.
    pub started_ms: Option<i64>,
}

/// A job that moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobUpdate {
    /// J.
    pub id: JobId,
    /// The state of the job.
    pub state: JobState,
    /// The run it belongs to.
    pub run: i32,
    /// Current attempt.
    pub attempt: i32,
    /// Number of the current attempt's latest lease; 0 before the first.
    pub lease_id: i64,
    /// The runner that holds it.
    pub runner: Option<RunnerId>,
    /// The start of the current attempt, in milliseconds since 1970.
    pub started_ms: Option<i64>,
}

/// Work for a runner that is no job: an action's commands, or a recovery script. Who has it, and how often it was tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskLease {
    /// The run it belongs to.
    pub run: i32,
    /// Current attempt.
    pub attempt: i32,
    /// The number of failed tries.
    pub tries: i32,
    /// Number of its latest lease; 0 before the first.
    pub lease_id: i64,
    /// The runner that holds it, or held it last.
    pub runner: Option<RunnerId>,
    /// The start by its runner, in milliseconds since 1970.
    pub started_ms: Option<i64>,
}

impl TaskLease {
    /// Number of times that a task may fail or get lost.
    pub const MAX_TRIES: i32 = 3;
}

/// An action of a workflow, or its part for one worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionRow {
    /// Its number, from the same sequence as those of jobs.
    pub id: JobId,
    /// The workflow that it belongs to.
    pub workflow: WorkflowId,
    /// The position of the action in the document.
    pub position: i32,
    /// The action as JSON, if recovery has created it.
    pub definition: Option<String>,
    /// The worker that this is for. An action for every worker has a row of its own that is never carried out, and one for
    /// each worker.
    pub worker: Option<RunnerId>,
    /// The state of the action. A running action is `pending` with a lease that has started.
    pub state: ActionState,
    /// The lease of its commands, with the number of tries.
    pub lease: TaskLease,
    /// The end of its last attempt, in milliseconds since 1970.
    pub ended_ms: Option<i64>,
    /// With which code.
    pub return_code: Option<i32>,
    /// A sentence about what happened.
    pub message: Option<String>,
    /// The path of its standard output.
    pub stdout: Option<String>,
    /// The path of its standard error.
    pub stderr: Option<String>,
}

/// A job whose attempt failed and that waits for its recovery script.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveryRow {
    /// J.
    pub job: JobId,
    /// The workflow that it belongs to.
    pub workflow: WorkflowId,
    /// The script.
    pub script: String,
    /// The failed attempt's exit code.
    pub return_code: i32,
    /// The cause of the failure.
    pub cause: Cause,
    /// The runner of the failed attempt, which the script prefers while that runner is registered.
    pub preferred: Option<RunnerId>,
    /// The lease of the script, with the number of times that it was lost.
    pub lease: TaskLease,
}

/// An attempt that ended. Never overwritten.
#[derive(Clone, Debug, PartialEq)]
pub struct ResultRow {
    /// The workflow that it belongs to.
    pub workflow: WorkflowId,
    /// J.
    pub job: JobId,
    /// The run.
    pub run: i32,
    /// The attempt.
    pub attempt: i32,
    /// The final state of the attempt.
    pub state: JobState,
    /// Exit code.
    pub return_code: i32,
    /// The cause of the failure; absent if it succeeded.
    pub cause: Option<Cause>,
    /// A sentence about what happened.
    pub message: Option<String>,
    /// Start and end.
    pub started_ms: i64,
    /// End.
    pub ended_ms: i64,
    /// The runner that ran it.
    pub runner: Option<RunnerId>,
    /// The path of its standard output.
    pub stdout: Option<String>,
    /// The path of its standard error.
    pub stderr: Option<String>,
    /// The measured resource usage.
    pub usage: Usage,
}

/// A file as a job that succeeded found or left it. The job's next success overwrites it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileRow {
    /// The workflow that it belongs to.
    pub workflow: WorkflowId,
    /// J.
    pub job: JobId,
    /// As the document writes it.
    pub path: String,
    /// Its size.
    pub size_bytes: i64,
    /// The modification time, in milliseconds since 1970.
    pub modified_ms: i64,
    /// SHA-256 in hexadecimal digits; absent for what was not read.
    pub sha256: Option<String>,
    /// The time at which the engine received it, in milliseconds since 1970.
    pub seen_ms: i64,
}

/// A value that jobs exchange. What was written wins over what the document says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UserDataRow {
    /// The workflow that it belongs to.
    pub workflow: WorkflowId,
    /// Its name.
    pub name: String,
    /// The document has it.
    pub in_document: bool,
    /// The written value is deleted when the workflow runs again.
    pub ephemeral: bool,
    /// The value in the document.
    pub declared: Option<Value>,
    /// The value that a job or the user wrote.
    pub written: Option<Value>,
    /// The job that wrote it; none if the user did.
    pub job: Option<JobId>,
    /// A number from the sequence of leases. A lease with a lower number was granted before the value was written.
    pub lease_id: i64,
    /// The last change of the value, in milliseconds since 1970.
    pub changed_ms: i64,
}

impl UserDataRow {
    /// Returns the value that readers get.
    pub fn value(&self) -> Option<&Value> {
        self.written.as_ref().or(self.declared.as_ref())
    }
}

/// A lease that its job no longer goes by, but that a runner may still act upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DetachedLease {
    /// The lease's number.
    pub lease_id: i64,
    /// The workflow that it belongs to.
    pub workflow: WorkflowId,
    /// J.
    pub job: JobId,
    /// The run.
    pub run: i32,
    /// The attempt.
    pub attempt: i32,
    /// The runner that holds it, or held it last.
    pub runner: RunnerId,
    /// The start in milliseconds since 1970; none if it is not known to have started.
    pub started_ms: Option<i64>,
    /// Its state.
    pub fate: DetachedState,
    /// The role of the lease. For an action, `job` is the number of the action.
    pub role: LeaseRole,
}

/// The state of a detached lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DetachedState {
    /// It was taken away. Its runner is to end it, and its job waits for that.
    Revoked,
    /// The lease has expired. Its result counts until a newer attempt starts.
    Expired,
}

/// A runner.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunnerRow {
    /// Its number.
    pub id: RunnerId,
    /// Host.
    pub host: String,
    /// Process.
    pub pid: i64,
    /// The environment that it runs in.
    pub kind: RunnerKind,
    /// The resources that it may use.
    pub capacity: Resources,
    /// The queue strategy's depth.
    pub max_parallel_jobs: Option<u32>,
    /// Labels, sorted.
    pub labels: Vec<String>,
    /// The workflows that it serves.
    pub scope: RunnerScope,
    /// The Slurm scheduler whose allocation it runs in.
    pub scheduler: Option<String>,
    /// The Slurm job that it runs in.
    pub slurm_job_id: Option<String>,
    /// The folder of its logs.
    pub output_dir: String,
    /// The host and folder of its shim.
    pub place: String,
    /// The identity of the process `pid`; none if the machine does not report it.
    pub process: Option<ProcessIdentity>,
    /// Its version.
    pub version: String,
    /// The registration, in milliseconds since 1970.
    pub started_ms: i64,
    /// The time at which it left, in milliseconds since 1970.
    pub ended_ms: Option<i64>,
}

/// A Slurm allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocationRow {
    /// Its number.
    pub id: AllocationId,
    /// The workflow that it belongs to.
    pub workflow: WorkflowId,
    /// The Slurm that it is submitted to.
    pub cluster: String,
    /// The scheduler of the document that it belongs to; none if it was sized automatically.
    pub scheduler: Option<String>,
    /// The origin of the request.
    pub origin: AllocationOrigin,
    /// The action that requested it.
    pub action: Option<JobId>,
    /// The allocation's state.
    pub status: AllocationStatus,
    /// Slurm's number, once it is known.
    pub slurm_job_id: Option<String>,
    /// Slurm's name of its state.
    pub slurm_state: Option<String>,
    /// Slurm's reason for which it waits.
    pub slurm_reason: Option<String>,
    /// The partition; none if that is left to the site.
    pub partition: Option<String>,
    /// The account; none if that is left to the site.
    pub account: Option<String>,
    /// Nodes.
    pub nodes: i64,
    /// CPUs of each node; 0 if that is left to the site.
    pub cpus: i64,
    /// Bytes of memory of each node; 0 if that is left to the site.
    pub memory_bytes: i64,
    /// GPUs of each node.
    pub gpus: i64,
    /// The walltime in seconds.
    pub seconds: i64,
    /// A runner on every node, not one for all.
    pub one_worker_per_node: bool,
    /// The queue strategy's depth.
    pub max_parallel_jobs: Option<i32>,
    /// Its nodes in Slurm's notation, e.g. `n[1-4]`.
    pub node_list: Option<String>,
    /// The time at which it was planned, in milliseconds since 1970.
    pub created_ms: i64,
    /// The last call of `sbatch` for it, in milliseconds since 1970; none if `sbatch` was certainly not called.
    pub called_ms: Option<i64>,
    /// The time at which Slurm accepted it, in milliseconds since 1970.
    pub submitted_ms: Option<i64>,
    /// The start, in milliseconds since 1970.
    pub started_ms: Option<i64>,
    /// The end, in milliseconds since 1970.
    pub ended_ms: Option<i64>,
    /// The start that Slurm estimates, in milliseconds since 1970.
    pub estimated_start_ms: Option<i64>,
    /// The end of its walltime, in milliseconds since 1970.
    pub expected_end_ms: Option<i64>,
    /// The last call of `scancel` for it, in milliseconds since 1970.
    pub canceled_ms: Option<i64>,
    /// Since when Slurm has known nothing of it.
    pub unseen_since_ms: Option<i64>,
    /// A runner in it has reported the end of a job.
    pub has_reported: bool,
    /// A sentence about what happened.
    pub message: Option<String>,
}

impl AllocationRow {
    /// Returns the name that users and documents use.
    pub fn name(&self) -> String {
        torc_api::allocation::name(self.workflow.0, self.id.0)
    }
}

/// A Slurm cluster and how to reach it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterRow {
    /// Its name.
    pub name: String,
    /// The document as JSON.
    pub document: String,
    /// The generation of the document: 1 at first, raised by every change.
    pub generation: i64,
    /// First apply.
    pub created_ms: i64,
}

/// Something that happened.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventRow {
    /// A number that only rises, assigned by the core.
    pub sequence: i64,
    /// The time, in milliseconds since 1970.
    pub time_ms: i64,
    /// The workflow that it concerns; none for events of runners and clusters.
    pub workflow: Option<WorkflowId>,
    /// One word.
    pub reason: String,
    /// A sentence.
    pub message: String,
    /// Jobs that moved: (job, attempt, state).
    pub jobs: Vec<(JobId, i32, JobState)>,
}

/// A request that changed something or was refused. Never changed, never removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditRow {
    /// The time, in milliseconds since 1970.
    pub time_ms: i64,
    /// The user or runner that made the request.
    pub who: String,
    /// The scope of their token.
    pub scope: String,
    /// The request, as an audit verb.
    pub verb: String,
    /// The object of the request.
    pub object: String,
    /// The outcome: `ok`, or the code of the error.
    pub outcome: String,
}

/// Everything live that is stored, as read at start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Workflows.
    pub workflows: Vec<WorkflowRow>,
    /// Their profiles.
    pub profiles: Vec<ProfileRow>,
    /// Their jobs, sorted by number; removed ones are left out.
    pub jobs: Vec<JobRow>,
    /// Their data; the values of loops, which no job reads through its document, are left out.
    pub user_data: Vec<UserDataRow>,
    /// Runners that have not left.
    pub runners: Vec<RunnerRow>,
    /// Leases that their jobs no longer go by.
    pub detached_leases: Vec<DetachedLease>,
    /// Their actions, sorted by number.
    pub actions: Vec<ActionRow>,
    /// Jobs that wait for a recovery script, sorted by number.
    pub recoveries: Vec<RecoveryRow>,
    /// For each job and cause: how many of its attempts in the current run ended so. Retry budgets count them.
    pub failures: Vec<(JobId, Cause, i32)>,
    /// The latest failed results of each workflow's current run, at most 20 each, oldest first.
    pub latest_failures: Vec<ResultRow>,
    /// Slurm allocations that are not over, sorted by number.
    pub allocations: Vec<AllocationRow>,
    /// For each workflow: how many of its allocations are over.
    pub finished_allocations: Vec<(WorkflowId, i64)>,
    /// Numbers in Slurm of allocations that are over.
    pub ended_slurm_jobs: Vec<String>,
    /// Slurm clusters.
    pub clusters: Vec<ClusterRow>,
    /// The identity of the store.
    pub identity: String,
    /// The highest numbers assigned so far.
    pub last: LastIds,
}

/// The highest numbers assigned so far. A number is never assigned again, not even after a deletion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastIds {
    /// Workflows.
    pub workflow: i64,
    /// Jobs and actions.
    pub job: i64,
    /// Profiles.
    pub profile: i64,
    /// Runners.
    pub runner: i64,
    /// Events.
    pub event: i64,
    /// Leases.
    pub lease_id: i64,
    /// Slurm allocations.
    pub allocation: i64,
}
