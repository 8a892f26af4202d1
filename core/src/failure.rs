//! The failure policy: why an attempt failed, whether the job is retried, and what the next attempt gets.
//!
//! Everything that retries jobs asks here: the recovery policy of a document, `torc recover`, `torc watch --recover` and
//! `torc workflows correct-resources`. What was observed of the attempt counts as much as what the document declares.

pub mod correction;
pub mod diagnosis;
pub mod escalation;
pub mod exit_codes;
pub mod manual;
pub mod policy;

#[cfg(test)]
mod tests;

pub use correction::{ObservedJob, correct};
pub use diagnosis::{Evidence, diagnose};
pub use escalation::{Escalated, LimitReached, Multipliers, NodeShape, escalate};
pub use manual::{ManualDecision, RecoveryOptions};
pub use policy::{AttemptFailure, FailureDecision, Policy};
