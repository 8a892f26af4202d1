//! Torc's rules. Pure, synchronous, deterministic: `now` is an argument, randomness does not exist, nothing is read or written.

pub mod accounting;
pub mod backoff;
pub mod class;
pub mod engine;
pub mod expand;
pub mod expanded;
pub mod explain;
pub mod failure;
pub mod files;
pub mod graph;
pub mod hash;
pub mod ids;
pub mod job;
pub mod ledger;
pub mod lineage;
pub mod matching;
pub mod planning;
pub mod prefetch;
pub mod ro_crate;
pub mod rows;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod time;
pub mod tokens;
pub mod urgency;
