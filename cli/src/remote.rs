//! Workers on machines that are reached over SSH.
//!
//! There are no shell scripts: the same program (`torc remote-agent`) runs on the worker, reads one request from its standard input,
//! executes it and prints a response. So no command line contains a token, and both sides share their types.

pub mod agent;
pub mod folder;
pub mod parallel;
pub mod request;
pub mod ssh;
pub mod worker_status;
