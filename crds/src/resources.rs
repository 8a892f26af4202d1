//! What a job needs and where it may run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The name of the requirements that a job has when it names none.
pub const DEFAULT_REQUIREMENTS: &str = "default";

/// A named set of resources. All values are per node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceRequirements {
    /// What jobs refer to; `default` is reserved.
    #[schemars(length(min = 1, max = 1_024))]
    pub name: String,
    /// CPUs on each node.
    #[schemars(range(min = 1))]
    pub num_cpus: i64,
    /// Memory on each node: `200g`, `200Gi`, `512MB`; always powers of 1024.
    #[schemars(length(max = 64))]
    pub memory: String,
    /// GPUs on each node (0 when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub num_gpus: Option<i64>,
    /// Nodes (1 when absent); more than one means whole nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub num_nodes: Option<i64>,
    /// How long the job may take: `PT4H`, `4h30m`, `1-02:00:00` (one hour when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub runtime: Option<String>,
}

/// A kind of Slurm allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SlurmScheduler {
    /// What jobs and actions refer to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1_024))]
    pub name: Option<String>,
    /// The account that is charged.
    pub account: String,
    /// Partition to submit to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// Quality of service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos: Option<String>,
    /// Generic resources, e.g. `gpu:4`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gres: Option<String>,
    /// Memory per node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub mem: Option<String>,
    /// Temporary disk space per node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub tmp: Option<String>,
    /// Nodes of one allocation (1 when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub nodes: Option<i64>,
    /// Tasks per node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub ntasks_per_node: Option<i64>,
    /// Time limit (one hour when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub walltime: Option<String>,
    /// Further sbatch options as they are; they come last and so win.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra: Option<String>,
    /// Run the allocations of this scheduler one after another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serialize_allocations: Option<bool>,
}
