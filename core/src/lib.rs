//! Torc's rules. Pure, synchronous, deterministic: `now` is an argument, randomness does not exist, nothing is read or written.

pub mod expand;
pub mod expanded;
pub mod ids;
pub mod rows;
