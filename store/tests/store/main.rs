//! The store on real files: what goes in comes out, whole or not at all, whatever dies.

#![allow(clippy::unwrap_used)]

mod atomicity;
mod audit;
mod backup;
mod crash;
mod gc;
mod leadership;
mod lists;
mod model;
mod opening;
mod round_trip;
mod samples;
