//! Torc's node runner. It consists of two processes: the *shim*, small and single-threaded, is the parent of all jobs and
//! outlives the *agent*, which talks to the server and decides.
//!
//! The agent is an event loop around a pure state: [`state::State::handle`] turns what happened into what is to be done.
//! Deliberately absent: SQL but for the files it writes itself, Kubernetes, printing. The server is known only through [`link::ServerLink`].

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
pub mod shim;
pub mod slurm_query;
pub mod state;
mod tokens;

mod agent;

pub use agent::{run, settings};
pub use config::{IdleExit, OfflineSettings, RunnerConfig, RunnerError, RunnerExit};
pub use events::RunnerEvent;
pub use link::http::{Bearer, HttpLink};
pub use link::{LinkError, ServerLink};
pub use process::ProcessId;
