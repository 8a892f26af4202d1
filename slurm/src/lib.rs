//! Slurm's commands as text in, text out.
//!
//! A module for each command builds a [`call::CommandSpec`] and reads its answer. Only [`exec`] starts processes. Deliberately absent:
//! every decision about jobs and allocations, which is the core's.

pub mod allocation;
pub mod amounts;
pub mod call;
pub mod exec;
pub mod fields;
pub mod jitter;
pub mod job_id;
pub mod partitions;
pub mod profiles;
pub mod records;
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
pub mod step_end;
pub mod trouble;
