//! A specification with every parameter, template, regular expression and reference resolved.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use torc_api::api::JobResources;
use torc_api::execution::Stdio;
use torc_api::wire::Resources;

/// An expanded document. Lists have a fixed order; references are indices.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Expanded {
    /// In document order, families in the order of their parameters.
    pub jobs: Vec<ExpandedJob>,
    /// Files.
    pub files: Vec<ExpandedFile>,
    /// Data.
    pub user_data: Vec<ExpandedUserData>,
    /// Requirements; the first is what jobs have that name none.
    pub requirements: Vec<Requirements>,
}

/// A job with nothing left to resolve but the data that it reads: others may write that until it starts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExpandedJob {
    /// Unique in the workflow.
    pub name: String,
    /// With parameters, variables and file tokens replaced.
    pub command: String,
    /// A prefix of the command, or a script before it.
    pub invocation_script: Option<String>,
    /// The job's variables over the workflow's.
    pub env: BTreeMap<String, String>,
    /// Index into `requirements`.
    pub requirements: u32,
    /// Indices of jobs, explicit and implied, sorted, each once.
    pub depends_on: Vec<u32>,
    /// Indices of files, sorted.
    pub input_files: Vec<u32>,
    /// Indices of files, sorted.
    pub output_files: Vec<u32>,
    /// Indices of data, sorted.
    pub input_user_data: Vec<u32>,
    /// Indices of data, sorted.
    pub output_user_data: Vec<u32>,
    /// The job is canceled when one of its dependencies fails.
    pub cancel_on_blocking_job_failure: bool,
    /// Name of a failure handler.
    pub failure_handler: Option<String>,
    /// Name of a Slurm scheduler.
    pub scheduler: Option<String>,
    /// The priority. Jobs with a higher one start first.
    pub priority: i64,
    /// Sorted.
    pub labels: Vec<String>,
    /// Streams that are kept, and how; those of the execution configuration when absent.
    pub stdio: Option<Stdio>,
    /// Tasks per node, when the command is itself the parallel program.
    pub tasks_per_node: Option<i32>,
}

/// A file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExpandedFile {
    /// Unique in the workflow.
    pub name: String,
    /// Relative to the working folder.
    pub path: String,
    /// For the provenance record.
    pub identifier: Option<String>,
}

/// A value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExpandedUserData {
    /// Unique in the workflow.
    pub name: String,
    /// Absent until a job writes it.
    pub data: Option<Value>,
    /// Forgotten when the workflow runs again.
    pub is_ephemeral: bool,
}

/// The resources of a job, per node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Requirements {
    /// The document's name for it.
    pub name: String,
    /// CPUs.
    pub num_cpus: i64,
    /// Bytes of memory.
    pub memory_bytes: i64,
    /// GPUs.
    pub num_gpus: i64,
    /// Nodes.
    pub num_nodes: i64,
    /// The expected duration in seconds.
    pub runtime_seconds: i64,
}

impl Requirements {
    /// Returns the resources on each node.
    pub fn resources(&self) -> Resources {
        Resources { cpus: self.num_cpus, memory_bytes: self.memory_bytes, gpus: self.num_gpus, nodes: self.num_nodes }
    }
}

impl From<&Requirements> for JobResources {
    fn from(needs: &Requirements) -> Self {
        Self {
            num_cpus: needs.num_cpus,
            memory_bytes: needs.memory_bytes,
            num_gpus: needs.num_gpus,
            num_nodes: needs.num_nodes,
            runtime_seconds: needs.runtime_seconds,
        }
    }
}

impl Default for Requirements {
    /// Returns the requirements of a job that names none: one CPU, 1 MiB, one minute.
    fn default() -> Self {
        Self {
            name: torc_api::resources::DEFAULT_REQUIREMENTS.to_owned(),
            num_cpus: 1,
            memory_bytes: 1 << 20,
            num_gpus: 0,
            num_nodes: 1,
            runtime_seconds: 60,
        }
    }
}
