//! Slurm allocations as the HTTP API gives them out.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The name of an allocation: the marker by which it is found again in Slurm begins with it.
pub fn name(workflow: i64, number: i64) -> String {
    format!("torc-wf{workflow}-a{number}")
}

/// Where an allocation stands.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[strum(serialize_all = "lowercase", const_into_str, parse_err_ty = String, parse_err_fn = unknown_status)]
#[serde(rename_all = "lowercase")]
pub enum AllocationStatus {
    /// It is to be submitted, or waits in Slurm's queue.
    #[default]
    Pending,
    /// It has nodes.
    Active,
    /// It is over.
    Complete,
    /// It was not needed any more, and is over.
    Canceled,
}

impl AllocationStatus {
    /// Every status.
    pub const ALL: &[Self] = <Self as strum::VariantArray>::VARIANTS;

    /// The name in documents, tables and logs.
    pub const fn as_str(self) -> &'static str {
        self.into_str()
    }

    /// It is over.
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Complete | Self::Canceled)
    }
}

fn unknown_status(text: &str) -> String {
    format!("unknown status of an allocation '{text}'")
}

/// What an allocation was asked for by.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[strum(serialize_all = "lowercase", const_into_str, parse_err_ty = String, parse_err_fn = unknown_origin)]
#[serde(rename_all = "lowercase")]
pub enum AllocationOrigin {
    /// By what the jobs need.
    #[default]
    Sizing,
    /// By a `schedule_nodes` action of the document.
    Action,
    /// In place of one that was lost.
    Recovery,
    /// By a person.
    Manual,
}

impl AllocationOrigin {
    /// Every origin.
    pub const ALL: &[Self] = <Self as strum::VariantArray>::VARIANTS;

    /// The name in documents, tables and logs.
    pub const fn as_str(self) -> &'static str {
        self.into_str()
    }
}

fn unknown_origin(text: &str) -> String {
    format!("unknown origin of an allocation '{text}'")
}

/// A Slurm allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Allocation {
    /// Its name, e.g. `torc-wf3-a12`; Slurm knows it by a name that begins so.
    pub name: String,
    /// Its number: the 12 of its name.
    pub id: i64,
    /// The workflow's name.
    pub workflow: String,
    /// The workflow's number.
    pub workflow_id: i64,
    /// The document's scheduler that it was asked for with; absent when it was sized by what jobs need.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<String>,
    /// The SlurmCluster.
    pub cluster: String,
    /// Slurm's number; absent until Slurm has accepted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slurm_job_id: Option<String>,
    /// Where it stands.
    pub status: AllocationStatus,
    /// What Slurm calls its state, e.g. `PENDING`, `RUNNING`, `NODE_FAIL`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slurm_state: Option<String>,
    /// Why it waits, as Slurm says, e.g. `Priority`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slurm_reason: Option<String>,
    /// How many nodes.
    pub nodes: i64,
    /// Its nodes, as Slurm lists them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_list: Option<String>,
    /// The partition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// The account that is charged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// What asked for it.
    pub origin: AllocationOrigin,
    /// How long it may last.
    pub walltime_seconds: i64,
    /// When it was decided upon.
    pub creation_time: String,
    /// When Slurm accepted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submit_time: Option<String>,
    /// When it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<String>,
    /// When it was over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_time: Option<String>,
    /// When it will start in Slurm's estimation, while it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_start_time: Option<String>,
    /// When its time is up, while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_end_time: Option<String>,
    /// It is being cancelled.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub canceling: bool,
    /// A sentence about what happened, e.g. why Slurm refused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// What was found to be over or lost, by asking Slurm about everything at once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct OrphanReport {
    /// Allocations that Slurm says are over.
    pub allocations: Vec<OrphanedAllocation>,
    /// Allocations that Slurm has taken back and will start again.
    pub requeued: Vec<String>,
    /// Allocations of which nothing certain is known: they stay as they are.
    pub in_doubt: Vec<String>,
    /// Runners that went with them.
    pub runners: Vec<i64>,
    /// Jobs that were running there.
    pub jobs: Vec<OrphanedJob>,
    /// Runners with running jobs that do not report and cannot be shown to have ended: their jobs stay as they are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreachable: Vec<UnreachableRunner>,
}

impl OrphanReport {
    /// Whether something is over or lost.
    pub fn has_losses(&self) -> bool {
        !self.allocations.is_empty() || !self.jobs.is_empty() || !self.runners.is_empty()
    }
}

/// A runner that does not report and may still run jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnreachableRunner {
    /// The runner's number.
    pub runner: i64,
    /// Its host.
    pub host: String,
    /// Its process.
    pub pid: i64,
    /// The reason why its jobs are not lost.
    pub reason: UnreachableReason,
    /// Its running jobs of the workflow; at most twenty are named.
    pub jobs: Vec<String>,
    /// The number of running jobs.
    pub running: i64,
}

/// The reason why the jobs of a runner that does not report are not lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UnreachableReason {
    /// The process that registered still runs.
    AgentRuns,
    /// The process that holds the jobs still runs.
    ShimRuns,
    /// Processes of its jobs run although its own have ended.
    JobsRun,
    /// Its processes have ended and left results, which the next runner in its folder reports.
    ResultsLeft,
    /// Its Slurm allocation has not ended.
    AllocationRuns,
    /// Its processes cannot be checked from here.
    NotVerified,
}

/// An allocation that Slurm says is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OrphanedAllocation {
    /// Its name.
    pub name: String,
    /// Slurm's number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slurm_job_id: Option<String>,
    /// What it was taken for until now.
    pub was: AllocationStatus,
    /// How it ended.
    pub slurm_state: crate::slurm::SlurmState,
}

/// A job whose attempt went with its allocation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OrphanedJob {
    /// The workflow's name.
    pub workflow: String,
    /// The job's name.
    pub job: String,
    /// Why its attempt is over.
    pub cause: crate::state::Cause,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn words_are_the_same_everywhere() {
        for status in AllocationStatus::ALL.iter().copied() {
            assert_eq!(serde_json::to_value(status).unwrap(), status.as_str());
            assert_eq!(status.as_str().parse(), Ok(status));
        }
        for origin in AllocationOrigin::ALL.iter().copied() {
            assert_eq!(serde_json::to_value(origin).unwrap(), origin.as_str());
            assert_eq!(origin.as_str().parse(), Ok(origin));
        }
        assert!("x".parse::<AllocationStatus>().is_err() && "x".parse::<AllocationOrigin>().is_err());
        assert_eq!(name(3, 12), "torc-wf3-a12");
    }
}
