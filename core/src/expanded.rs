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
    /// Jobs in document order, those of one entry in the order of its parameters.
    pub jobs: Vec<ExpandedJob>,
    /// Files in document order; jobs refer to them by index.
    pub files: Vec<ExpandedFile>,
    /// User data in document order; jobs refer to them by index.
    pub user_data: Vec<ExpandedUserData>,
    /// Resource requirements; the first are those of jobs that name none.
    pub requirements: Vec<Requirements>,
}

/// A job with everything resolved except its input data, which other jobs may write until it starts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExpandedJob {
    /// Unique in the workflow.
    pub name: String,
    /// With parameters, variables and file tokens replaced.
    pub command: String,
    /// A prefix of the command, or a script before it.
    pub invocation_script: Option<String>,
    /// Environment variables; the job's own override the workflow's.
    pub env: BTreeMap<String, String>,
    /// Index into the document's [`Expanded::requirements`].
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
    /// Labels that a runner must have, sorted.
    pub labels: Vec<String>,
    /// Streams that are kept, and how; those of the execution configuration when absent.
    pub stdio: Option<Stdio>,
    /// Tasks per node, when the command is itself the parallel program.
    pub tasks_per_node: Option<i32>,
}

/// A file that the document declares.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExpandedFile {
    /// Unique in the workflow.
    pub name: String,
    /// Relative to the working folder.
    pub path: String,
    /// Identifier in the provenance record, e.g. a DOI.
    pub identifier: Option<String>,
}

/// User data that the document declares.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExpandedUserData {
    /// Unique in the workflow.
    pub name: String,
    /// The value; absent until a job writes it.
    pub data: Option<Value>,
    /// A restart of the workflow deletes a written value.
    pub is_ephemeral: bool,
}

/// The resources of a job, per node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Requirements {
    /// The document's name for it.
    pub name: String,
    /// CPUs on each node.
    pub num_cpus: i64,
    /// Bytes of memory on each node.
    pub memory_bytes: i64,
    /// GPUs on each node.
    pub num_gpus: i64,
    /// Nodes of the job, each with these resources.
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
