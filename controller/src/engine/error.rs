//! Why the engine did not do what it was asked.

use torc_api::api::ErrorBody;
use torc_api::causes::with_causes;
use torc_api::problem::Problem;
use torc_core::engine::CommandError;
use torc_store::StoreError;

/// Why the engine did not do what it was asked: a kind for programs, a body for people.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", body.message)]
pub struct EngineError {
    /// What kind of failure.
    pub kind: ErrorKind,
    /// What to say.
    pub body: Box<ErrorBody>,
}

/// The code of a server that waits for something.
pub(crate) const NOT_READY: &str = "NotReady";

/// Kinds of failures that callers tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The document is wrong.
    Invalid,
    /// The request makes no sense.
    BadRequest,
    /// No such thing.
    NotFound,
    /// It does not fit the present state.
    Conflict,
    /// The token does not allow it.
    Forbidden,
    /// Not now: the store cannot be written to.
    Unavailable,
    /// A defect of ours.
    Internal,
}

impl EngineError {
    fn new(kind: ErrorKind, code: &str, message: String) -> Self {
        Self { kind, body: Box::new(ErrorBody { code: code.to_owned(), message, ..ErrorBody::default() }) }
    }

    /// A document with problems.
    pub(crate) fn invalid(problems: Vec<Problem>) -> Self {
        let message = match problems.as_slice() {
            [only] => only.message.clone(),
            several => format!("the document has {} problems", several.len()),
        };
        let mut error = Self::new(ErrorKind::Invalid, "InvalidDocument", message);
        error.body.field = problems.first().map(|problem| problem.field.clone()).filter(|field| !field.is_empty());
        error.body.problems = problems;
        error
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::BadRequest, "BadRequest", message.into())
    }

    pub(crate) fn no_data(name: &str) -> Self {
        let message = format!("user data '{name}' does not exist");
        let mut error = Self::new(ErrorKind::NotFound, "UserDataNotFound", message);
        error.body.hint = Some("`torc get user-data <workflow>` lists what there is".to_owned());
        error
    }

    /// A worker that is not there.
    pub(crate) fn no_worker(address: &str) -> Self {
        let message = format!("the workflow has no worker '{address}'");
        let mut error = Self::new(ErrorKind::NotFound, "WorkerNotFound", message);
        error.body.hint = Some("`torc remote list-workers` lists those that it has".to_owned());
        error
    }

    /// Slurm has not said of all allocations of a workflow that they are gone.
    pub(crate) fn allocations_left(workflow: &str, count: usize) -> Self {
        let of_it = if count == 1 { "an allocation".to_owned() } else { format!("{count} allocations") };
        let message = format!("workflow '{workflow}' is cancelled, and {of_it} of it may still be in Slurm");
        let mut error = Self::new(ErrorKind::Conflict, "AllocationsLeft", message);
        let hint = "delete it again when Slurm answers; `--force` forgets it at once, and `squeue` shows what is left";
        error.body.hint = Some(hint.to_owned());
        error
    }

    /// A file that is no log of the job.
    pub(crate) fn no_log(path: &str, job: &str) -> Self {
        Self::new(ErrorKind::NotFound, "LogNotFound", format!("'{path}' is no log of job `{job}`"))
    }

    /// A log on a disk that the server has no way to.
    pub(crate) fn log_elsewhere(host: &str, path: &str) -> Self {
        let message = format!("the log is on a disk of {host}: {path}");
        let mut error = Self::new(ErrorKind::NotFound, "LogElsewhere", message);
        error.body.hint = Some("read it there; only runners in Pods bring logs to the server".to_owned());
        error
    }

    /// A log that went with the disk that it was on.
    pub(crate) fn log_gone(host: &str) -> Self {
        let message = format!("the runner {host} is gone, and the logs on its disk with it");
        let mut error = Self::new(ErrorKind::NotFound, "LogGone", message);
        error.body.hint = Some("to keep logs, give the runner pool a volume at /torc/output".to_owned());
        error
    }

    pub(crate) fn forbidden(message: String) -> Self {
        Self::new(ErrorKind::Forbidden, "Forbidden", message)
    }

    /// A runner of somebody else, or attempts of somebody else's workflow.
    pub(crate) fn not_theirs() -> Self {
        Self::forbidden("the token does not allow to speak for this runner".to_owned())
    }

    pub(crate) fn internal(message: String) -> Self {
        Self::new(ErrorKind::Internal, "Internal", message)
    }

    pub(crate) fn stopped() -> Self {
        Self::new(ErrorKind::Unavailable, "Stopped", "the server is shutting down".to_owned())
    }

    /// The server waits for something before it can be asked.
    pub(crate) fn not_ready(message: String) -> Self {
        Self::new(ErrorKind::Unavailable, NOT_READY, message)
    }

    pub(crate) fn unavailable(message: String) -> Self {
        let mut error = Self::new(ErrorKind::Unavailable, "StoreUnavailable", message);
        error.body.hint = Some("nothing was lost; the server tries again by itself".to_owned());
        error
    }
}

impl From<CommandError> for EngineError {
    fn from(refusal: CommandError) -> Self {
        let message = refusal.to_string();
        match refusal {
            CommandError::NoWorkflow(_) => Self::new(ErrorKind::NotFound, "WorkflowNotFound", message),
            CommandError::NoJob { workflow, .. } => {
                let mut error = Self::new(ErrorKind::NotFound, "JobNotFound", message);
                error.body.hint = Some(format!("`torc get jobs {workflow}` lists its jobs"));
                error
            }
            CommandError::NoData { workflow, .. } => {
                let mut error = Self::new(ErrorKind::NotFound, "UserDataNotFound", message);
                error.body.hint = Some(format!("`torc user-data list {workflow}` lists its data"));
                error
            }
            CommandError::Invalid(_) => Self::new(ErrorKind::Invalid, "Invalid", message),
            CommandError::TooManyIterations { .. } => {
                let mut error = Self::new(ErrorKind::Invalid, "TooManyIterations", message);
                let hint =
                    "raise `dynamicJobs.maxIterations` in the document, or end the loop with an empty list of jobs";
                error.body.hint = Some(hint.to_owned());
                error
            }
            CommandError::NoRunner(_) => Self::new(ErrorKind::NotFound, "RunnerNotFound", message),
            CommandError::NoCluster(_) => {
                let mut error = Self::new(ErrorKind::NotFound, "ClusterNotFound", message);
                error.body.hint = Some("`torc get slurmclusters` lists them".to_owned());
                error
            }
            CommandError::AllocationEnded(_) => Self::new(ErrorKind::Conflict, "AllocationEnded", message),
            CommandError::Protocol(_) => {
                let mut error = Self::new(ErrorKind::Conflict, "ProtocolMismatch", message);
                error.body.hint = Some("install the same version of torc on both sides".to_owned());
                error
            }
            CommandError::Conflict(_) => Self::new(ErrorKind::Conflict, "Conflict", message),
            CommandError::Forbidden(_) => Self::forbidden(message),
        }
    }
}

impl From<StoreError> for EngineError {
    fn from(error: StoreError) -> Self {
        let message = with_causes(&error);
        match error {
            StoreError::InvalidCursor { .. } => Self::new(ErrorKind::BadRequest, "InvalidCursor", message),
            StoreError::Exists { .. } => Self::new(ErrorKind::Conflict, "Exists", message),
            _ => Self::unavailable(message),
        }
    }
}
