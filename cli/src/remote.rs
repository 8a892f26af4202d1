//! Machines reached over SSH.
//!
//! Nothing is scripted in a shell: over there the same program (`torc remote-agent`) reads one order from its standard input,
//! carries it out and reports. So a token never is on a command line, and both sides share their types.

pub mod agent;
pub mod folder;
pub mod parallel;
pub mod request;
pub mod ssh;
pub mod worker_status;
