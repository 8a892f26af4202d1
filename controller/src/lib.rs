//! The controller: the engine with its single writer, and the HTTP API in front of it.
//!
//! Decisions are in `torc-core` and SQL is in `torc-store`; this crate connects them. It does not start processes or print.

mod audit;
mod caller;
mod clock;
mod credentials;
mod engine;
mod events_reference;
mod http;
mod issuer;
mod kubernetes;
mod leadership;
mod listener;
mod log_relay;
mod memory;
mod metrics;
mod server;
mod slurm;
#[cfg(test)]
mod tests;
pub mod tls;
mod views;

pub use credentials::RunnerCredentials;
pub use engine::{EngineError, EngineHandle};
pub use events_reference::page as events_page;
pub use http::{openapi_document, reference_page};
pub use kubernetes::{KubernetesConfig, NoCluster, Pool};
pub use server::{Server, ServerConfig, StartError};
pub use slurm::{SlurmConfig, SlurmHandle};
