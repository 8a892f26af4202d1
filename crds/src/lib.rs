//! The types that cross a process boundary: documents, statuses, and messages between client, server and runner.
//!
//! Deliberately absent: I/O, the clock, async. Loading takes text, never a path.

pub mod action;
pub mod allocation;
pub mod api;
pub mod bounds;
pub mod causes;
pub mod cluster;
pub mod condition;
pub mod data;
#[cfg(feature = "kube")]
pub mod definition;
pub mod document;
pub mod error_code;
pub mod event_reason;
pub mod execution;
pub mod explain;
pub mod failure;
pub mod filter;
#[cfg(feature = "load")]
mod finding;
pub mod job;
#[cfg(feature = "load")]
pub mod load;
pub mod logs;
#[cfg(all(test, feature = "load"))]
mod messages;
pub mod nearest;
pub mod parameters;
pub mod problem;
pub mod quantity;
pub mod recovery;
pub mod remote;
pub mod resources;
pub mod rules;
pub mod schema;
pub mod setting;
pub mod size;
pub mod slurm;
pub mod slurm_stats;
pub mod state;
pub mod status;
pub mod termination;
#[cfg(all(test, feature = "load"))]
mod testing;
pub mod token;
#[cfg(feature = "load")]
pub mod validate;
pub mod wire;
#[cfg(all(test, feature = "load"))]
mod words;
pub mod workflow;

/// The API group of every document.
pub const GROUP: &str = "torc.dev";
/// The API version that is served and stored.
pub const VERSION: &str = "v1alpha1";
/// `apiVersion` of every document.
pub const API_VERSION: &str = "torc.dev/v1alpha1";
