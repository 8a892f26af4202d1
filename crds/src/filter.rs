//! Filters of the lists of the HTTP API: the query of the request, which the client sends and the store evaluates.
//!
//! `R` refers to a workflow or a job: by name or number over HTTP, by number in the store.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::state::JobState;

/// Filter of jobs, in the order of their numbers. Removed jobs are not listed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobFilter {
    /// The number of a workflow. A request names it in its path.
    #[serde(skip)]
    pub workflow: Option<i64>,
    /// States, separated by commas.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "states")]
    #[schemars(with = "Option<String>")]
    pub status: Vec<JobState>,
    /// The exact name of a job.
    pub name: Option<String>,
    /// A part of the name.
    pub contains: Option<String>,
    /// The maximum number of items of one page.
    pub limit: Option<u32>,
    /// `next` of the previous page.
    pub cursor: Option<String>,
}

/// Filter of results, in the order of workflow, job, run and attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResultFilter<R = String> {
    /// The number of a workflow. A request names it in its path.
    #[serde(skip)]
    pub workflow: Option<i64>,
    /// A job, by name or number.
    pub job: Option<R>,
    /// The number of a run.
    pub run: Option<i32>,
    /// States, separated by commas.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "states")]
    #[schemars(with = "Option<String>")]
    pub status: Vec<JobState>,
    /// `true` for attempts that failed or were terminated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub failed: bool,
    /// The exit code of an attempt.
    #[serde(rename = "returnCode")]
    pub return_code: Option<i32>,
    /// `true` for the last attempt of each job, whatever the other filters select.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub latest: bool,
    /// The maximum number of items of one page.
    pub limit: Option<u32>,
    /// `next` of the previous page.
    pub cursor: Option<String>,
}

impl<R> ResultFilter<R> {
    /// Returns the same filter with the numbers of its workflow and job.
    pub fn with_numbers(self, workflow: i64, job: Option<i64>) -> ResultFilter<i64> {
        let Self { workflow: _, job: _, run, status, failed, return_code, latest, limit, cursor } = self;
        ResultFilter { workflow: Some(workflow), job, run, status, failed, return_code, latest, limit, cursor }
    }
}

/// Filter of events, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EventFilter<R = String> {
    /// The namespace (`default` when absent).
    pub namespace: Option<String>,
    /// A workflow, by name or number.
    pub workflow: Option<R>,
    /// A sequence number; `Last-Event-ID` of a stream overrides it.
    pub after: Option<i64>,
    /// The maximum number of items of one page.
    pub limit: Option<u32>,
}

/// Filter of runners, in the order of their registration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunnerFilter {
    /// `true` to include runners that have left.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
}

/// Filter of Slurm allocations, in the order of their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AllocationFilter<R = String> {
    /// The namespace (`default` when absent).
    pub namespace: Option<String>,
    /// A workflow, by name or number.
    pub workflow: Option<R>,
    /// `true` for allocations that have not ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub live: bool,
    /// The maximum number of items of one page.
    pub limit: Option<u32>,
    /// `next` of the previous page.
    pub cursor: Option<String>,
}

/// Filter of Slurm's accounting of steps, in the order of workflow, job, run and attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SlurmStatsFilter<R = String> {
    /// The namespace (`default` when absent).
    pub namespace: Option<String>,
    /// A workflow, by name or number.
    pub workflow_id: Option<R>,
    /// A job, by number, or by name with its workflow.
    pub job_id: Option<R>,
    /// The number of a run.
    pub run_id: Option<i32>,
    /// The number of an attempt.
    pub attempt_id: Option<i32>,
    /// The maximum number of items of one page.
    pub limit: Option<u32>,
    /// `next` of the previous page.
    pub cursor: Option<String>,
}

/// Filter of the audit log, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditFilter {
    /// The user whose requests are listed. The server sets it; a request cannot.
    #[serde(skip)]
    pub who: Option<String>,
    /// The maximum number of items of one page.
    pub limit: Option<u32>,
    /// `next` of the previous page.
    pub cursor: Option<String>,
}

/// A list of states as text: `failed,terminated`.
mod states {
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    use crate::state::JobState;

    pub fn serialize<S: Serializer>(states: &[JobState], serializer: S) -> Result<S::Ok, S::Error> {
        let names: Vec<&str> = states.iter().map(|state| state.as_str()).collect();
        serializer.serialize_str(&names.join(","))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<JobState>, D::Error> {
        let list = String::deserialize(deserializer)?;
        let names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
        names.map(|name| name.parse().map_err(D::Error::custom)).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn states_are_one_text_separated_by_commas() {
        let filter: JobFilter = serde_json::from_value(json!({ "status": "failed, terminated," })).unwrap();
        assert_eq!(filter.status, [JobState::Failed, JobState::Terminated]);
        assert_eq!(serde_json::to_value(&filter).unwrap()["status"], "failed,terminated");
        let error = serde_json::from_value::<JobFilter>(json!({ "status": "lost" })).unwrap_err();
        assert!(error.to_string().contains("'lost'"), "{error}");
    }
}
