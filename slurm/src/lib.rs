//! Slurm's commands as text in, text out.
//!
//! Here is how Slurm writes amounts. Deliberately absent: everything that starts a process, and every decision.

pub mod amounts;
