//! Tests of the simulator: it keeps the rules of the system that it simulates.

mod checks;
mod examples;
mod properties;
