//! The specification of `kind: Workflow`.

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

/// A workflow: its jobs, their dependencies and the resources that they need.
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
    /// The name as written in the file, if `metadata.name` had to be simplified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1_024))]
    pub display_name: Option<String>,
    /// The user who owns the workflow. With a token or certificate, the authenticated user is used instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub user: Option<String>,
    /// A description of the workflow, for readers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65_536))]
    pub description: Option<String>,
    /// A label that groups workflows of one project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub project: Option<String>,
    /// Values to keep with the workflow. Torc never reads them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::parameters::free_form_map")]
    pub metadata: Option<BTreeMap<String, Value>>,
    /// Shared parameters. Jobs, files and user data select them with `useParameters`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "crate::parameters::free_form_map")]
    pub parameters: BTreeMap<String, Value>,
    /// A parameter table (.csv, .json, .jsonl, .ndjson) for every entry with `useParametersFile: true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters_file: Option<String>,
    /// The rows of `parametersFile`. The command line embeds them before it sends the document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameter_table: Option<ParameterTable>,
    /// Constants. `{name}` is replaced in every text of the document.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "crate::parameters::free_form_map")]
    pub variables: BTreeMap<String, Value>,
    /// Environment variables of every job.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "crate::parameters::environment")]
    pub env: BTreeMap<String, String>,
    /// The jobs, each one a command or a family of commands.
    #[serde(default)]
    #[schemars(length(max = 200_000))]
    pub jobs: Vec<JobSpec>,
    /// Files that jobs read and write. A reader depends on the writers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 200_000))]
    pub files: Vec<FileSpec>,
    /// JSON values that jobs read and write. A reader depends on the writers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 200_000))]
    pub user_data: Vec<UserDataSpec>,
    /// Named sets of resources that jobs refer to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4_000))]
    pub resource_requirements: Vec<ResourceRequirements>,
    /// Rules for failed jobs, by exit code or cause.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1_000))]
    pub failure_handlers: Vec<FailureHandler>,
    /// Slurm allocations to use (sized automatically when absent).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1_000))]
    pub slurm_schedulers: Vec<SlurmScheduler>,
    /// Commands and allocations that the progress of the workflow triggers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1_000))]
    pub actions: Vec<Action>,
    /// Long options of sbatch for every allocation.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "crate::parameters::free_form_map")]
    pub slurm_defaults: BTreeMap<String, Value>,
    /// Settings for the measurement of CPU and memory use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_monitor: Option<ResourceMonitor>,
    /// Settings for the start, the limits and the end of jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_config: Option<ExecutionConfig>,
    /// Limits for jobs that add jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dynamic_jobs: Option<DynamicJobs>,
    /// Failures that no rule matches need a manual decision instead of being final (false when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub use_pending_failed: Option<bool>,
    /// Record the provenance of files as an RO-Crate (false when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable_ro_crate: Option<bool>,
    /// Seconds without work after which a runner leaves (90 when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub compute_node_wait_for_new_jobs_seconds: Option<i64>,
    /// Keep runners alive after the workflow has completed (false when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_node_ignore_workflow_completion: Option<bool>,
    /// Minutes a runner keeps trying to reach the server before it drains offline (20 when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub compute_node_wait_for_healthy_database_minutes: Option<i64>,
    /// The least remaining seconds with which a runner takes new jobs in queue mode (300 when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub compute_node_min_time_for_new_jobs_seconds: Option<i64>,
    /// Ignored. Documents of Torc 1.0 may have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_node_expiration_buffer_seconds: Option<i64>,

    /// Start no new jobs and submit no allocations; running jobs continue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = false))]
    pub suspend: Option<bool>,
    /// Stop the workflow: Cancel ends jobs and allocations, Drain lets running jobs end (None when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_policy: Option<StopPolicy>,
    /// The number of the run. A higher number runs the workflow again, as `rerunPolicy` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1), extend("default" = 1))]
    pub run_id: Option<i32>,
    /// The jobs that a higher `runId` runs again (Incomplete when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Incomplete"))]
    pub rerun_policy: Option<RerunPolicy>,
    /// Rules for jobs that were lost or ran out of memory or time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<Recovery>,
    /// Limits for jobs that a runner leases before it can run them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefetch: Option<Prefetch>,
    /// The time after which a started job of a silent runner counts as lost, or `never` (`1h` when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub orphan_after: Option<String>,
    /// The name of the SlurmCluster that runs this workflow (runners outside of Slurm when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub slurm_cluster: Option<String>,
    /// The largest number of allocations at once (4 when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0), extend("default" = 4))]
    pub max_allocations: Option<i32>,
    /// Parameter tables in ConfigMaps (Kubernetes only).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub sources: Vec<Source>,
    /// Seconds after the start of the first job at which the workflow is canceled (no limit when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub active_deadline_seconds: Option<i64>,
    /// Seconds after the end at which the object is deleted (never when absent). The store keeps the workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub ttl_seconds_after_finished: Option<i32>,
    /// The name of another controller that manages this object. Torc then ignores it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub managed_by: Option<String>,
}

/// The value of `managedBy` that names Torc itself. It has the same effect as an absent value.
pub const MANAGER: &str = "torc.dev/torc";

impl WorkflowSpec {
    /// Returns whether another controller manages the workflow.
    pub fn is_managed_by_other(&self) -> bool {
        self.managed_by.as_deref().is_some_and(|manager| manager != MANAGER)
    }

    /// Returns whether an action requests Slurm allocations.
    pub fn requests_slurm_nodes(&self) -> bool {
        self.actions.iter().any(Action::requests_slurm_nodes)
    }

    /// Returns whether jobs may run in Slurm allocations: the document names a cluster, or an action requests nodes.
    pub fn needs_slurm(&self) -> bool {
        self.slurm_cluster.is_some() || self.requests_slurm_nodes()
    }
}

/// The way to stop a workflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StopPolicy {
    /// The workflow is not stopped.
    None,
    /// Cancel jobs and allocations.
    Cancel,
    /// Let running jobs end, and start no others.
    Drain,
}

/// The jobs that a higher `runId` resets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RerunPolicy {
    /// Failed jobs and the jobs that depend on them.
    Failed,
    /// All jobs that have not completed.
    #[default]
    Incomplete,
    /// All jobs, also those that have completed.
    All,
}

/// Limits for jobs that add jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DynamicJobs {
    /// The largest number of generations of one loop (1000 when absent).
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
