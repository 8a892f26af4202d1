//! Torc's node runner. It consists of two processes: the *shim*, small and single-threaded, is the parent of all jobs and
//! outlives the *agent*, which talks to the server and decides.
//!
//! The agent is an event loop around a pure state: [`state::State::handle`] takes an event and returns the effects to
//! execute. This crate does not print, does not know Kubernetes, and uses SQL only for the runner's own files. The
//! agent knows the server only as a [`link::ServerLink`].

pub mod clock;
pub mod command;
pub mod config;
pub mod detect;
pub mod events;
pub mod files;
pub mod gpus;
pub mod journal;
pub mod link;
pub mod liveness;
pub mod mode;
pub mod monitor;
pub mod packs;
pub mod plots;
pub mod process;
mod procfs;
pub mod protocol;
pub mod series;
pub mod settings;
pub mod shim;
pub mod slurm_query;
pub mod state;
mod tokens;

mod agent;

pub use agent::{resolve, run};
pub use config::{IdleExit, RunnerConfig, RunnerError, RunnerExit};
pub use events::RunnerEvent;
pub use link::http::{Bearer, HttpLink};
pub use link::{LinkError, ServerLink};
pub use process::ProcessId;
pub use settings::RunnerSettings;
