//! The failure policy: the cause of a failed attempt, the decision about a retry, and the requirements of the next
//! attempt.
//!
//! All retries use it: the recovery policy of a document, `torc recover`, `torc watch --recover` and
//! `torc workflows correct-resources`. Observations of the attempt count as much as the requirements that the
//! document declares.

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
