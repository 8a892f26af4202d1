//! Which allocations the jobs of a workflow need, and what to make of those that exist.
//!
//! Everything here is pure: Slurm's answers come in as values, and what comes out is what should be done. Nothing is submitted,
//! cancelled or asked for.

pub mod adopt;
pub mod compare;
pub mod course;
pub mod cpus;
pub mod document;
pub mod fit;
pub mod generate;
pub mod groups;
mod margin;
pub mod orphans;
pub mod partition;
pub mod runner_fate;
pub mod sizing;
