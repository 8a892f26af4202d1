//! What happens when a job fails, and how far runners work ahead.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::state::Cause;

/// Rules for failed jobs; the first that matches decides.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailureHandler {
    /// What jobs refer to.
    #[schemars(length(min = 1, max = 1_024))]
    pub name: String,
    /// Tried in order: first those that list the exit code or cause, then those that match everything.
    #[schemars(length(max = 32))]
    pub rules: Vec<FailureRule>,
}

/// One rule of a failure handler.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailureRule {
    /// Exit codes this rule is for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub exit_codes: Vec<i32>,
    /// Causes this rule is for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub causes: Vec<Cause>,
    /// The rule is for every failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub match_all_exit_codes: Option<bool>,
    /// Runs before the job is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 131_072))]
    pub recovery_script: Option<String>,
    /// Retries after the first attempt (3 when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_retries: Option<i32>,
}

/// What the controller does by itself about jobs that were lost or ran out of something.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Recovery {
    /// Auto also grants more memory or time; Manual waits for a person; Never retries nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<RecoveryPolicy>,
    /// Attempts lost through no fault of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<RetryLimit>,
    /// Jobs that ran out of memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out_of_memory: Option<Escalation>,
    /// Jobs that ran out of time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Escalation>,
    /// Failures with another cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown: Option<UnknownFailures>,
}

/// Who decides about failed jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RecoveryPolicy {
    /// Retry lost attempts, and give more memory or time to jobs that ran out of it.
    Auto,
    /// Failed jobs wait in `pending_failed` for a person.
    Manual,
    /// Retry nothing.
    Never,
}

/// How often something is retried.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RetryLimit {
    /// The most retries for this cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub limit: Option<i32>,
}

/// How often, and with how much more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Escalation {
    /// The most retries for this cause (2 when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub limit: Option<i32>,
    /// The new amount in percent of what the attempt had or was seen to use, whichever is more (150 when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 100, max = 10_000))]
    pub increase_percent: Option<i32>,
}

/// What happens to failures with no known cause.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnknownFailures {
    /// Fail (when absent) or Retry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<UnknownAction>,
    /// The most retries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub limit: Option<i32>,
}

/// Fail or try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UnknownAction {
    /// The job is failed.
    Fail,
    /// The job is tried again.
    Retry,
}

/// How far a runner leases ahead; what is absent is chosen from the observed durations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Prefetch {
    /// Lease ahead at all (true when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// The most jobs leased in one message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub batch_size: Option<i32>,
    /// The most jobs that wait in one runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_queued: Option<i32>,
    /// Ask for more when fewer than this wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub refill_threshold: Option<i32>,
    /// A runner silent for this long loses its leases (120 when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 5))]
    pub lease_seconds: Option<i32>,
    /// How many seconds of work a runner keeps waiting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub horizon_seconds: Option<i32>,
}

impl Prefetch {
    /// These settings where they say something, the others where they do not.
    pub fn over(&self, other: &Self) -> Self {
        Self {
            enabled: self.enabled.or(other.enabled),
            batch_size: self.batch_size.or(other.batch_size),
            max_queued: self.max_queued.or(other.max_queued),
            refill_threshold: self.refill_threshold.or(other.refill_threshold),
            lease_seconds: self.lease_seconds.or(other.lease_seconds),
            horizon_seconds: self.horizon_seconds.or(other.horizon_seconds),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // P05
    #[test]
    fn what_is_said_here_wins_field_by_field() {
        let all = |value: i32| Prefetch {
            enabled: Some(value > 0),
            batch_size: Some(value),
            max_queued: Some(value),
            refill_threshold: Some(value),
            lease_seconds: Some(value),
            horizon_seconds: Some(value),
        };
        let own = Prefetch {
            enabled: Some(false),
            batch_size: Some(1),
            max_queued: Some(2),
            refill_threshold: Some(3),
            lease_seconds: Some(4),
            horizon_seconds: Some(5),
        };
        let other = Prefetch {
            enabled: Some(true),
            batch_size: Some(11),
            max_queued: Some(12),
            refill_threshold: Some(13),
            lease_seconds: Some(14),
            horizon_seconds: Some(15),
        };
        assert_eq!(own.over(&other), own);
        assert_eq!(other.over(&own), other);
        assert_eq!(Prefetch::default().over(&other), other, "each field is taken from the same field");
        assert_eq!(all(0).over(&all(9)), all(0));
        assert_eq!(Prefetch::default().over(&all(9)), all(9));
        assert_eq!(all(9).over(&Prefetch::default()), all(9));
    }
}
