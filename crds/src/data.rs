//! Files, the values that jobs exchange, and jobs that jobs make, as the HTTP API gives them out.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::job::JobSpec;
use crate::state::JobState;

/// A file of a workflow, as it was last seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct File {
    /// The document's name for it.
    pub name: String,
    /// As the document writes it, relative to the working folder.
    pub path: String,
    /// The state of the file: present, required or expected.
    pub status: FileStatus,
    /// Its size in bytes when it was last seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<i64>,
    /// Its modification time when it was last seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified_time: Option<String>,
    /// SHA-256 in hexadecimal digits; absent for what is too large to be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// The time at which it was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen_time: Option<String>,
    /// The job that saw it so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen_by: Option<String>,
    /// Jobs that write it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub produced_by: Vec<String>,
    /// The number of jobs that read it.
    #[serde(default)]
    pub readers: i64,
}

/// The state of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
#[serde(rename_all = "snake_case")]
pub enum FileStatus {
    /// A job has read or written it.
    Present,
    /// No job writes it: it has to be there before the first job that reads it.
    Required,
    /// A job will write it.
    #[default]
    Expected,
}

impl FileStatus {
    /// Returns its name in tables.
    pub const fn as_str(self) -> &'static str {
        self.into_str()
    }
}

/// The use of a file by a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FileRole {
    /// The job reads the file.
    #[default]
    Input,
    /// The job writes the file.
    Output,
}

/// A job and a file that it reads or writes, with what its latest success saw.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FileUse {
    /// The job's name, unique in its workflow.
    pub job: String,
    /// The job's present state.
    pub job_status: JobState,
    /// As the document writes it.
    pub path: String,
    /// The use: input or output.
    pub role: FileRole,
    /// Its size then; absent when the job has not succeeded yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<i64>,
    /// The modification time that the job saw, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified_ms: Option<i64>,
    /// SHA-256 that the job saw, in hexadecimal digits; absent for what is too large to be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// A value that jobs exchange.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UserData {
    /// The name, unique in the workflow.
    pub name: String,
    /// The value; absent until it is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
    /// The document has it.
    #[serde(default)]
    pub in_document: bool,
    /// The written value is deleted when the workflow runs again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_ephemeral: bool,
    /// A job or the user wrote the value; otherwise it is the document's.
    #[serde(default)]
    pub written: bool,
    /// The job that wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_by: Option<String>,
    /// The time of the last change.
    pub change_time: String,
}

/// `PUT /v1/workflows/{workflow}/user-data/{name}`: a new value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WriteUserData {
    /// The new value: any JSON, `null` included.
    #[serde(deserialize_with = "any_value")]
    #[schemars(schema_with = "crate::parameters::free_form")]
    pub data: Value,
    /// The job that writes it, by name or number; absent for the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
}

/// Reads any value. `null` is a value; a request without one is an error.
fn any_value<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
    Value::deserialize(deserializer)
}

/// The result of a write.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UserDataWritten {
    /// It is not what was there before.
    pub changed: bool,
    /// The number of jobs that completed with an earlier value.
    pub stale_jobs: i64,
}

/// `POST /v1/workflows/{workflow}/jobs/{job}/spawn`: a running job adds jobs to its workflow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SpawnRequest {
    /// The loop that the jobs belong to.
    pub lineage: String,
    /// The jobs, as a document writes them; none: the loop has converged.
    #[serde(default)]
    pub jobs: Vec<JobSpec>,
    /// The state of the loop, readable as user data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::parameters::free_form")]
    pub state: Option<Value>,
    /// The run of the calling job.
    pub run_id: i32,
    /// The number of the calling job's attempt.
    pub attempt: i32,
}

/// The result of a spawn.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SpawnResponse {
    /// The name of the loop.
    pub lineage: String,
    /// The loop's latest generation, counted from 1.
    pub generation: i64,
    /// The number of added jobs.
    pub jobs: i64,
    /// The jobs were there already: nothing has changed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replayed: bool,
    /// The loop has ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub converged: bool,
}

/// Missing and changed inputs of a workflow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Staleness {
    /// Jobs that have completed with data that has changed since.
    pub changed_data: Vec<DataUse>,
    /// Data without a value that a job reads and no job writes.
    pub missing_data: Vec<DataUse>,
}

/// A job and data that it reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DataUse {
    /// The job's name, unique in its workflow.
    pub job: String,
    /// The name of the user data.
    pub data: String,
}
