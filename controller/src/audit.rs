//! The audit log: a request's audit context travels with its task, so that its changes and their author are written in one
//! transaction.

use std::sync::{Arc, Mutex, PoisonError};

use torc_api::error_code::ErrorCode;
use torc_api::token::Scope;
use torc_core::ids::Now;
use torc_core::rows::AuditRow;

tokio::task_local! {
    static CONTEXT: AuditContext;
}

/// The action of a request, as the audit log names it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::EnumIter, strum::EnumMessage, strum::IntoStaticStr,
)]
pub(crate) enum AuditVerb {
    /// A read; only refusals are recorded.
    #[strum(serialize = "read")]
    Read,
    /// A method that the route does not have.
    #[strum(serialize = "unknown")]
    Unknown,
    /// Deletes superseded results and old events.
    #[strum(serialize = "gc")]
    Gc,
    /// Writes a copy of the store.
    #[strum(serialize = "backup")]
    Backup,
    /// Creates a token.
    #[strum(serialize = "create token")]
    CreateToken,
    /// Registers a runner.
    #[strum(serialize = "register")]
    Register,
    /// Syncs a runner.
    #[strum(serialize = "sync")]
    Sync,
    /// Exchanges logs with a pool runner.
    #[strum(serialize = "exchange logs")]
    ExchangeLogs,
    /// Applies a Slurm cluster.
    #[strum(serialize = "apply cluster")]
    ApplyCluster,
    /// Deletes a Slurm cluster.
    #[strum(serialize = "delete cluster")]
    DeleteCluster,
    /// Records Slurm's accounting of steps.
    #[strum(serialize = "record slurm stats")]
    RecordSlurmStats,
    /// Creates or updates a workflow.
    #[strum(serialize = "apply")]
    Apply,
    /// Deletes a workflow.
    #[strum(serialize = "delete")]
    Delete,
    /// Cancels a workflow.
    #[strum(serialize = "cancel")]
    Cancel,
    /// Suspends a workflow.
    #[strum(serialize = "suspend")]
    Suspend,
    /// Resumes a workflow.
    #[strum(serialize = "resume")]
    Resume,
    /// Retries jobs.
    #[strum(serialize = "retry")]
    Retry,
    /// Records what was lost with allocations and runners.
    #[strum(serialize = "sync status")]
    SyncStatus,
    /// Recovers failed jobs.
    #[strum(serialize = "recover")]
    Recover,
    /// Plans schedulers and allocations again.
    #[strum(serialize = "regenerate")]
    Regenerate,
    /// Corrects resource requirements.
    #[strum(serialize = "correct resources")]
    CorrectResources,
    /// Classifies failed jobs.
    #[strum(serialize = "classify")]
    Classify,
    /// Requests allocations of a scheduler.
    #[strum(serialize = "schedule nodes")]
    ScheduleNodes,
    /// Runs a stored workflow.
    #[strum(serialize = "submit")]
    Submit,
    /// Adds jobs from a running job.
    #[strum(serialize = "spawn")]
    Spawn,
    /// Replays results from a runner's journal.
    #[strum(serialize = "replay")]
    Replay,
    /// Writes user data.
    #[strum(serialize = "write data")]
    WriteData,
    /// Deletes user data that was written.
    #[strum(serialize = "delete data")]
    DeleteData,
    /// Adds remote workers.
    #[strum(serialize = "add workers")]
    AddWorkers,
    /// Removes a remote worker.
    #[strum(serialize = "remove worker")]
    RemoveWorker,
}

/// The outcome of a request, as the audit log records it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AuditOutcome {
    Done,
    /// The token does not allow it.
    Refused(ErrorCode),
    /// It failed with this error.
    Failed(ErrorCode),
}

/// The caller, action and object of a request.
#[derive(Clone)]
pub(crate) struct AuditContext {
    who: String,
    scope: Scope,
    verb: AuditVerb,
    object: Arc<Mutex<String>>,
}

impl AuditContext {
    pub fn new(who: String, scope: Scope, verb: AuditVerb, object: String) -> Self {
        Self { who, scope, verb, object: Arc::new(Mutex::new(object)) }
    }

    /// Returns the row to write, if any. Of runners and jobs, only registrations and refusals are recorded: results and events
    /// document the rest of their work.
    pub fn row(&self, outcome: AuditOutcome, now: Now) -> Option<AuditRow> {
        let is_refused = matches!(outcome, AuditOutcome::Refused(_));
        if self.scope == Scope::Runner && self.verb != AuditVerb::Register && !is_refused {
            return None;
        }
        let outcome = match outcome {
            AuditOutcome::Done => "ok".to_owned(),
            AuditOutcome::Refused(code) | AuditOutcome::Failed(code) => code.to_string(),
        };
        Some(AuditRow {
            time_ms: now.wall_ms,
            who: self.who.clone(),
            scope: self.scope.name().to_owned(),
            verb: self.verb.to_string(),
            object: self.object.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            outcome,
        })
    }
}

/// Runs a future with an audit context.
pub(crate) async fn scope<T>(context: AuditContext, future: impl Future<Output = T>) -> T {
    CONTEXT.scope(context, future).await
}

/// Sets the object of the current context, where its path does not name it.
pub(crate) fn set_object(object: String) {
    // Commands that the server issues itself have no context.
    let _ = CONTEXT.try_with(|context| *context.object.lock().unwrap_or_else(PoisonError::into_inner) = object);
}

/// Returns the audit context of the current task.
pub(crate) fn current() -> Option<AuditContext> {
    CONTEXT.try_with(Clone::clone).ok()
}
