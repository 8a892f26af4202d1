//! Plans the Slurm allocations of workflows.
//!
//! Everything here is pure: Slurm's answers are arguments, and the actions to take are results.

pub mod adopt;
pub mod allocation_plan;
pub mod compare;
pub mod cpus;
pub mod document;
pub mod fit;
pub mod generate;
pub mod groups;
mod margin;
pub mod orphans;
pub mod partition;
pub mod runner_liveness;
pub mod sizing;
