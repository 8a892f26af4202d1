//! Slurm's accounting of a step.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Slurm's accounting of an attempt's step. Unknown values are absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SlurmStats {
    /// The workflow's number, unique in the store.
    #[serde(alias = "workflowId", alias = "workflow_id")]
    pub workflow: i64,
    /// The job's number, unique in the store.
    #[serde(alias = "jobId", alias = "job_id")]
    pub job: i64,
    /// The number of the run, counted from 1.
    #[serde(alias = "runId", alias = "run_id")]
    pub run: i32,
    /// The number of the attempt, counted from 1 in each run.
    #[serde(alias = "attemptId", alias = "attempt_id")]
    pub attempt: i32,
    /// The allocation: Slurm's job number.
    #[serde(default, alias = "slurm_job_id", skip_serializing_if = "Option::is_none")]
    pub slurm_job_id: Option<String>,
    /// The step's name, e.g. `wf42_j7_r1_a1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The most memory of a task.
    #[serde(default, alias = "max_rss_bytes", skip_serializing_if = "Option::is_none")]
    pub max_rss_bytes: Option<i64>,
    /// The most virtual memory of a task.
    #[serde(default, alias = "max_vm_size_bytes", skip_serializing_if = "Option::is_none")]
    pub max_vm_size_bytes: Option<i64>,
    /// The most bytes that a task has read.
    #[serde(default, alias = "max_disk_read_bytes", skip_serializing_if = "Option::is_none")]
    pub max_disk_read_bytes: Option<i64>,
    /// The most bytes that a task has written.
    #[serde(default, alias = "max_disk_write_bytes", skip_serializing_if = "Option::is_none")]
    pub max_disk_write_bytes: Option<i64>,
    /// CPU time of a task on average.
    #[serde(default, alias = "ave_cpu_seconds", skip_serializing_if = "Option::is_none")]
    pub ave_cpu_seconds: Option<f64>,
    /// Its nodes in Slurm's notation.
    #[serde(default, alias = "node_list", skip_serializing_if = "Option::is_none")]
    pub node_list: Option<String>,
    /// Slurm's final state, e.g. `OUT_OF_MEMORY`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
}

/// `POST /v1/slurm_stats`: one of them, or several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum SlurmStatsRequest {
    /// The accounting of one step.
    One(Box<SlurmStats>),
    /// The accounting of several steps.
    Many {
        /// All of one store.
        items: Vec<SlurmStats>,
    },
}

impl SlurmStatsRequest {
    /// Returns the records of either form as a list.
    pub fn into_items(self) -> Vec<SlurmStats> {
        match self {
            Self::One(one) => vec![*one],
            Self::Many { items } => items,
        }
    }
}
