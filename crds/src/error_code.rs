//! Codes of errors of the HTTP API: one word for programs.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// The code of an error.
#[derive(
    Clone,
    Debug,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    strum::Display,
    strum::EnumIter,
    strum::EnumMessage,
    strum::EnumString,
)]
#[serde(from = "String", into = "String")]
pub enum ErrorCode {
    /// The document has problems; `problems` lists them.
    InvalidDocument,
    /// The request does not fit the workflow's document.
    Invalid,
    /// A loop of spawned jobs has reached `dynamicJobs.maxIterations`.
    TooManyIterations,
    /// The request cannot be read.
    BadRequest,
    /// The cursor does not belong to this list.
    InvalidCursor,
    /// The server speaks TLS only.
    TlsRequired,
    /// The request has no token, or one that is not accepted.
    Unauthorized,
    /// The token does not allow the request.
    Forbidden,
    /// The path does not exist.
    NotFound,
    /// The workflow does not exist.
    WorkflowNotFound,
    /// The job does not exist.
    JobNotFound,
    /// The user data does not exist.
    UserDataNotFound,
    /// The runner does not exist, or has left.
    RunnerNotFound,
    /// The Slurm cluster does not exist.
    ClusterNotFound,
    /// The workflow has no such remote worker.
    WorkerNotFound,
    /// The file is not a log of the job.
    LogNotFound,
    /// The log is on a disk that the server cannot read.
    LogElsewhere,
    /// The log was deleted with the disk that it was on.
    LogGone,
    /// The request does not fit the present state.
    Conflict,
    /// The file exists already.
    Exists,
    /// The Slurm allocation of the runner has ended.
    AllocationEnded,
    /// The workflow is canceled, but Slurm may still hold its allocations.
    AllocationsLeft,
    /// The runner and the server speak different versions of the protocol.
    ProtocolMismatch,
    /// The server is starting, or waits for leadership.
    NotReady,
    /// The store cannot be written to.
    StoreUnavailable,
    /// The server is shutting down.
    Stopped,
    /// A defect of the server.
    Internal,
    /// A code that this version does not know.
    #[strum(default)]
    Other(String),
}

/// The kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The document or the request does not fit the rules.
    Invalid,
    /// The request makes no sense.
    BadRequest,
    /// The caller is unknown.
    Unauthorized,
    /// The token does not allow it.
    Forbidden,
    /// The object does not exist.
    NotFound,
    /// It does not fit the present state.
    Conflict,
    /// It cannot be done at present.
    Unavailable,
    /// The server has a defect.
    Internal,
}

impl ErrorCode {
    /// Returns the kind of failure.
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::InvalidDocument | Self::Invalid | Self::TooManyIterations => ErrorKind::Invalid,
            Self::BadRequest | Self::InvalidCursor | Self::TlsRequired => ErrorKind::BadRequest,
            Self::Unauthorized => ErrorKind::Unauthorized,
            Self::Forbidden => ErrorKind::Forbidden,
            Self::NotFound
            | Self::WorkflowNotFound
            | Self::JobNotFound
            | Self::UserDataNotFound
            | Self::RunnerNotFound
            | Self::ClusterNotFound
            | Self::WorkerNotFound
            | Self::LogNotFound
            | Self::LogElsewhere
            | Self::LogGone => ErrorKind::NotFound,
            Self::Conflict | Self::Exists | Self::AllocationEnded | Self::AllocationsLeft | Self::ProtocolMismatch => {
                ErrorKind::Conflict
            }
            Self::NotReady | Self::StoreUnavailable | Self::Stopped => ErrorKind::Unavailable,
            Self::Internal | Self::Other(_) => ErrorKind::Internal,
        }
    }
}

impl ErrorKind {
    /// Returns the HTTP status.
    pub const fn status(self) -> u16 {
        match self {
            Self::Invalid => 422,
            Self::BadRequest => 400,
            Self::Unauthorized => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::Conflict => 409,
            Self::Unavailable => 503,
            Self::Internal => 500,
        }
    }
}

impl Default for ErrorCode {
    /// Returns the empty code of an answer that has none.
    fn default() -> Self {
        Self::Other(String::new())
    }
}

impl From<String> for ErrorCode {
    fn from(text: String) -> Self {
        text.parse().unwrap_or(Self::Other(text))
    }
}

impl From<ErrorCode> for String {
    fn from(code: ErrorCode) -> Self {
        code.to_string()
    }
}

impl JsonSchema for ErrorCode {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "ErrorCode".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        // A later version may know more codes, so the schema lists none.
        json_schema!({ "type": "string" })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use strum::{EnumMessage as _, IntoEnumIterator as _};

    use super::*;

    #[test]
    fn codes_are_written_as_their_names() {
        for code in ErrorCode::iter().filter(|code| !matches!(code, ErrorCode::Other(_))) {
            let text = serde_json::to_string(&code).unwrap();
            assert_eq!(text, format!("\"{code:?}\""));
            assert_eq!(serde_json::from_str::<ErrorCode>(&text).unwrap(), code);
            assert!(code.get_documentation().is_some_and(|text| text.ends_with('.')), "{code:?}");
        }
    }

    #[test]
    fn unknown_codes_are_kept() {
        let code: ErrorCode = serde_json::from_str("\"FromTheFuture\"").unwrap();
        assert_eq!(code, ErrorCode::Other("FromTheFuture".to_owned()));
        assert_eq!(serde_json::to_string(&code).unwrap(), "\"FromTheFuture\"");
    }
}
