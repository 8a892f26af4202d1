//! The connection of a runner to its server.

use std::future::Future;

use thiserror::Error;
use torc_api::wire::{RegisterRequest, RegisterResponse, SyncRequest, SyncResponse};

pub mod http;

/// A connection to the server. The runner never cancels calls: each ends with an answer or an error.
pub trait ServerLink: Send + Sync + 'static {
    /// Registers the runner, and returns its ID and the duration of its leases.
    fn register(&self, request: &RegisterRequest) -> impl Future<Output = Result<RegisterResponse, LinkError>> + Send;

    /// Sends the state of the runner, and returns the server's directives.
    fn sync(&self, runner: i64, request: &SyncRequest) -> impl Future<Output = Result<SyncResponse, LinkError>> + Send;
}

/// The reason why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LinkError {
    /// It is unknown whether the server got the message, so the runner repeats it.
    #[error("the server cannot be reached: {0}")]
    Unreachable(String),
    /// The server does not know the runner (any more), so the runner registers again.
    #[error("the server does not know this runner")]
    Unknown,
    /// The server will never accept this request.
    #[error("the server refused: {message} ({code})")]
    Refused { code: String, message: String },
    /// The token is missing or wrong.
    #[error("the server does not accept the token")]
    Unauthorized,
    /// The token has expired, and its file may soon hold another one.
    #[error("the token has expired, and its file has no new one")]
    Outdated,
}
