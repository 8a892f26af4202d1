//! `kind: SlurmCluster`: a Slurm and how to reach it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The cluster that nobody has to describe: the Slurm whose commands this machine has.
pub const LOCAL: &str = "local";

/// A Slurm cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "kube", derive(kube::CustomResource))]
#[cfg_attr(
    feature = "kube",
    kube(
        group = "torc.dev",
        version = "v1alpha1",
        kind = "SlurmCluster",
        status = "SlurmClusterStatus",
        shortname = "slc",
        category = "torc",
        printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
        printcolumn = r#"{"name":"Partitions","type":"integer","jsonPath":".status.partitionCount"}"#,
        printcolumn = r#"{"name":"Last-Contact","type":"date","jsonPath":".status.lastContactTime"}"#,
        printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
    )
)]
#[serde(rename_all = "camelCase")]
pub struct SlurmClusterSpec {
    /// Words put before every Slurm command, e.g. `[ssh, login1]`; empty means the commands of this machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), inner(length(max = 1_024)))]
    pub command_prefix: Vec<String>,
    /// The account that is charged unless a scheduler names another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_account: Option<String>,
    /// A Secret with `id_ed25519` and `known_hosts` for a prefix that uses ssh.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub secret_name: Option<String>,
    /// Partitions; detected from `sinfo` and `scontrol` when absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1_000), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub partitions: Vec<Partition>,
}

/// A partition and its limits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Partition {
    /// The partition's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// CPUs of a node.
    #[schemars(range(min = 1))]
    pub cpus_per_node: i64,
    /// Memory of a node in MiB.
    #[schemars(range(min = 1))]
    pub memory_mb: i64,
    /// The longest time limit.
    #[schemars(length(max = 64))]
    pub max_walltime: String,
    /// GPUs of a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub gpus_per_node: Option<i64>,
    /// The GPUs' type as Slurm names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_type: Option<String>,
    /// How many nodes a job can have (no limit when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub nodes: Option<i64>,
    /// Several users' jobs share a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<bool>,
    /// Only used when a document names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requires_explicit_request: Option<bool>,
}

/// What is known of a Slurm cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SlurmClusterStatus {
    /// When Slurm last answered; written at most once a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_contact_time: Option<String>,
    /// How many partitions there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition_count: Option<i64>,
    /// Partitions as detected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1_000))]
    pub partitions: Vec<Partition>,
    /// Whether Slurm can be reached: Ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<crate::condition::Condition>,
}
