//! Actions: what the workflow's progress sets off.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Commands or allocations, and what sets them off.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Action {
    /// What sets the action off.
    pub trigger_type: TriggerType,
    /// What it does.
    pub action_type: ActionType,
    /// Jobs that must all be ready or complete, for the two job triggers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobs: Option<Vec<String>>,
    /// The same, by regular expression over job names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_name_regexes: Option<Vec<String>>,
    /// For `run_commands`: what runs on the runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commands: Option<Vec<String>>,
    /// For `schedule_nodes`: the scheduler's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<String>,
    /// For `schedule_nodes`: `slurm`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler_type: Option<String>,
    /// For `schedule_nodes`: how many allocations (1 when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub num_allocations: Option<i64>,
    /// For `schedule_nodes`: a runner on every node instead of one for the allocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_one_worker_per_node: Option<bool>,
    /// For `schedule_nodes`: run the queue strategy with this depth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_parallel_jobs: Option<i32>,
    /// Fire for every worker instead of once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent: Option<bool>,
}

/// What sets an action off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TriggerType {
    /// The workflow starts.
    OnWorkflowStart,
    /// The workflow has completed.
    OnWorkflowComplete,
    /// All chosen jobs are ready.
    OnJobsReady,
    /// All chosen jobs have ended.
    OnJobsComplete,
    /// A runner starts.
    OnWorkerStart,
    /// A runner leaves.
    OnWorkerComplete,
}

/// What an action does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ActionType {
    /// Run commands on a runner.
    RunCommands,
    /// Submit allocations.
    ScheduleNodes,
}
