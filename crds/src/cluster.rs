//! `kind: SlurmCluster`: a Slurm and how to reach it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The name of the Slurm whose commands this machine has. It needs no document.
pub const LOCAL: &str = "local";

/// A Slurm cluster and how to reach it.
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
    /// Words before every Slurm command, e.g. `[ssh, login1]` (the commands of this machine when absent).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), inner(length(max = 1_024)))]
    pub command_prefix: Vec<String>,
    /// The account to charge unless a scheduler names another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_account: Option<String>,
    /// The name of a Secret with `id_ed25519` and `known_hosts`, for a prefix that uses ssh.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub secret_name: Option<String>,
    /// The partitions (detected with `sinfo` and `scontrol` when absent).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1_000), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub partitions: Vec<Partition>,
}

/// A partition and its limits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Partition {
    /// The name of the partition in Slurm.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// CPUs of each node.
    #[schemars(range(min = 1))]
    pub cpus_per_node: i64,
    /// Memory of each node in MiB.
    #[schemars(range(min = 1))]
    pub memory_mb: i64,
    /// The longest time limit, e.g. `2-00:00:00`.
    #[schemars(length(max = 64))]
    pub max_walltime: String,
    /// GPUs of each node (0 when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub gpus_per_node: Option<i64>,
    /// Slurm's name of the GPU type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_type: Option<String>,
    /// Nodes that one allocation may have (no limit when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub nodes: Option<i64>,
    /// Jobs of several users share a node (false when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<bool>,
    /// Use the partition only if a document names it (false when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requires_explicit_request: Option<bool>,
}

/// The status of a Slurm cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SlurmClusterStatus {
    /// The time of Slurm's last answer, updated at most once a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_contact_time: Option<String>,
    /// The number of partitions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition_count: Option<i64>,
    /// Partitions as `sinfo` and `scontrol` reported them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1_000))]
    pub partitions: Vec<Partition>,
    /// The condition Ready: Slurm answers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<crate::condition::Condition>,
}
