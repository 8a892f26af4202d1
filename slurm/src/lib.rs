//! Slurm's commands as text in, text out.
//!
//! A module for each command builds a [`call::CommandSpec`] and parses its output. Only [`exec`] starts processes. Decisions about
//! jobs and allocations are in `torc-core`.

pub mod accounting;
pub mod allocation;
pub mod call;
pub mod error;
pub mod exec;
pub mod jitter;
pub mod job_id;
pub mod parse;
pub mod partitions;
pub mod profiles;
pub mod retry;
pub mod sacct;
pub mod sbatch;
pub mod scontrol;
pub mod script;
pub mod shell;
pub mod sinfo;
pub mod squeue;
pub mod srun;
pub mod sstat;
pub mod state;
pub mod step_failure;
