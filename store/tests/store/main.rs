//! The store on real files.

#![allow(clippy::unwrap_used)]

mod atomicity;
mod attempts;
mod audit;
mod backup;
mod columns;
mod crash;
mod gc;
mod generators;
mod leadership;
mod lists;
mod opening;
mod queries;
mod remote;
mod round_trip;
mod samples;
mod tables;
