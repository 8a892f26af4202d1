//! Work that several commands share. A use case takes values and a client, not command-line arguments.

pub mod background_server;
pub mod capacity;
pub mod changes;
pub mod follow;
pub mod inside_job;
pub mod interrupts;
pub mod local_runner;
pub mod next_step;
pub mod orphans;
pub mod progress;
pub mod provenance;
pub mod replay;
pub mod run;
pub mod statuses;
pub mod submit;
pub mod summary;
pub mod watch_store;
