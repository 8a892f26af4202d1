//! `kind: Workflow`, the one document a scientist writes.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::action::Action;
use crate::execution::{ExecutionConfig, ResourceMonitor};
use crate::failure::{FailureHandler, Prefetch, Recovery};
use crate::job::{FileSpec, JobSpec, UserDataSpec};
use crate::parameters::ParameterTable;
use crate::resources::{ResourceRequirements, SlurmScheduler};

/// What should have run: jobs, what they depend on and what each of them needs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "kube", derive(kube::CustomResource))]
#[cfg_attr(
    feature = "kube",
    kube(
        group = "torc.dev",
        version = "v1alpha1",
        kind = "Workflow",
        namespaced,
        status = "crate::status::WorkflowStatus",
        shortname = "twf",
        shortname = "wf",
        category = "torc",
        scale(spec_replicas_path = ".spec.maxAllocations", status_replicas_path = ".status.allocations.active"),
        selectable = ".spec.project",
        selectable = ".spec.slurmCluster",
        printcolumn = r#"{"name":"Status","type":"string","jsonPath":".status.conditions[?(@.type==\"Succeeded\")].reason"}"#,
        printcolumn = r#"{"name":"Progress","type":"string","jsonPath":".status.progress"}"#,
        printcolumn = r#"{"name":"Running","type":"integer","jsonPath":".status.jobs.running"}"#,
        printcolumn = r#"{"name":"Failed","type":"integer","jsonPath":".status.jobs.failed"}"#,
        printcolumn = r#"{"name":"Allocs","type":"integer","jsonPath":".status.allocations.active"}"#,
        printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
        printcolumn = r#"{"name":"Project","type":"string","jsonPath":".spec.project","priority":1}"#,
        printcolumn = r#"{"name":"Cluster","type":"string","jsonPath":".spec.slurmCluster","priority":1}"#,
        printcolumn = r#"{"name":"Run","type":"integer","jsonPath":".status.runId","priority":1}"#,
        printcolumn = r#"{"name":"Ready","type":"integer","jsonPath":".status.jobs.ready","priority":1}"#,
        printcolumn = r#"{"name":"Blocked","type":"integer","jsonPath":".status.jobs.blocked","priority":1}"#,
        printcolumn = r#"{"name":"Message","type":"string","jsonPath":".status.conditions[?(@.type==\"Succeeded\")].message","priority":1}"#
    )
)]
#[serde(rename_all = "camelCase")]
pub struct WorkflowSpec {
    /// The name as its author wrote it, where `metadata.name` had to be simplified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1_024))]
    pub display_name: Option<String>,
    /// The person the workflow belongs to; the authenticated user wins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub user: Option<String>,
    /// What this workflow is for, in the author's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65_536))]
    pub description: Option<String>,
    /// A label that groups workflows of one project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub project: Option<String>,
    /// Anything the author wants to keep with the workflow; Torc never reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::parameters::free_form_map")]
    pub metadata: Option<BTreeMap<String, Value>>,
    /// A pool of parameters that jobs, files and user data pick from with `useParameters`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "crate::parameters::free_form_map")]
    pub parameters: BTreeMap<String, Value>,
    /// A table (.csv, .json, .jsonl, .ndjson) shared by everything that says `useParametersFile: true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters_file: Option<String>,
    /// The rows of `parametersFile`, embedded before the document leaves the author's machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameter_table: Option<ParameterTable>,
    /// Constants: `{name}` is replaced everywhere.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "crate::parameters::free_form_map")]
    pub variables: BTreeMap<String, Value>,
    /// Environment variables of every job.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "crate::parameters::environment")]
    pub env: BTreeMap<String, String>,
    /// The commands to run.
    #[serde(default)]
    #[schemars(length(max = 200_000))]
    pub jobs: Vec<JobSpec>,
    /// Files that jobs read and write; they imply dependencies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 200_000))]
    pub files: Vec<FileSpec>,
    /// JSON values that jobs read and write; they imply dependencies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 200_000))]
    pub user_data: Vec<UserDataSpec>,
    /// Named sets of resources that jobs refer to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4_000))]
    pub resource_requirements: Vec<ResourceRequirements>,
    /// What to do when a job fails, by exit code or cause.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1_000))]
    pub failure_handlers: Vec<FailureHandler>,
    /// Hand-written Slurm allocations; leave out to have them sized automatically.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1_000))]
    pub slurm_schedulers: Vec<SlurmScheduler>,
    /// Commands or allocations triggered by the workflow's progress.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1_000))]
    pub actions: Vec<Action>,
    /// sbatch long options for every allocation.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "crate::parameters::free_form_map")]
    pub slurm_defaults: BTreeMap<String, Value>,
    /// Whether and how CPU and memory use is measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_monitor: Option<ResourceMonitor>,
    /// How jobs are started, limited and ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_config: Option<ExecutionConfig>,
    /// Limits of jobs that add jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dynamic_jobs: Option<DynamicJobs>,
    /// Failures that no handler matches wait for a person's decision instead of settling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub use_pending_failed: Option<bool>,
    /// Keep an RO-Crate provenance record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable_ro_crate: Option<bool>,
    /// Seconds without work after which a runner leaves (90 when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub compute_node_wait_for_new_jobs_seconds: Option<i64>,
    /// Keep runners alive after the workflow has completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_node_ignore_workflow_completion: Option<bool>,
    /// Minutes a runner keeps trying to reach the server before it drains offline (20 when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub compute_node_wait_for_healthy_database_minutes: Option<i64>,
    /// A runner with less time left than this takes no new jobs in queue mode (300 when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub compute_node_min_time_for_new_jobs_seconds: Option<i64>,
    /// Accepted for old files and ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_node_expiration_buffer_seconds: Option<i64>,

    /// No new leases and no new allocations; running jobs go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = false))]
    pub suspend: Option<bool>,
    /// How to stop: Cancel ends jobs and allocations, Drain lets running jobs end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_policy: Option<StopPolicy>,
    /// Raise it to run the workflow again; `rerunPolicy` says what is reset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1), extend("default" = 1))]
    pub run_id: Option<i32>,
    /// What a higher `runId` runs again (Incomplete when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Incomplete"))]
    pub rerun_policy: Option<RerunPolicy>,
    /// What happens to jobs that were lost or ran out of memory or time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<Recovery>,
    /// How far runners lease ahead of what they can run at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefetch: Option<Prefetch>,
    /// How long a started job of a silent runner is waited for before it is given up (`1h` when absent; `never` is allowed).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub orphan_after: Option<String>,
    /// The SlurmCluster that runs this workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub slurm_cluster: Option<String>,
    /// The most allocations that may exist at once (4 when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0), extend("default" = 4))]
    pub max_allocations: Option<i32>,
    /// Parameter tables that live in ConfigMaps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub sources: Vec<Source>,
    /// The workflow is stopped when it has been running for so long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub active_deadline_seconds: Option<i64>,
    /// The object is deleted this long after it has finished; the store keeps its archive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub ttl_seconds_after_finished: Option<i32>,
    /// Names another controller that looks after this object; Torc then leaves it alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub managed_by: Option<String>,
}

/// `managedBy` of a workflow that Torc itself looks after; the same as none.
pub const MANAGER: &str = "torc.dev/torc";

impl WorkflowSpec {
    /// Another controller looks after it.
    pub fn is_managed_by_other(&self) -> bool {
        self.managed_by.as_deref().is_some_and(|manager| manager != MANAGER)
    }

    /// Returns whether an action asks for Slurm allocations.
    pub fn asks_slurm_for_nodes(&self) -> bool {
        self.actions.iter().any(Action::asks_slurm_for_nodes)
    }

    /// Returns whether jobs may run in Slurm allocations: a cluster is named, or an action asks for nodes.
    pub fn needs_slurm(&self) -> bool {
        self.slurm_cluster.is_some() || self.asks_slurm_for_nodes()
    }
}

/// How a running workflow is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StopPolicy {
    /// Do not stop.
    None,
    /// Cancel jobs and allocations.
    Cancel,
    /// Let running jobs end, start none.
    Drain,
}

/// What a higher `runId` resets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RerunPolicy {
    /// Failed jobs and what depends on them.
    Failed,
    /// Everything that has not completed.
    #[default]
    Incomplete,
    /// Everything.
    All,
}

/// Limits of jobs that add jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DynamicJobs {
    /// The most generations of one lineage (1000 when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_iterations: Option<i64>,
}

/// A parameter table in a ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Source {
    /// The name that `parametersFile` refers to.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The ConfigMap, in the workflow's namespace.
    #[schemars(length(min = 1, max = 253))]
    pub config_map_name: String,
    /// The key inside the ConfigMap.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_another_manager_takes_a_workflow_away() {
        for (manager, other) in [(None, false), (Some("torc.dev/torc"), false), (Some("torc.dev/torc2"), true)] {
            let spec = WorkflowSpec { managed_by: manager.map(str::to_owned), ..WorkflowSpec::default() };
            assert_eq!(spec.is_managed_by_other(), other, "{manager:?}");
        }
    }
}
