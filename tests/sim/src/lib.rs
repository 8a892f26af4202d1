//! Torc's engine and agents in virtual time.
//!
//! The server drives the real `torc_core::engine::Engine`, every runner drives the real `torc_runner::state::State`. The clock, the
//! network, the shim and the processes are simulated. A scenario and its seed decide everything: two runs give the same trace.
//!
//! A schedule is compared with that of a reference scheduler that knows all durations and pays no latency.
//! The crate uses no threads, no I/O and no system clock.

pub mod bound;
pub mod document;
pub mod events;
pub mod graph;
pub mod idle;
pub mod jobs;
pub mod measures;
pub mod network;
pub mod placement;
pub mod random;
pub mod reference;
pub mod runner;
pub mod server;
pub mod shapes;
pub mod shim;
pub mod simulation;
pub mod time;
pub mod trace;
pub mod workload;

#[cfg(test)]
mod tests;

pub use measures::{Measures, measure};
pub use simulation::{SimulationError, simulate};
pub use time::Time;
pub use trace::Trace;
pub use workload::{JobPlan, JobRef, RunnerPlan, Scenario, Timing, WorkflowPlan};
