//! Conversions of rows to types of the core. A row with impossible content is damage, not a panic.

use serde::de::value::{Error as ValueError, StrDeserializer};
use serde::de::{DeserializeOwned, Error as _, IntoDeserializer};
use serde::{Deserialize, Deserializer, Serialize};
use sqlx::FromRow;
use torc_api::state::{Cause, JobState};
use torc_api::wire::Usage;
use torc_core::ids::{JobId, ProfileId, RunnerId, WorkflowId};
use torc_core::rows::{EventRow, JobRow, ResultRow};

use crate::error::QueryError;
use crate::varint::{decode_jobs, decode_transitions};

/// Returns a value as JSON.
pub(crate) fn to_json(value: &impl Serialize) -> Result<String, sqlx::Error> {
    serde_json::to_string(value).map_err(|error| sqlx::Error::Encode(error.into()))
}

/// Reads a value from JSON. `what` names it in the error.
pub(crate) fn from_json<T: DeserializeOwned>(what: &str, text: &str) -> Result<T, QueryError> {
    serde_json::from_str(text).map_err(|error| QueryError::Damage(format!("{what}: {error}")))
}

/// Reads rows that are JSON.
pub(crate) fn rows_from_json<T: DeserializeOwned>(what: &str, texts: &[String]) -> Result<Vec<T>, QueryError> {
    texts.iter().map(|text| from_json(what, text)).collect()
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

/// Returns the state with this code.
pub(crate) fn state(code: i64) -> Result<JobState, QueryError> {
    u8::try_from(code)
        .ok()
        .and_then(JobState::from_code)
        .ok_or_else(|| QueryError::Damage(format!("no job state has the number {code}")))
}

/// Returns the cause of this name.
pub(crate) fn cause(name: &str) -> Result<Cause, QueryError> {
    let name: StrDeserializer<'_, ValueError> = name.into_deserializer();
    Cause::deserialize(name).map_err(|error| QueryError::Damage(format!("cause of a result: {error}")))
}

/// Returns a number as 32 bits, for runs, attempts and the like.
pub(crate) fn small(what: &str, number: i64) -> Result<i32, QueryError> {
    i32::try_from(number).map_err(|_| QueryError::Damage(format!("{what} {number} is too large")))
}

/// A job and its state. In JSON it is an array, and its bytes are hexadecimal digits.
#[derive(Debug, FromRow, Deserialize)]
pub(crate) struct JobColumns {
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
    pub lease_id: i64,
    pub runner: Option<i64>,
    pub started_ms: Option<i64>,
}

impl TryFrom<JobColumns> for JobRow {
    type Error = QueryError;

    fn try_from(record: JobColumns) -> Result<Self, QueryError> {
        let corruption = |what: &str| QueryError::Damage(format!("{what} of job {}", record.id));
        Ok(Self {
            id: JobId(record.id),
            workflow: WorkflowId(record.workflow),
            hash: record.hash.as_slice().try_into().map_err(|_| corruption("hash"))?,
            depends_on: decode_jobs(&record.depends_on).ok_or_else(|| corruption("dependencies"))?,
            name: record.name,
            command: record.command,
            profile: ProfileId(record.profile),
            priority: record.priority,
            state: state(record.state)?,
            run: small("run", record.run)?,
            attempt: small("attempt", record.attempt)?,
            lease_id: record.lease_id,
            runner: record.runner.map(RunnerId),
            started_ms: record.started_ms,
        })
    }
}

/// An attempt that ended.
#[derive(Debug, FromRow)]
pub(crate) struct ResultColumns {
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

impl TryFrom<ResultColumns> for ResultRow {
    type Error = QueryError;

    fn try_from(record: ResultColumns) -> Result<Self, QueryError> {
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

/// The columns of an event.
#[derive(Debug, FromRow)]
pub(crate) struct EventColumns {
    pub sequence: i64,
    pub time_ms: i64,
    pub workflow: Option<i64>,
    pub reason: String,
    pub message: String,
    pub jobs: Vec<u8>,
}

impl TryFrom<EventColumns> for EventRow {
    type Error = QueryError;

    fn try_from(record: EventColumns) -> Result<Self, QueryError> {
        let jobs = decode_transitions(&record.jobs)
            .ok_or_else(|| QueryError::Damage(format!("jobs of event {}", record.sequence)))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn corruption<T: std::fmt::Debug>(result: Result<T, QueryError>) -> String {
        match result {
            Err(QueryError::Damage(what)) => what,
            other => format!("no damage: {other:?}"),
        }
    }

    #[test]
    fn numbers_of_states_are_those_of_files_on_disks() {
        let states = [
            JobState::Uninitialized,
            JobState::Blocked,
            JobState::Ready,
            JobState::Leased,
            JobState::Running,
            JobState::Completed,
            JobState::Failed,
            JobState::Canceled,
            JobState::Terminated,
            JobState::Disabled,
            JobState::PendingFailed,
            JobState::Recovering,
        ];
        for (code, expected) in (0..).zip(states) {
            assert_eq!(state(code).ok(), Some(expected), "{code}");
        }
        for code in [-1, 12, 256] {
            assert_eq!(corruption(state(code)), format!("no job state has the number {code}"));
        }
    }

    #[test]
    fn names_of_causes_are_those_of_files_on_disks() {
        for (name, expected) in [
            ("OutOfMemory", Cause::OutOfMemory),
            ("Timeout", Cause::Timeout),
            ("NodeFailure", Cause::NodeFailure),
            ("Preempted", Cause::Preempted),
            ("Lost", Cause::Lost),
            ("ExitCode", Cause::ExitCode),
            ("Canceled", Cause::Canceled),
            ("StartFailed", Cause::StartFailed),
            ("MissingOutput", Cause::MissingOutput),
            ("Stopped", Cause::Stopped),
        ] {
            assert_eq!((cause(name).ok(), expected.as_str()), (Some(expected), name));
        }
        assert!(corruption(cause("Boredom")).starts_with("cause of a result: unknown variant `Boredom`"));
    }

    #[test]
    fn small_numbers_are_those_of_32_bits() {
        for number in [i64::from(i32::MIN), -1, 0, i64::from(i32::MAX)] {
            assert_eq!(small("run", number).ok().map(i64::from), Some(number));
        }
        for number in [i64::from(i32::MAX) + 1, i64::from(i32::MIN) - 1] {
            assert_eq!(corruption(small("run", number)), format!("run {number} is too large"));
        }
    }

    fn record() -> JobColumns {
        JobColumns {
            id: 7,
            workflow: 1,
            name: "train".to_owned(),
            command: "true".to_owned(),
            profile: 2,
            priority: 3,
            hash: vec![9; 32],
            depends_on: vec![2],
            state: 2,
            run: 4,
            attempt: 5,
            lease_id: 6,
            runner: None,
            started_ms: None,
        }
    }

    #[test]
    fn rows_that_make_no_sense_are_damage() {
        let of_job = |record: JobColumns| corruption(JobRow::try_from(record));
        assert_eq!(of_job(JobColumns { hash: vec![9; 31], ..record() }), "hash of job 7");
        assert_eq!(of_job(JobColumns { depends_on: vec![0x80], ..record() }), "dependencies of job 7");
        assert_eq!(of_job(JobColumns { state: 99, ..record() }), "no job state has the number 99");
        assert_eq!(of_job(JobColumns { run: 1 << 40, ..record() }), "run 1099511627776 is too large");
        assert_eq!(of_job(JobColumns { attempt: 1 << 40, ..record() }), "attempt 1099511627776 is too large");
        let event = EventColumns {
            sequence: 8,
            time_ms: 1,
            workflow: None,
            reason: String::new(),
            message: String::new(),
            jobs: vec![2],
        };
        assert_eq!(corruption(EventRow::try_from(event)), "jobs of event 8");
        assert!(corruption(from_json::<i64>("profile", "x")).starts_with("profile: expected value"));
    }

    #[test]
    fn bytes_are_read_from_hexadecimal_digits() {
        let read = |text: &str| from_hex(&mut serde_json::Deserializer::from_str(&format!("\"{text}\"")));
        assert_eq!(read("00ff1A9b").ok(), Some(vec![0x00, 0xff, 0x1a, 0x9b]));
        assert_eq!(read("").ok(), Some(Vec::new()));
        for text in ["0", "0g", "g0", "001"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
