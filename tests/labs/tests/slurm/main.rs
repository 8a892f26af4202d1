//! Suites on a real Slurm. Each suite has a Slurm of its own, which its tests share.
#![allow(clippy::unwrap_used)]

mod allocations;
mod commands;
mod documents;
mod recovery;
mod slurm_env;
