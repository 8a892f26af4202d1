//! Suites on a real Slurm. The tests of a suite share one Slurm.
#![allow(clippy::unwrap_used)]

mod allocations;
mod commands;
mod documents;
mod recovery;
mod slurm_env;
