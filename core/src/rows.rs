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
    /// Profiles that are new; a profile never changes.
    pub profiles: Vec<ProfileRow>,
    /// Jobs that are new or whose definition changed, whole.
    pub jobs: Vec<JobRow>,
    /// Jobs that are no longer part of their workflow; their results stay.
    pub removed_jobs: Vec<JobId>,
    /// Jobs whose state changed; the last entry of a job wins.
    pub job_updates: Vec<JobUpdate>,
    /// Actions that are new or changed, whole.
    pub actions: Vec<ActionRow>,
    /// Actions that are no longer part of their workflow.
    pub removed_actions: Vec<JobId>,
    /// Jobs that wait for a recovery script, new or changed, whole.
    pub recoveries: Vec<RecoveryRow>,
    /// Jobs that no longer wait for a recovery script.
    pub ended_recoveries: Vec<JobId>,
    /// Attempts that ended, each with its final state.
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
    /// Runners that are new or changed, whole.
    pub detached_leases: Vec<DetachedLease>,
    /// Numbers of leases that are over; never one of `detached_leases`.
    pub ended_leases: Vec<i64>,
    /// Numbers of detached leases that have ended; never one of `detached_leases`.
    pub allocations: Vec<AllocationRow>,
    /// Slurm clusters that are new or changed, whole.
    pub clusters: Vec<ClusterRow>,
    /// Slurm clusters that are gone.
    pub removed_clusters: Vec<String>,
    /// New events, in the order of their sequence numbers.
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

/// A workflow with its document and the state of its current run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkflowRow {
    /// Unique number of the workflow; the W of log and step names.
    pub id: WorkflowId,
    /// The namespace of the workflow, which scopes its name.
    pub namespace: String,
    /// The name from `metadata.name` of the document.
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
    /// The folder that jobs run in: that of the first apply.
    pub working_dir: String,
    /// Number of the current run; a restart raises it.
    pub run: i32,
    /// A command has suspended it, whatever the document says.
    pub suspended: bool,
    /// Canceled by a command, whatever the document says.
    pub canceled: bool,
    /// Canceled because it exceeded `activeDeadlineSeconds`.
    pub expired: bool,
    /// The time of the first apply, in milliseconds since 1970.
    pub created_ms: i64,
    /// The first start of this run, in milliseconds since 1970.
    pub started_ms: Option<i64>,
    /// The last end of this run, in milliseconds since 1970.
    pub completed_ms: Option<i64>,
    /// Conditions as JSON, with the times of their last change.
    pub conditions: String,
    /// Schedulers that recovery has created, as JSON; empty if there are none.
    pub recovery_schedulers: String,
}

/// A scheduler that recovery has created for jobs that run again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RegeneratedScheduler {
    /// The scheduler, as a document would declare it.
    pub scheduler: SlurmScheduler,
    /// The action that submits its allocations.
    pub action: Action,
    /// The number of allocations requested manually; for jobs that wait, an action requests them.
    pub asked: i64,
}

impl RegeneratedScheduler {
    /// Returns the allocations requested manually, by the scheduler's name.
    pub fn requested_allocations(&self) -> Option<(String, (i64, Action))> {
        let name = self.scheduler.name.clone().filter(|_| self.asked > 0)?;
        Some((name, (self.asked, self.action.clone())))
    }
}

/// The properties that several jobs share, stored once.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileRow {
    /// Number of the profile; other rows refer to it.
    pub id: ProfileId,
    /// The workflow that it belongs to.
    pub workflow: WorkflowId,
    /// The properties themselves, stored as JSON.
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
    /// The scheduler that recovery has created for them; it replaces `scheduler`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovery_scheduler: Option<String>,
    /// Environment variables of the job's process; the job's own override the workflow's.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// A prefix of the command, or a script that runs before it.
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
    /// Slurm tasks on each node; none unless the command is itself the parallel program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks_per_node: Option<i32>,
    /// Name of the failure handler that decides about retries.
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

/// A job with its definition and its current state.
#[derive(Clone, Debug, PartialEq)]
pub struct JobRow {
    /// Unique number of the job; the J of log and step names.
    pub id: JobId,
    /// The workflow that it belongs to.
    pub workflow: WorkflowId,
    /// The name, unique in the workflow.
    pub name: String,
    /// The shell command, with all parameters replaced.
    pub command: String,
    /// The properties that it shares with other jobs.
    pub profile: ProfileId,
    /// The priority; jobs with a higher one start first.
    pub priority: i64,
    /// SHA-256 over everything that makes the job run again when it changes.
    pub hash: [u8; 32],
    /// Numbers of the jobs that it depends on, sorted.
    pub depends_on: Vec<JobId>,
    /// The state at the end of the transaction.
    pub state: JobState,
    /// The run it belongs to.
    pub run: i32,
    /// Number of the current attempt; it starts at 1 in every run.
    pub attempt: i32,
    /// Number of the current attempt's latest lease; 0 before the first.
    pub lease_id: i64,
    /// The runner that holds the current lease; none without a lease.
    pub runner: Option<RunnerId>,
    /// The start of the current attempt, in milliseconds since 1970.
    pub started_ms: Option<i64>,
}

/// The new state of a job whose definition did not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobUpdate {
    /// Number of the job that changed.
    pub id: JobId,
    /// The state at the end of the transaction.
    pub state: JobState,
    /// The run it belongs to.
    pub run: i32,
    /// Number of the current attempt; it starts at 1 in every run.
    pub attempt: i32,
    /// Number of the current attempt's latest lease; 0 before the first.
    pub lease_id: i64,
    /// The runner that holds the current lease; none without a lease.
    pub runner: Option<RunnerId>,
    /// The start of the current attempt, in milliseconds since 1970.
    pub started_ms: Option<i64>,
}

/// A lease for work that is no job: an action's commands, or a recovery script.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskLease {
    /// The run it belongs to.
    pub run: i32,
    /// Number of the current attempt at this task.
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
    /// The worker that executes this part. An action for every worker has one row per worker, and one row for itself
    /// that is never executed.
    pub worker: Option<RunnerId>,
    /// The state of the action. A running action is `pending` with a lease that has started.
    pub state: ActionState,
    /// The lease of its commands, with the number of tries.
    pub lease: TaskLease,
    /// The end of its last attempt, in milliseconds since 1970.
    pub ended_ms: Option<i64>,
    /// Exit code of its last attempt; none if there was none.
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
    /// Number of the job that failed.
    pub job: JobId,
    /// The workflow that it belongs to.
    pub workflow: WorkflowId,
    /// The shell script that the failure handler names.
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

/// An attempt that ended. It is never overwritten.
#[derive(Clone, Debug, PartialEq)]
pub struct ResultRow {
    /// The workflow that it belongs to.
    pub workflow: WorkflowId,
    /// Number of the job that was attempted.
    pub job: JobId,
    /// Number of the run; a restart of the workflow raises it.
    pub run: i32,
    /// Number of the attempt in its run, from 1.
    pub attempt: i32,
    /// The final state of the attempt.
    pub state: JobState,
    /// Exit code of the job's command, or one that stands for the cause.
    pub return_code: i32,
    /// The cause of the failure; absent if it succeeded.
    pub cause: Option<Cause>,
    /// A sentence about what happened.
    pub message: Option<String>,
    /// The start of the attempt, in milliseconds since 1970.
    pub started_ms: i64,
    /// The end of the attempt, in milliseconds since 1970.
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
    /// Number of the job that saw the file.
    pub job: JobId,
    /// The path as the document writes it.
    pub path: String,
    /// The size of the file in bytes.
    pub size_bytes: i64,
    /// The modification time, in milliseconds since 1970.
    pub modified_ms: i64,
    /// SHA-256 in hexadecimal digits; absent for what was not read.
    pub sha256: Option<String>,
    /// The time at which the engine received it, in milliseconds since 1970.
    pub seen_ms: i64,
}

/// A value that jobs exchange. A written value overrides the document's.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UserDataRow {
    /// The workflow that it belongs to.
    pub workflow: WorkflowId,
    /// The name, unique in the workflow.
    pub name: String,
    /// The current document declares it.
    pub in_document: bool,
    /// A restart of the workflow deletes the written value.
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

/// A superseded lease that a runner may still execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DetachedLease {
    /// Number of the lease that was superseded.
    pub lease_id: i64,
    /// The workflow that it belongs to.
    pub workflow: WorkflowId,
    /// Number of the job, or of the action.
    pub job: JobId,
    /// Number of the run that the lease belongs to.
    pub run: i32,
    /// Number of the attempt that the lease belongs to.
    pub attempt: i32,
    /// The runner that holds it, or held it last.
    pub runner: RunnerId,
    /// The start in milliseconds since 1970; none if it is not known to have started.
    pub started_ms: Option<i64>,
    /// Decides whether a result of this lease still counts.
    pub state: DetachedState,
    /// The role of the lease. For an action, `job` is the number of the action.
    pub role: LeaseRole,
}

/// The state of a detached lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DetachedState {
    /// It was revoked. Its runner must end it, and its job waits for that.
    Revoked,
    /// The lease has expired. Its result counts until a newer attempt starts.
    Expired,
}

/// One registration of a runner process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunnerRow {
    /// Number of the registration; the runner gets a new one when it registers again.
    pub id: RunnerId,
    /// Host name of the machine that it runs on.
    pub host: String,
    /// Process ID on `host`; ambiguous on its own, because PIDs are reused.
    pub pid: i64,
    /// The environment that it runs in.
    pub kind: RunnerKind,
    /// The resources that it may use.
    pub capacity: Resources,
    /// Number of jobs that it runs at once if it counts jobs instead of resources.
    pub max_parallel_jobs: Option<u32>,
    /// The labels that it was started with, sorted.
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
    /// The version of Torc that it runs.
    pub version: String,
    /// The registration, in milliseconds since 1970.
    pub started_ms: i64,
    /// The time at which it left, in milliseconds since 1970.
    pub ended_ms: Option<i64>,
}

/// An allocation that is planned for, submitted to or known by Slurm.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocationRow {
    /// Unique number of the allocation; the N of its name.
    pub id: AllocationId,
    /// The workflow that it belongs to.
    pub workflow: WorkflowId,
    /// The Slurm cluster that it is submitted to.
    pub cluster: String,
    /// The scheduler of the document that it belongs to; none if it was sized automatically.
    pub scheduler: Option<String>,
    /// The origin of the request.
    pub origin: AllocationOrigin,
    /// The action that requested it.
    pub action: Option<JobId>,
    /// The stage that it has reached in Torc, which `slurm_state` can precede.
    pub status: AllocationStatus,
    /// Slurm's job number, once it is known.
    pub slurm_job_id: Option<String>,
    /// Slurm's own name of its state, e.g. `PENDING`.
    pub slurm_state: Option<String>,
    /// The reason that Slurm gives for its waiting, e.g. `Priority`.
    pub slurm_reason: Option<String>,
    /// The partition; none if that is left to the site.
    pub partition: Option<String>,
    /// The account; none if that is left to the site.
    pub account: Option<String>,
    /// Number of nodes that it spans.
    pub nodes: i64,
    /// CPUs of each node; 0 if that is left to the site.
    pub cpus: i64,
    /// Bytes of memory of each node; 0 if that is left to the site.
    pub memory_bytes: i64,
    /// GPUs of each node.
    pub gpus: i64,
    /// The walltime in seconds.
    pub seconds: i64,
    /// Slurm starts a runner on every node, not one for all nodes.
    pub one_worker_per_node: bool,
    /// Number of jobs that its runners run at once if they count jobs instead of resources.
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
    /// The time since which Slurm has reported nothing about it, in milliseconds since 1970.
    pub unseen_since_ms: Option<i64>,
    /// A runner in it has reported the end of a job, so it was not wasted.
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

/// A Slurm cluster and the way to reach it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterRow {
    /// The name, unique in the store.
    pub name: String,
    /// The document as JSON.
    pub document: String,
    /// The generation of the document: 1 at first, raised by every change.
    pub generation: i64,
    /// The time of the first apply, in milliseconds since 1970.
    pub created_ms: i64,
}

/// An event of a workflow, a runner or a cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventRow {
    /// A number that only rises, assigned by the engine.
    pub sequence: i64,
    /// The time, in milliseconds since 1970.
    pub time_ms: i64,
    /// The workflow that it concerns; none for events of runners and clusters.
    pub workflow: Option<WorkflowId>,
    /// One word in CamelCase, e.g. `WorkflowCreated`.
    pub reason: String,
    /// A sentence for users; empty for events that only list jobs.
    pub message: String,
    /// Jobs whose state changed: (job, attempt, state).
    pub jobs: Vec<(JobId, i32, JobState)>,
}

/// A request that changed something or was refused. The entry is never changed or removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditRow {
    /// The time, in milliseconds since 1970.
    pub time_ms: i64,
    /// The user or runner that made the request.
    pub who: String,
    /// The scope of the requester's token.
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
    /// Workflows that have not been deleted, with their documents.
    pub workflows: Vec<WorkflowRow>,
    /// Profiles of the jobs of these workflows.
    pub profiles: Vec<ProfileRow>,
    /// Their jobs, sorted by number; removed ones are left out.
    pub jobs: Vec<JobRow>,
    /// Their data; the values of loops, which no job reads through its document, are left out.
    pub user_data: Vec<UserDataRow>,
    /// Runners that have not left.
    pub runners: Vec<RunnerRow>,
    /// Superseded leases that runners may still execute.
    pub detached_leases: Vec<DetachedLease>,
    /// Their actions, sorted by number.
    pub actions: Vec<ActionRow>,
    /// Jobs that wait for a recovery script, sorted by number.
    pub recoveries: Vec<RecoveryRow>,
    /// The number of attempts of each job in the current run that ended with each cause. Retry budgets count them.
    pub failures: Vec<(JobId, Cause, i32)>,
    /// The latest failed results of each workflow's current run, at most 20 each, oldest first.
    pub latest_failures: Vec<ResultRow>,
    /// Slurm allocations that have not ended, sorted by number.
    pub allocations: Vec<AllocationRow>,
    /// The number of allocations of each workflow that have ended.
    pub finished_allocations: Vec<(WorkflowId, i64)>,
    /// Slurm's numbers of the allocations that have ended.
    pub ended_slurm_jobs: Vec<String>,
    /// Slurm clusters that have been applied and not deleted.
    pub clusters: Vec<ClusterRow>,
    /// The identity of the store.
    pub identity: String,
    /// The highest numbers assigned so far.
    pub last: LastIds,
}

/// The highest numbers assigned so far. A number is never assigned again, not even after a deletion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastIds {
    /// The highest number of a workflow.
    pub workflow: i64,
    /// The highest number of a job or action, which share a sequence.
    pub job: i64,
    /// The highest number of a profile.
    pub profile: i64,
    /// The highest number of a runner's registration.
    pub runner: i64,
    /// The highest sequence number of an event.
    pub event: i64,
    /// The highest number of a lease.
    pub lease_id: i64,
    /// The highest number of a Slurm allocation.
    pub allocation: i64,
}
