//! Rows as SQLite has them, and their way back into the core's types. A row that makes no sense there is damage, not a panic.

use serde::de::value::{Error as ValueError, StrDeserializer};
use serde::de::{DeserializeOwned, Error as _, IntoDeserializer};
use serde::{Deserialize, Deserializer, Serialize};
use sqlx::FromRow;
use torc_api::state::{Cause, JobState};
use torc_api::wire::Usage;
use torc_core::ids::{JobId, ProfileId, RunnerId, WorkflowId};
use torc_core::rows::{EventRow, JobRow, ResultRow, RunnerRow};

use crate::error::Failure;
use crate::packed::{unpack_jobs, unpack_moves};

/// A value as the JSON of a column.
pub(crate) fn to_json(value: &impl Serialize) -> Result<String, sqlx::Error> {
    serde_json::to_string(value).map_err(|error| sqlx::Error::Encode(error.into()))
}

/// A value from the JSON of a column.
pub(crate) fn from_json<T: DeserializeOwned>(what: &str, text: &str) -> Result<T, Failure> {
    serde_json::from_str(text).map_err(|error| Failure::Damage(format!("{what}: {error}")))
}

fn from_hex<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let digits = <&str>::deserialize(deserializer)?;
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|value| u8::try_from(value).ok());
    digits
        .as_bytes()
        .chunks(2)
        .map(|pair| match pair {
            [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
            _ => None,
        })
        .collect::<Option<Vec<u8>>>()
        .ok_or_else(|| D::Error::custom("not hexadecimal"))
}

/// A state from its number.
pub(crate) fn state(code: i64) -> Result<JobState, Failure> {
    u8::try_from(code)
        .ok()
        .and_then(JobState::from_code)
        .ok_or_else(|| Failure::Damage(format!("no job state has the number {code}")))
}

/// A cause from its name.
pub(crate) fn cause(name: &str) -> Result<Cause, Failure> {
    let name: StrDeserializer<'_, ValueError> = name.into_deserializer();
    Cause::deserialize(name).map_err(|error| Failure::Damage(format!("cause of a result: {error}")))
}

/// A small number, such as a run or an attempt.
pub(crate) fn small(what: &str, number: i64) -> Result<i32, Failure> {
    i32::try_from(number).map_err(|_| Failure::Damage(format!("{what} {number} is too large")))
}

/// A job: its definition and where it stands. From JSON it is read as an array, its bytes as hexadecimal digits.
#[derive(Debug, FromRow, Deserialize)]
pub(crate) struct JobRecord {
    pub id: i64,
    pub workflow: i64,
    pub name: String,
    pub command: String,
    pub profile: i64,
    pub priority: i64,
    #[serde(deserialize_with = "from_hex")]
    pub hash: Vec<u8>,
    #[serde(deserialize_with = "from_hex")]
    pub depends_on: Vec<u8>,
    pub state: i64,
    pub run: i64,
    pub attempt: i64,
    pub epoch: i64,
    pub runner: Option<i64>,
    pub started_ms: Option<i64>,
}

impl TryFrom<JobRecord> for JobRow {
    type Error = Failure;

    fn try_from(record: JobRecord) -> Result<Self, Failure> {
        let damage = |what: &str| Failure::Damage(format!("{what} of job {}", record.id));
        Ok(Self {
            id: JobId(record.id),
            workflow: WorkflowId(record.workflow),
            hash: record.hash.as_slice().try_into().map_err(|_| damage("hash"))?,
            depends_on: unpack_jobs(&record.depends_on).ok_or_else(|| damage("dependencies"))?,
            name: record.name,
            command: record.command,
            profile: ProfileId(record.profile),
            priority: record.priority,
            state: state(record.state)?,
            run: small("run", record.run)?,
            attempt: small("attempt", record.attempt)?,
            epoch: record.epoch,
            runner: record.runner.map(RunnerId),
            started_ms: record.started_ms,
        })
    }
}

/// An attempt that ended.
#[derive(Debug, FromRow)]
pub(crate) struct ResultRecord {
    pub workflow: i64,
    pub job: i64,
    pub run: i64,
    pub attempt: i64,
    pub state: i64,
    pub return_code: i64,
    pub cause: Option<String>,
    pub message: Option<String>,
    pub started_ms: i64,
    pub ended_ms: i64,
    pub runner: Option<i64>,
    pub stdout: Option<String>,
    pub stderr: Option<String>,
    pub peak_memory_bytes: Option<i64>,
    pub average_memory_bytes: Option<i64>,
    pub peak_cpu_percent: Option<f64>,
    pub average_cpu_percent: Option<f64>,
    pub peak_gpu_percent: Option<f64>,
    pub average_gpu_percent: Option<f64>,
    pub peak_gpu_memory_bytes: Option<i64>,
}

impl TryFrom<ResultRecord> for ResultRow {
    type Error = Failure;

    fn try_from(record: ResultRecord) -> Result<Self, Failure> {
        Ok(Self {
            workflow: WorkflowId(record.workflow),
            job: JobId(record.job),
            run: small("run", record.run)?,
            attempt: small("attempt", record.attempt)?,
            state: state(record.state)?,
            return_code: small("return code", record.return_code)?,
            cause: record.cause.as_deref().map(cause).transpose()?,
            message: record.message,
            started_ms: record.started_ms,
            ended_ms: record.ended_ms,
            runner: record.runner.map(RunnerId),
            stdout: record.stdout,
            stderr: record.stderr,
            usage: Usage {
                peak_memory_bytes: record.peak_memory_bytes,
                average_memory_bytes: record.average_memory_bytes,
                peak_cpu_percent: record.peak_cpu_percent,
                average_cpu_percent: record.average_cpu_percent,
                peak_gpu_percent: record.peak_gpu_percent,
                average_gpu_percent: record.average_gpu_percent,
                peak_gpu_memory_bytes: record.peak_gpu_memory_bytes,
            },
        })
    }
}

/// A runner.
#[derive(Debug, FromRow)]
pub(crate) struct RunnerRecord {
    pub id: i64,
    pub host: String,
    pub pid: i64,
    pub kind: String,
    pub capacity: String,
    pub max_parallel_jobs: Option<i64>,
    pub labels: String,
    pub scope: String,
    pub scheduler: Option<String>,
    pub slurm_job_id: Option<String>,
    pub output_dir: String,
    pub place: String,
    pub version: String,
    pub started_ms: i64,
    pub ended_ms: Option<i64>,
}

impl TryFrom<RunnerRecord> for RunnerRow {
    type Error = Failure;

    fn try_from(record: RunnerRecord) -> Result<Self, Failure> {
        let max_parallel_jobs = record
            .max_parallel_jobs
            .map(|number| u32::try_from(number).map_err(|_| Failure::Damage(format!("depth of runner {}", record.id))))
            .transpose()?;
        Ok(Self {
            id: RunnerId(record.id),
            host: record.host,
            pid: record.pid,
            kind: from_json("kind of a runner", &record.kind)?,
            capacity: from_json("capacity of a runner", &record.capacity)?,
            max_parallel_jobs,
            labels: from_json("labels of a runner", &record.labels)?,
            scope: from_json("scope of a runner", &record.scope)?,
            scheduler: record.scheduler,
            slurm_job_id: record.slurm_job_id,
            output_dir: record.output_dir,
            place: record.place,
            version: record.version,
            started_ms: record.started_ms,
            ended_ms: record.ended_ms,
        })
    }
}

/// Something that happened.
#[derive(Debug, FromRow)]
pub(crate) struct EventRecord {
    pub sequence: i64,
    pub time_ms: i64,
    pub workflow: Option<i64>,
    pub reason: String,
    pub message: String,
    pub jobs: Vec<u8>,
}

impl TryFrom<EventRecord> for EventRow {
    type Error = Failure;

    fn try_from(record: EventRecord) -> Result<Self, Failure> {
        let jobs =
            unpack_moves(&record.jobs).ok_or_else(|| Failure::Damage(format!("jobs of event {}", record.sequence)))?;
        Ok(Self {
            sequence: record.sequence,
            time_ms: record.time_ms,
            workflow: record.workflow.map(WorkflowId),
            reason: record.reason,
            message: record.message,
            jobs,
        })
    }
}
