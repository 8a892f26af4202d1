//! Resources of jobs and allocations.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The name of the requirements of jobs that name none.
pub const DEFAULT_REQUIREMENTS: &str = "default";

/// A named set of resources. All values are per node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceRequirements {
    /// The name that jobs refer to. `default` is reserved.
    #[schemars(length(min = 1, max = 1_024))]
    pub name: String,
    /// CPUs on each node.
    #[schemars(range(min = 1))]
    pub num_cpus: i64,
    /// Memory on each node, e.g. `200g`, `200Gi` or `512MB`. Units are powers of 1024.
    #[schemars(length(max = 64))]
    pub memory: String,
    /// GPUs on each node (0 when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub num_gpus: Option<i64>,
    /// Nodes (1 when absent). A job on several nodes uses them whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub num_nodes: Option<i64>,
    /// The expected duration, for planning, e.g. `PT4H`, `4h30m` or `1-02:00:00` (one hour when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub runtime: Option<String>,
}

/// A template for Slurm allocations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SlurmScheduler {
    /// The name that jobs and actions refer to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1_024))]
    pub name: Option<String>,
    /// The account to charge.
    pub account: String,
    /// The partition (chosen by Slurm when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// The quality of service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos: Option<String>,
    /// Generic resources of each node, e.g. `gpu:4`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gres: Option<String>,
    /// Memory of each node, e.g. `240g`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub mem: Option<String>,
    /// Temporary disk space of each node, e.g. `1t`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub tmp: Option<String>,
    /// Nodes of one allocation (1 when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub nodes: Option<i64>,
    /// Tasks on each node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub ntasks_per_node: Option<i64>,
    /// The time limit, e.g. `4:00:00` or `1-12:00:00` (one hour when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub walltime: Option<String>,
    /// Further options of sbatch. They come last, so they override others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra: Option<String>,
    /// Run the allocations of this scheduler one after another (false when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serialize_allocations: Option<bool>,
}
