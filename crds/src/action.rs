//! Actions: commands and allocations that the progress of a workflow triggers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An action: commands or allocations, and the event that triggers them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Action {
    /// The event that triggers the action.
    pub trigger_type: TriggerType,
    /// The type of the action: run commands, or submit allocations.
    pub action_type: ActionType,
    /// For the two job triggers: names of jobs that must all be ready or complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobs: Option<Vec<String>>,
    /// Regular expressions that match the names of further jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_name_regexes: Option<Vec<String>>,
    /// For `run_commands`: the commands, which run on a runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1_000), inner(length(min = 1, max = 131_072)))]
    pub commands: Option<Vec<String>>,
    /// For `schedule_nodes`: the name of an entry of `slurmSchedulers`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1_024))]
    pub scheduler: Option<String>,
    /// For `schedule_nodes`: the word `slurm`. Torc ignores actions with `local`, which Torc 1.0 knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub scheduler_type: Option<String>,
    /// For `schedule_nodes`: the number of allocations (1 when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub num_allocations: Option<i64>,
    /// For `schedule_nodes`: start a runner on every node instead of one for the allocation (false when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_one_worker_per_node: Option<bool>,
    /// For `schedule_nodes`: jobs that each runner starts at once, regardless of their requirements (limited by resources when
    /// absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_parallel_jobs: Option<i32>,
    /// For the two worker triggers: run on every worker (true when absent), or on one alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent: Option<bool>,
}

/// The event that triggers an action.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema, strum::Display, strum::IntoStaticStr,
)]
#[strum(serialize_all = "snake_case", const_into_str)]
#[serde(rename_all = "snake_case")]
pub enum TriggerType {
    /// A run of the workflow begins, before its first job.
    OnWorkflowStart,
    /// The workflow has completed.
    OnWorkflowComplete,
    /// All jobs that the action selects are ready.
    OnJobsReady,
    /// All jobs that the action selects have ended.
    OnJobsComplete,
    /// A runner begins to serve the workflow.
    OnWorkerStart,
    /// A runner is about to leave.
    OnWorkerComplete,
}

impl TriggerType {
    /// Returns its name in documents, tables and logs.
    pub const fn as_str(self) -> &'static str {
        self.into_str()
    }

    /// Returns whether the trigger concerns the jobs that the action selects.
    pub const fn is_of_jobs(self) -> bool {
        matches!(self, Self::OnJobsReady | Self::OnJobsComplete)
    }

    /// Returns whether the trigger concerns one worker.
    pub const fn is_of_workers(self) -> bool {
        matches!(self, Self::OnWorkerStart | Self::OnWorkerComplete)
    }
}

impl Action {
    /// Returns whether the action requests Slurm allocations.
    pub fn requests_slurm_nodes(&self) -> bool {
        let type_ = self.scheduler_type.as_deref();
        self.action_type == ActionType::ScheduleNodes && type_.is_none_or(|type_| type_ == "slurm")
    }

    /// Returns whether the action runs once for every worker and not once for the workflow.
    pub fn is_for_every_worker(&self) -> bool {
        self.trigger_type.is_of_workers() && self.persistent != Some(false)
    }
}

/// The type of an action.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema, strum::Display, strum::IntoStaticStr,
)]
#[strum(serialize_all = "snake_case", const_into_str)]
#[serde(rename_all = "snake_case")]
pub enum ActionType {
    /// Run commands on a runner.
    RunCommands,
    /// Submit allocations of a Slurm scheduler.
    ScheduleNodes,
}

impl ActionType {
    /// Returns its name in documents, tables and logs.
    pub const fn as_str(self) -> &'static str {
        self.into_str()
    }
}

/// The state of an action.
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
#[strum(serialize_all = "snake_case", const_into_str, parse_err_ty = String, parse_err_fn = unknown_state)]
#[serde(rename_all = "snake_case")]
pub enum ActionState {
    /// The trigger has not occurred yet.
    #[default]
    Waiting,
    /// It was triggered and has not started.
    Pending,
    /// A runner executes its commands.
    Running,
    /// Its commands or submissions have succeeded.
    Executed,
    /// It has failed as often as allowed, and is not retried.
    Failed,
    /// It will not run: the workflow was canceled, or its worker has left.
    Skipped,
}

impl ActionState {
    /// All states, in the order in which an action can reach them.
    pub const ALL: &[Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns its name in documents, tables and logs.
    pub const fn as_str(self) -> &'static str {
        self.into_str()
    }

    /// Returns whether it was triggered and has not ended.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Pending | Self::Running)
    }
}

fn unknown_state(text: &str) -> String {
    format!("unknown state of an action '{text}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action(trigger_type: TriggerType, action_type: ActionType) -> Action {
        Action {
            trigger_type,
            action_type,
            jobs: None,
            job_name_regexes: None,
            commands: None,
            scheduler: None,
            scheduler_type: None,
            num_allocations: None,
            start_one_worker_per_node: None,
            max_parallel_jobs: None,
            persistent: None,
        }
    }

    // J19
    #[test]
    fn only_slurm_is_asked_for_nodes() {
        let of = |action_type, scheduler_type: Option<&str>| Action {
            scheduler_type: scheduler_type.map(str::to_owned),
            ..action(TriggerType::OnJobsReady, action_type)
        };
        let cases = [
            (ActionType::ScheduleNodes, None, true),
            (ActionType::ScheduleNodes, Some("slurm"), true),
            (ActionType::ScheduleNodes, Some("local"), false),
            (ActionType::RunCommands, None, false),
            (ActionType::RunCommands, Some("slurm"), false),
        ];
        for (action_type, scheduler_type, asks) in cases {
            assert_eq!(
                of(action_type, scheduler_type).requests_slurm_nodes(),
                asks,
                "{action_type} {scheduler_type:?}"
            );
        }
    }

    // J11, J12
    #[test]
    fn worker_actions_are_for_every_worker_unless_said_otherwise() {
        let cases = [
            (TriggerType::OnWorkerStart, None, true),
            (TriggerType::OnWorkerStart, Some(true), true),
            (TriggerType::OnWorkerStart, Some(false), false),
            (TriggerType::OnWorkerComplete, None, true),
            (TriggerType::OnWorkflowStart, None, false),
            (TriggerType::OnWorkflowComplete, Some(true), false),
            (TriggerType::OnJobsReady, Some(true), false),
        ];
        for (trigger, persistent, every) in cases {
            let action = Action { persistent, ..action(trigger, ActionType::RunCommands) };
            assert_eq!(action.is_for_every_worker(), every, "{trigger} {persistent:?}");
        }
    }
}
