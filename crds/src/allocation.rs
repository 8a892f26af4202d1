//! Slurm allocations in the HTTP API.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Returns the name of an allocation. Its marker in Slurm starts with this name.
pub fn name(workflow: i64, number: i64) -> String {
    format!("torc-wf{workflow}-a{number}")
}

/// The state of an allocation.
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
    /// It will be submitted, or waits in Slurm's queue.
    #[default]
    Pending,
    /// Slurm has given it nodes.
    Active,
    /// It has ended in Slurm.
    Complete,
    /// It was not needed any more, and has ended.
    Canceled,
}

impl AllocationStatus {
    /// All states, from the first to the last.
    pub const ALL: &[Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns its name in documents, tables and logs.
    pub const fn as_str(self) -> &'static str {
        self.into_str()
    }

    /// Returns whether it has ended.
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Complete | Self::Canceled)
    }
}

fn unknown_status(text: &str) -> String {
    format!("unknown status of an allocation '{text}'")
}

/// The origin of an allocation.
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
    /// Sized automatically for the jobs.
    #[default]
    Sizing,
    /// Requested by a `schedule_nodes` action of the document.
    Action,
    /// Requested by recovery, for jobs that run again.
    Recovery,
    /// Requested by the user.
    Manual,
}

impl AllocationOrigin {
    /// All origins, in the order of declaration.
    pub const ALL: &[Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns its name in documents, tables and logs.
    pub const fn as_str(self) -> &'static str {
        self.into_str()
    }
}

fn unknown_origin(text: &str) -> String {
    format!("unknown origin of an allocation '{text}'")
}

/// An allocation of Slurm: nodes and time that Slurm grants to one batch job of Torc.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Allocation {
    /// The name, e.g. `torc-wf3-a12`. Its name in Slurm starts with it.
    pub name: String,
    /// The number: 12 in `torc-wf3-a12`.
    pub id: i64,
    /// The workflow's name, unique in its namespace.
    pub workflow: String,
    /// The workflow's number, unique in the store.
    pub workflow_id: i64,
    /// The scheduler of the document that it belongs to; absent if it was sized automatically.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<String>,
    /// The name of the SlurmCluster; `local` for the Slurm of the server's machine.
    pub cluster: String,
    /// Slurm's job number; absent until Slurm has accepted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slurm_job_id: Option<String>,
    /// The allocation's state, as Torc recorded it last.
    pub status: AllocationStatus,
    /// Slurm's name of its state, e.g. `PENDING`, `RUNNING`, `NODE_FAIL`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slurm_state: Option<String>,
    /// Slurm's reason for which it waits, e.g. `Priority`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slurm_reason: Option<String>,
    /// The number of nodes.
    pub nodes: i64,
    /// Its nodes in Slurm's notation, e.g. `n[1-4]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_list: Option<String>,
    /// The partition that was requested; absent if Slurm chooses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// The account to charge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// The origin of the request.
    pub origin: AllocationOrigin,
    /// The walltime in seconds.
    pub walltime_seconds: i64,
    /// The time at which it was planned.
    pub creation_time: String,
    /// The time at which Slurm accepted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submit_time: Option<String>,
    /// The time at which Slurm gave it nodes; absent before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<String>,
    /// The time at which it ended; absent before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_time: Option<String>,
    /// The start that Slurm estimates, while it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_start_time: Option<String>,
    /// The end of its walltime, while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_end_time: Option<String>,
    /// It is being canceled.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub canceling: bool,
    /// A sentence about what happened, e.g. why Slurm refused it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Allocations, runners and jobs that Slurm no longer has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct OrphanReport {
    /// Allocations that Slurm says are over.
    pub allocations: Vec<OrphanedAllocation>,
    /// Allocations that Slurm has requeued and will start again.
    pub requeued: Vec<String>,
    /// Allocations with an unknown state, which do not change.
    pub in_doubt: Vec<String>,
    /// Runners that ended with them.
    pub runners: Vec<i64>,
    /// Jobs that were running in them.
    pub jobs: Vec<OrphanedJob>,
    /// Runners with running jobs that do not report and cannot be shown to have ended: their jobs stay as they are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreachable: Vec<UnreachableRunner>,
}

impl OrphanReport {
    /// Returns whether something has ended or is lost.
    pub fn has_losses(&self) -> bool {
        !self.allocations.is_empty() || !self.jobs.is_empty() || !self.runners.is_empty()
    }
}

/// A runner that does not report and may still run jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnreachableRunner {
    /// The runner's number, unique in the store.
    pub runner: i64,
    /// The name of the runner's host.
    pub host: String,
    /// The PID of its process.
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
    /// The allocation's name, e.g. `torc-wf3-a12`.
    pub name: String,
    /// Slurm's job number; absent if Slurm had not accepted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slurm_job_id: Option<String>,
    /// The state that the server had recorded.
    pub was: AllocationStatus,
    /// The final state in Slurm.
    pub slurm_state: crate::slurm::SlurmState,
}

/// A job whose attempt went with its allocation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OrphanedJob {
    /// The workflow's name, unique in its namespace.
    pub workflow: String,
    /// The job's name, unique in its workflow.
    pub job: String,
    /// The cause of the lost attempt.
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
