//! The fast black-box suites: commands, exit codes, files and processes of the built `torc`.
#![allow(clippy::unwrap_used)]

mod actions;
mod apply;
mod conformance;
mod crash;
mod data;
mod documents;
mod exit_codes;
mod explain;
mod input;
mod logs;
mod lost_runners;
mod machine;
mod memory;
mod misbehaving_jobs;
mod modes;
mod offline;
mod orphans;
mod plan;
mod planning;
mod server;
mod stopping;
mod store;
mod tidy;
mod torc1_commands;
mod trust;
