//! Jobs, and the files and data they exchange.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::execution::Stdio;
use crate::parameters::Parameterization;

/// A command, or with parameters a whole family of commands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobSpec {
    /// Unique after expansion.
    #[schemars(length(min = 1, max = 1_024))]
    pub name: String,
    /// What to run, through `bash -c` unless it consists of plain words.
    #[schemars(length(min = 1, max = 131_072))]
    pub command: String,
    /// One line: a prefix of the command. Several lines: a script that runs before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 131_072))]
    pub invocation_script: Option<String>,
    /// Environment variables, merged over the workflow's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "crate::parameters::environment")]
    pub env: BTreeMap<String, String>,
    /// The name of an entry of `resourceRequirements`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_requirements: Option<String>,
    /// Jobs that must have ended first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,
    /// The same, by regular expression over job names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on_regexes: Vec<String>,
    /// Files this job reads: it waits for the jobs that write them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_files: Option<Vec<String>>,
    /// Files this job writes; it fails when one is missing afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_files: Option<Vec<String>>,
    /// Data this job reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_user_data: Option<Vec<String>>,
    /// Data this job writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_user_data: Option<Vec<String>>,
    /// Input files by regular expression over file names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_file_regexes: Option<Vec<String>>,
    /// Output files by regular expression over file names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_file_regexes: Option<Vec<String>>,
    /// Input data by regular expression over data names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_user_data_regexes: Option<Vec<String>>,
    /// Output data by regular expression over data names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_user_data_regexes: Option<Vec<String>>,
    /// Cancel this job when one that it depends on fails (true when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel_on_blocking_job_failure: Option<bool>,
    /// The name of an entry of `failureHandlers`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_handler: Option<String>,
    /// The name of an entry of `slurmSchedulers`: only its allocations run this job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<String>,
    /// Higher starts first (0 when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000_000))]
    pub priority: Option<i64>,
    /// Only runners that have all of these labels run this job.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub labels: Vec<String>,
    /// Where output goes, for this job alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdio: Option<Stdio>,
    /// Tasks the command starts on each of its nodes: the command itself is then the parallel program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub tasks_per_node: Option<i32>,
    /// Accepted for old files and ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supports_termination: Option<bool>,
    /// Make a family of jobs from this one.
    #[serde(flatten)]
    pub parameterization: Parameterization,
}

/// A file that jobs read or write.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FileSpec {
    /// Unique after expansion.
    #[schemars(length(min = 1, max = 1_024))]
    pub name: String,
    /// Where it is, relative to the working folder.
    #[schemars(length(min = 1, max = 4_096))]
    pub path: String,
    /// A stable identifier for the RO-Crate record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identifier: Option<String>,
    /// Modification time in seconds since 1970, as recorded by older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub st_mtime: Option<f64>,
    /// Make a family of files from this one.
    #[serde(flatten)]
    pub parameterization: Parameterization,
}

/// A JSON value that jobs read or write.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UserDataSpec {
    /// Unique after expansion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1_024))]
    pub name: Option<String>,
    /// The value; absent until a job writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::parameters::free_form")]
    pub data: Option<Value>,
    /// Forget the value when the workflow runs again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_ephemeral: Option<bool>,
    /// Make a family of values from this one.
    #[serde(flatten)]
    pub parameterization: Parameterization,
}
