//! How a runner reaches its server.

use std::future::Future;

use thiserror::Error;
use torc_api::wire::{RegisterRequest, RegisterResponse, SyncRequest, SyncResponse};

pub mod http;

/// A way to the server. Calls are never cancelled by the runner: each ends with an answer or an error of its own.
pub trait ServerLink: Send + Sync + 'static {
    /// Introduces the runner.
    fn register(&self, request: &RegisterRequest) -> impl Future<Output = Result<RegisterResponse, LinkError>> + Send;

    /// Says what is, and is told what should be.
    fn sync(&self, runner: i64, request: &SyncRequest) -> impl Future<Output = Result<SyncResponse, LinkError>> + Send;
}

/// Why a call had no answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LinkError {
    /// Nobody knows whether the server got the message. It is sent again.
    #[error("the server cannot be reached: {0}")]
    Unreachable(String),
    /// The server does not know the runner (any more): it registers again.
    #[error("the server does not know this runner")]
    Unknown,
    /// The server will never accept this.
    #[error("the server refused: {message} ({code})")]
    Refused {
        /// One word.
        code: String,
        /// A sentence.
        message: String,
    },
    /// The token is missing or wrong.
    #[error("the server does not accept the token")]
    Unauthorized,
    /// The token is not accepted any more, and the file that it came from may hold another one soon.
    #[error("the server does not accept the token any more, and there is no other one in its file")]
    Outdated,
}
