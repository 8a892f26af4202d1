//! Errors of the engine, as the API shows them.

use torc_api::api::ErrorBody;
use torc_api::causes::error_chain;
use torc_api::error_code::{ErrorCode, ErrorKind};
use torc_api::problem::Problem;
use torc_core::engine::CommandError;
use torc_store::StoreError;

use crate::audit::AuditOutcome;

/// The reason why the engine refused or failed a command.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", body.message)]
pub struct EngineError {
    /// The answer of the API.
    pub body: Box<ErrorBody>,
}

impl EngineError {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { body: Box::new(ErrorBody { code, message: message.into(), ..ErrorBody::default() }) }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.body.hint = Some(hint.into());
        self
    }

    /// Returns the kind of failure.
    pub fn kind(&self) -> ErrorKind {
        self.body.code.kind()
    }

    /// Returns the outcome for the audit log.
    pub(crate) fn audit_outcome(&self) -> AuditOutcome {
        match self.kind() {
            ErrorKind::Forbidden => AuditOutcome::Refused(self.body.code.clone()),
            _ => AuditOutcome::Failed(self.body.code.clone()),
        }
    }

    /// Returns the error of a document with problems.
    pub(crate) fn invalid(problems: Vec<Problem>) -> Self {
        let message = match problems.as_slice() {
            [only] => only.message.clone(),
            several => format!("the document has {} problems", several.len()),
        };
        let mut error = Self::new(ErrorCode::InvalidDocument, message);
        error.body.field = problems.first().map(|problem| problem.field.clone()).filter(|field| !field.is_empty());
        error.body.problems = problems;
        error
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::BadRequest, message)
    }

    pub(crate) fn no_data(name: &str) -> Self {
        Self::new(ErrorCode::UserDataNotFound, format!("user data '{name}' does not exist"))
            .hint("`torc get user-data <workflow>` lists the values")
    }

    /// Returns the error of an unknown worker.
    pub(crate) fn no_worker(address: &str) -> Self {
        Self::new(ErrorCode::WorkerNotFound, format!("the workflow has no worker '{address}'"))
            .hint("`torc remote list-workers` lists its workers")
    }

    /// Returns the error of a deletion while Slurm has not confirmed the end of all allocations.
    pub(crate) fn allocations_left(workflow: &str, count: usize) -> Self {
        let allocations = if count == 1 { "1 allocation".to_owned() } else { format!("{count} allocations") };
        let message = format!("workflow '{workflow}' is canceled, but {allocations} may still be in Slurm");
        Self::new(ErrorCode::AllocationsLeft, message)
            .hint("delete it again when Slurm answers, or now with `--force`; `squeue` lists the remaining allocations")
    }

    /// Returns the error of a file that is not a log of the job.
    pub(crate) fn no_log(path: &str, job: &str) -> Self {
        Self::new(ErrorCode::LogNotFound, format!("'{path}' is not a log of job '{job}'"))
    }

    /// Returns the error of a log on a disk that the server cannot read.
    pub(crate) fn log_elsewhere(host: &str, path: &str) -> Self {
        Self::new(ErrorCode::LogElsewhere, format!("the log is on a disk of {host}: {path}"))
            .hint("read it on that host; only runners in Pods send logs to the server")
    }

    /// Returns the error of a log that was deleted with its disk.
    pub(crate) fn log_gone(host: &str) -> Self {
        Self::new(ErrorCode::LogGone, format!("runner {host} was deleted together with the logs on its disk"))
            .hint("to keep logs, give the runner pool a volume at /torc/output")
    }

    pub(crate) fn forbidden(message: String) -> Self {
        Self::new(ErrorCode::Forbidden, message)
    }

    /// Returns the error of a sync with the token of another runner.
    pub(crate) fn foreign_runner() -> Self {
        Self::forbidden("the token does not belong to this runner".to_owned())
    }

    pub(crate) fn internal(message: String) -> Self {
        Self::new(ErrorCode::Internal, message)
    }

    pub(crate) fn stopped() -> Self {
        Self::new(ErrorCode::Stopped, "the server is shutting down")
    }

    /// Returns the error of a server that is not ready.
    pub(crate) fn not_ready(message: String) -> Self {
        Self::new(ErrorCode::NotReady, message)
    }

    pub(crate) fn unavailable(message: String) -> Self {
        Self::new(ErrorCode::StoreUnavailable, message).hint("no data is lost; the server retries by itself")
    }
}

impl From<CommandError> for EngineError {
    fn from(refusal: CommandError) -> Self {
        let error = |code| Self::new(code, refusal.to_string());
        match &refusal {
            CommandError::NoWorkflow(_) => error(ErrorCode::WorkflowNotFound),
            CommandError::NoJob { workflow, .. } => {
                error(ErrorCode::JobNotFound).hint(format!("`torc get jobs {workflow}` lists its jobs"))
            }
            CommandError::NoData { workflow, .. } => {
                error(ErrorCode::UserDataNotFound).hint(format!("`torc user-data list {workflow}` lists its data"))
            }
            CommandError::Invalid(_) => error(ErrorCode::Invalid),
            CommandError::TooManyIterations { .. } => error(ErrorCode::TooManyIterations).hint(
                "raise `dynamicJobs.maxIterations` in the document, or end the loop with `torc spawn --converged`",
            ),
            CommandError::NoRunner(_) => error(ErrorCode::RunnerNotFound),
            CommandError::NoCluster(_) => error(ErrorCode::ClusterNotFound).hint("`torc get slurmclusters` lists them"),
            CommandError::AllocationEnded(_) => error(ErrorCode::AllocationEnded),
            CommandError::Protocol(_) => {
                error(ErrorCode::ProtocolMismatch).hint("install the same version of torc on both sides")
            }
            CommandError::Conflict(_) => error(ErrorCode::Conflict),
            CommandError::Forbidden(_) => error(ErrorCode::Forbidden),
        }
    }
}

impl From<StoreError> for EngineError {
    fn from(error: StoreError) -> Self {
        let message = error_chain(&error);
        match error {
            StoreError::InvalidCursor { .. } => Self::new(ErrorCode::InvalidCursor, message),
            StoreError::Exists { .. } => Self::new(ErrorCode::Exists, message),
            _ => Self::unavailable(message),
        }
    }
}
