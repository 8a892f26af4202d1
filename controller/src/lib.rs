//! The controller: the engine with its single writer, and the HTTP API in front of it.
//!
//! Decisions are in `torc-core`, SQL is in `torc-store`; here they meet. Deliberately absent: starting processes, printing.

mod audit;
mod clock;
mod engine;
mod handover;
mod http;
mod issuer;
mod kubernetes;
mod listener;
mod memory;
mod metrics;
mod openapi;
mod pieces;
mod server;
mod slurm;
#[cfg(test)]
mod tests;
pub mod tls;
mod views;

pub use engine::{EngineError, EngineHandle};
pub use handover::Handover;
pub use kubernetes::{KubernetesConfig, NoCluster, Pool};
pub use openapi::document as openapi_document;
pub use server::{Server, ServerConfig, StartError};
pub use slurm::{SlurmConfig, SlurmHandle};
