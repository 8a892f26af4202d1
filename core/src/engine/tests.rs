//! Tests of the engine: each rule in a table of its own, and random histories against a small model.

#![allow(clippy::unwrap_used)]

mod actions;
mod allocations;
mod commands;
mod conditions;
mod cost;
mod data;
mod detached_leases;
mod details;
mod edits;
mod escalation;
mod failures;
mod fleet;
mod gates;
mod harness;
mod history;
mod inspection;
mod invariants;
mod leased;
mod leases;
mod lost_runners;
mod model;
mod plan;
mod random;
mod rebalance;
mod recover;
mod recovery;
mod replay;
mod reruns;
mod restart;
mod results;
mod rights;
mod silence;
mod spawn;
mod terms;
mod wake_ups;
