//! Tests of the simulator: it keeps the rules of the system that it simulates.
#![allow(clippy::unwrap_used)]

mod checks;
mod examples;
mod properties;
