//! What the store keeps: the rows that a decision of the core changes, in plain types.
//!
//! A decision returns [`Changes`]; the store writes them in one transaction and decides nothing.

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
    /// What Slurm's accounting said of steps; the last entry of an attempt wins.
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
    /// What happened, in order.
    pub events: Vec<EventRow>,
    /// Who did it, in order.
    pub audit: Vec<AuditRow>,
}

impl Changes {
    /// Nothing to write.
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
    /// Whose it is.
    pub owner: String,
    /// The document as JSON.
    #[serde(skip)]
    pub document: String,
    /// How often the document has changed.
    pub generation: i64,
    /// SHA-256 of the expanded jobs, in hex.
    pub digest: String,
    /// The folder jobs run in: that of the first apply.
    pub working_dir: String,
    /// The current run.
    pub run: i32,
    /// Held back by a verb, whatever the document says.
    pub suspended: bool,
    /// Cancelled by a verb, whatever the document says.
    pub canceled: bool,
    /// Cancelled because it ran for longer than it may.
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
    /// How its allocations are asked for.
    pub action: Action,
    /// How many a person has asked for; those of jobs that wait are asked for by an action.
    pub asked: i64,
}

impl Regenerated {
    /// What a person has asked for, by the scheduler's name.
    pub fn asked(&self) -> Option<(String, (i64, Action))> {
        let name = self.scheduler.name.clone().filter(|_| self.asked > 0)?;
        Some((name, (self.asked, self.action.clone())))
    }
}

/// What jobs have in common, stored once.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileRow {
    /// Its number.
    pub id: ProfileId,
    /// Whose it is.
    pub workflow: WorkflowId,
    /// The content.
    pub profile: JobProfile,
}

/// What jobs have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobProfile {
    /// What they need.
    pub requirements: Requirements,
    /// What the document says they need, where recovery has raised it.
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
    /// Where output goes.
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
    /// Where they come from, when it is not the document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spawned: Option<Spawned>,
    /// Tasks per node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks_per_node: Option<i32>,
    /// Name of a failure handler.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_handler: Option<String>,
    /// Cancelled when a job it depends on fails.
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
    /// Whether this is what a document says, but for what recovery has raised.
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
    /// Whose it is.
    pub workflow: WorkflowId,
    /// Its name.
    pub name: String,
    /// What it runs.
    pub command: String,
    /// What it has in common with others.
    pub profile: ProfileId,
    /// Higher starts first.
    pub priority: i64,
    /// SHA-256 over everything that makes it run again when it changes.
    pub hash: [u8; 32],
    /// Jobs it depends on, sorted.
    pub depends_on: Vec<JobId>,
    /// Where it stands.
    pub state: JobState,
    /// The run it belongs to.
    pub run: i32,
    /// Current attempt.
    pub attempt: i32,
    /// Number of the current attempt's latest lease; 0 before the first.
    pub lease_id: i64,
    /// Who has it.
    pub runner: Option<RunnerId>,
    /// When the current attempt started.
    pub started_ms: Option<i64>,
}

/// A job that moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobUpdate {
    /// J.
    pub id: JobId,
    /// Where it stands now.
    pub state: JobState,
    /// The run it belongs to.
    pub run: i32,
    /// Current attempt.
    pub attempt: i32,
    /// Number of the current attempt's latest lease; 0 before the first.
    pub lease_id: i64,
    /// Who has it.
    pub runner: Option<RunnerId>,
    /// When the current attempt started.
    pub started_ms: Option<i64>,
}

/// Work for a runner that is no job: an action's commands, or a recovery script. Who has it, and how often it was tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskLease {
    /// The run it belongs to.
    pub run: i32,
    /// Current attempt.
    pub attempt: i32,
    /// How often it has failed.
    pub tries: i32,
    /// Number of its latest lease; 0 before the first.
    pub lease_id: i64,
    /// Who has it; for an action that has ended, who had it last.
    pub runner: Option<RunnerId>,
    /// When its runner started it.
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
    /// Whose it is.
    pub workflow: WorkflowId,
    /// Which of the document's actions it is.
    pub position: i32,
    /// What it says, as JSON, if recovery has made it and it is in no document.
    pub definition: Option<String>,
    /// The worker that this is for. An action for every worker has a row of its own that is never carried out, and one for
    /// each worker.
    pub worker: Option<RunnerId>,
    /// Where it stands. That it runs is told by its lease's start.
    pub state: ActionState,
    /// Who has it, and how often it was tried.
    pub lease: TaskLease,
    /// When its last attempt ended.
    pub ended_ms: Option<i64>,
    /// With which code.
    pub return_code: Option<i32>,
    /// A sentence about what happened.
    pub message: Option<String>,
    /// Where its output is.
    pub stdout: Option<String>,
    /// Where its error output is.
    pub stderr: Option<String>,
}

/// A job whose attempt failed and that waits for its recovery script.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveryRow {
    /// J.
    pub job: JobId,
    /// Whose it is.
    pub workflow: WorkflowId,
    /// What runs.
    pub script: String,
    /// The failed attempt's exit code.
    pub return_code: i32,
    /// Why it failed.
    pub cause: Cause,
    /// Who ran it: the script runs there, as long as that runner is there.
    pub preferred: Option<RunnerId>,
    /// Who has it, and how often it was lost.
    pub lease: TaskLease,
}

/// An attempt that ended. Never overwritten.
#[derive(Clone, Debug, PartialEq)]
pub struct ResultRow {
    /// Whose it is.
    pub workflow: WorkflowId,
    /// J.
    pub job: JobId,
    /// The run.
    pub run: i32,
    /// The attempt.
    pub attempt: i32,
    /// How it ended.
    pub state: JobState,
    /// Exit code.
    pub return_code: i32,
    /// Why it did not succeed.
    pub cause: Option<Cause>,
    /// A sentence about what happened.
    pub message: Option<String>,
    /// Start and end.
    pub started_ms: i64,
    /// End.
    pub ended_ms: i64,
    /// Who ran it.
    pub runner: Option<RunnerId>,
    /// Where its output is.
    pub stdout: Option<String>,
    /// Where its error output is.
    pub stderr: Option<String>,
    /// What was measured.
    pub usage: Usage,
}

/// A file as a job that succeeded found or left it. The job's next success overwrites it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileRow {
    /// Whose it is.
    pub workflow: WorkflowId,
    /// J.
    pub job: JobId,
    /// As the document writes it.
    pub path: String,
    /// Its size.
    pub size_bytes: i64,
    /// When it was last changed.
    pub modified_ms: i64,
    /// SHA-256 in hexadecimal digits; absent for what was not read.
    pub sha256: Option<String>,
    /// When the engine heard of it.
    pub seen_ms: i64,
}

/// A value that jobs exchange. What was written wins over what the document says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UserDataRow {
    /// Whose it is.
    pub workflow: WorkflowId,
    /// Its name.
    pub name: String,
    /// The document has it.
    pub in_document: bool,
    /// What was written is forgotten when the workflow runs again.
    pub ephemeral: bool,
    /// What the document says.
    pub declared: Option<Value>,
    /// What a job or a person wrote.
    pub written: Option<Value>,
    /// The job that wrote it; absent for a person.
    pub job: Option<JobId>,
    /// A number from the sequence of leases: a lease with a lower one was given out before this value was there.
    pub lease_id: i64,
    /// When the value changed.
    pub changed_ms: i64,
}

impl UserDataRow {
    /// What readers get.
    pub fn value(&self) -> Option<&Value> {
        self.written.as_ref().or(self.declared.as_ref())
    }
}

/// A lease that its job no longer goes by, but that a runner may still act upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DetachedLease {
    /// The lease's number.
    pub lease_id: i64,
    /// Whose it is.
    pub workflow: WorkflowId,
    /// J.
    pub job: JobId,
    /// The run.
    pub run: i32,
    /// The attempt.
    pub attempt: i32,
    /// Who has it, or had it when it was last heard of.
    pub runner: RunnerId,
    /// When it started, if it is known to have.
    pub started_ms: Option<i64>,
    /// What becomes of it.
    pub fate: DetachedState,
    /// What it is a lease of. The number of an action stands where a job's does otherwise.
    pub role: LeaseRole,
}

/// What becomes of a stray lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DetachedState {
    /// It was taken away. Its runner is to end it, and its job waits for that.
    Revoked,
    /// Nobody waits for it. If it turns up it counts, as long as nothing newer has started.
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
    /// What kind of place.
    pub kind: RunnerKind,
    /// What it may use.
    pub capacity: Resources,
    /// The queue strategy's depth.
    pub max_parallel_jobs: Option<u32>,
    /// Labels, sorted.
    pub labels: Vec<String>,
    /// Which workflows it serves.
    pub scope: RunnerScope,
    /// The Slurm scheduler whose allocation it lives in.
    pub scheduler: Option<String>,
    /// The Slurm job it lives in.
    pub slurm_job_id: Option<String>,
    /// Where its logs are.
    pub output_dir: String,
    /// Where its shim is found.
    pub place: String,
    /// The process behind `pid`, where its machine told.
    pub process: Option<ProcessIdentity>,
    /// Its version.
    pub version: String,
    /// When it registered.
    pub started_ms: i64,
    /// When it left.
    pub ended_ms: Option<i64>,
}

/// A Slurm allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocationRow {
    /// Its number.
    pub id: AllocationId,
    /// Whose it is.
    pub workflow: WorkflowId,
    /// The Slurm that it is submitted to.
    pub cluster: String,
    /// The document's scheduler that it is asked for with; none if it was sized by what jobs need.
    pub scheduler: Option<String>,
    /// What asked for it.
    pub origin: AllocationOrigin,
    /// The action that asked for it.
    pub action: Option<JobId>,
    /// Where it stands.
    pub status: AllocationStatus,
    /// Slurm's number, once it is known.
    pub slurm_job_id: Option<String>,
    /// What Slurm calls its state.
    pub slurm_state: Option<String>,
    /// Why it waits, as Slurm says.
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
    /// How long it lasts.
    pub seconds: i64,
    /// A runner on every node, not one for all.
    pub one_worker_per_node: bool,
    /// The queue strategy's depth.
    pub max_parallel_jobs: Option<i32>,
    /// Its nodes, as Slurm lists them.
    pub node_list: Option<String>,
    /// When it was decided upon.
    pub created_ms: i64,
    /// When `sbatch` was last called for it; none if it certainly was not.
    pub called_ms: Option<i64>,
    /// When Slurm accepted it.
    pub submitted_ms: Option<i64>,
    /// When it started.
    pub started_ms: Option<i64>,
    /// When it was over.
    pub ended_ms: Option<i64>,
    /// When it will start in Slurm's estimation.
    pub estimated_start_ms: Option<i64>,
    /// When its time is up.
    pub expected_end_ms: Option<i64>,
    /// When Slurm was last asked to cancel it.
    pub canceled_ms: Option<i64>,
    /// Since when Slurm has known nothing of it.
    pub unseen_since_ms: Option<i64>,
    /// A runner in it has reported the end of a job.
    pub has_reported: bool,
    /// A sentence about what happened.
    pub message: Option<String>,
}

impl AllocationRow {
    /// By which people and documents know it.
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
    /// How often the document has changed.
    pub generation: i64,
    /// First apply.
    pub created_ms: i64,
}

/// Something that happened.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EventRow {
    /// Rises; given out by the core.
    pub sequence: i64,
    /// When.
    pub time_ms: i64,
    /// Whose.
    pub workflow: Option<WorkflowId>,
    /// One word.
    pub reason: String,
    /// A sentence.
    pub message: String,
    /// Jobs that moved: (job, attempt, state).
    pub jobs: Vec<(JobId, i32, JobState)>,
}

/// Somebody did something, or was refused. Never changed, never removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditRow {
    /// When.
    pub time_ms: i64,
    /// Who.
    pub who: String,
    /// The scope of their token.
    pub scope: String,
    /// What they did.
    pub verb: String,
    /// To what.
    pub object: String,
    /// What came of it: `ok`, or the code of the error.
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
    /// What tells this store from others.
    pub identity: String,
    /// The highest numbers given out so far.
    pub last: LastIds,
}

/// The highest numbers given out so far: they are never given out again, not even after a deletion.
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
