//! Jobs, and the files and data that they exchange.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::execution::Stdio;
use crate::parameters::Parameterization;

/// A job: a command, or with parameters a family of commands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobSpec {
    /// The name, unique after expansion of parameters.
    #[schemars(length(min = 1, max = 1_024))]
    pub name: String,
    /// The command. It runs through `bash -c`, unless it consists of plain words.
    #[schemars(length(min = 1, max = 131_072))]
    pub command: String,
    /// One line: a prefix of the command. Several lines: a script that runs before the command.
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
    /// Names of jobs that must end before this job starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,
    /// Regular expressions that match the names of further jobs that must end first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on_regexes: Vec<String>,
    /// Names of files that this job reads. It waits for the jobs that write them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_files: Option<Vec<String>>,
    /// Names of files that this job writes. The job fails if one is missing afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_files: Option<Vec<String>>,
    /// Names of user data that this job reads. It waits for the jobs that write them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_user_data: Option<Vec<String>>,
    /// Names of user data that this job writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_user_data: Option<Vec<String>>,
    /// Regular expressions that match the names of further input files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_file_regexes: Option<Vec<String>>,
    /// Regular expressions that match the names of further output files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_file_regexes: Option<Vec<String>>,
    /// Regular expressions that match the names of further input data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_user_data_regexes: Option<Vec<String>>,
    /// Regular expressions that match the names of further output data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_user_data_regexes: Option<Vec<String>>,
    /// Cancel this job if a job that it depends on fails (true when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel_on_blocking_job_failure: Option<bool>,
    /// The name of an entry of `failureHandlers`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_handler: Option<String>,
    /// The name of an entry of `slurmSchedulers`. Only its allocations run this job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<String>,
    /// Jobs with a higher priority start first (0 when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000_000))]
    pub priority: Option<i64>,
    /// Labels. Only runners that have all of them run this job.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub labels: Vec<String>,
    /// The streams of this job to keep (`executionConfig.stdio` when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdio: Option<Stdio>,
    /// Tasks that srun starts on each node of the job. The command is then the parallel program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub tasks_per_node: Option<i32>,
    /// Ignored. Files of Torc 1.0 may have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supports_termination: Option<bool>,
    /// Parameters that make a family of jobs from this entry.
    #[serde(flatten)]
    pub parameterization: Parameterization,
}

/// A file that jobs read or write.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FileSpec {
    /// The name, unique after expansion of parameters.
    #[schemars(length(min = 1, max = 1_024))]
    pub name: String,
    /// The path, relative to the working folder.
    #[schemars(length(min = 1, max = 4_096))]
    pub path: String,
    /// A stable identifier for the RO-Crate record (the path when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identifier: Option<String>,
    /// The modification time in seconds since 1970, which Torc 1.0 recorded. Ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub st_mtime: Option<f64>,
    /// Parameters that make a family of files from this entry.
    #[serde(flatten)]
    pub parameterization: Parameterization,
}

/// A JSON value that jobs read or write.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UserDataSpec {
    /// The name, unique after expansion of parameters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1_024))]
    pub name: Option<String>,
    /// The value. It can be absent if a job writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::parameters::free_form")]
    pub data: Option<Value>,
    /// Delete the written value when the workflow runs again (false when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_ephemeral: Option<bool>,
    /// Parameters that make a family of values from this entry.
    #[serde(flatten)]
    pub parameterization: Parameterization,
}
