//! Slurm's commands as text in, text out.
//!
//! Here is how Slurm writes amounts, what it tells about an allocation, and the line that starts a step. Deliberately absent:
//! everything that starts a process, and every decision.

pub mod allocation;
pub mod amounts;
pub mod srun;
