//! Rules for failed jobs, and limits for leases ahead of time.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::state::Cause;

/// Rules for failed jobs; the first that matches decides.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailureHandler {
    /// The name that jobs refer to.
    #[schemars(length(min = 1, max = 1_024))]
    pub name: String,
    /// The rules, in order. Those that list the exit code or the cause come before those that match everything.
    #[schemars(length(max = 32))]
    pub rules: Vec<FailureRule>,
}

/// One rule of a failure handler.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailureRule {
    /// Exit codes that this rule matches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub exit_codes: Vec<i32>,
    /// Causes that this rule matches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub causes: Vec<Cause>,
    /// Match every failure (false when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub match_all_exit_codes: Option<bool>,
    /// A script that must succeed before the job is retried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 131_072))]
    pub recovery_script: Option<String>,
    /// Retries after the first attempt (3 when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_retries: Option<i32>,
}

/// Automatic recovery of jobs that were lost or ran out of memory or time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Recovery {
    /// Auto retries, with more memory or time if needed; Manual needs a decision; Never retries nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<RecoveryPolicy>,
    /// Retries of attempts that were lost with their runner, node or allocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<RetryLimit>,
    /// Retries of jobs that ran out of memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out_of_memory: Option<Escalation>,
    /// Retries of jobs that ran out of time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Escalation>,
    /// Retries of failures with another cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown: Option<UnknownFailures>,
}

/// The policy for failed jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RecoveryPolicy {
    /// Retry lost attempts, and give more memory or time to jobs that ran out of it.
    Auto,
    /// Failed jobs stay in `pending_failed` until the user decides.
    Manual,
    /// Failed jobs are never retried.
    Never,
}

/// A limit of retries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RetryLimit {
    /// The largest number of retries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub limit: Option<i32>,
}

/// A limit of retries, each with more memory or time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Escalation {
    /// The largest number of retries (2 when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub limit: Option<i32>,
    /// The next amount, in percent of what the attempt requested or used, whichever is more (150 when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 100, max = 10_000))]
    pub increase_percent: Option<i32>,
}

/// Rules for failures with another cause.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnknownFailures {
    /// Fail (when absent) or Retry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<UnknownAction>,
    /// The largest number of retries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub limit: Option<i32>,
}

/// The decision about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UnknownAction {
    /// The job has failed.
    Fail,
    /// The job is retried.
    Retry,
}

/// Limits for jobs that a runner leases before it can run them. Absent values follow from the measured durations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Prefetch {
    /// Lease jobs ahead of time (true when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// The largest number of jobs leased in one message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub batch_size: Option<i32>,
    /// The largest number of jobs that wait in one runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub max_queued: Option<i32>,
    /// The number of waiting jobs below which a runner requests more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub refill_threshold: Option<i32>,
    /// Seconds of silence after which a runner loses the leases that it has not started (120 when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 5))]
    pub lease_seconds: Option<i32>,
    /// Seconds of work that a runner keeps waiting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub horizon_seconds: Option<i32>,
}

impl Prefetch {
    /// Returns these settings, with absent values from `other`.
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
