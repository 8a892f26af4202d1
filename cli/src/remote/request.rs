//! Requests to a worker and its responses, one line each. Other output of a login shell is ignored.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use torc_runner::ProcessId;

/// A request to a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum WorkerRequest {
    /// Start a runner, unless one is running.
    Start(Box<StartRequest>),
    /// Report the state of the runner.
    Look {
        /// The worker's folder, absolute or relative to the login folder.
        folder: PathBuf,
    },
    /// Stop the runner, and the shim of a dead runner.
    Stop {
        /// The worker's folder, absolute or relative to the login folder.
        folder: PathBuf,
        /// True if jobs are terminated at once, without their lead.
        force: bool,
        /// The longest wait for the end of the runner.
        wait_seconds: u64,
    },
    /// Send the logs as a tar archive.
    SendLogs {
        /// The worker's folder, absolute or relative to the login folder.
        folder: PathBuf,
    },
    /// Delete the logs, unless a runner is running.
    DeleteLogs {
        /// The worker's folder, absolute or relative to the login folder.
        folder: PathBuf,
    },
}

/// A request to start a runner.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StartRequest {
    /// The expected version of `torc`; `None` accepts any.
    pub version: Option<String>,
    /// The worker's folder, for logs and state.
    pub folder: PathBuf,
    /// The folder of an earlier runner of this worker, which may still run.
    pub earlier_folder: Option<PathBuf>,
    /// The folder that the workflow's jobs run in.
    pub working_dir: PathBuf,
    /// True if that folder is created if it is missing.
    pub make_folder: bool,
    /// The number of the workflow to serve.
    pub workflow: i64,
    /// The server's URL for the worker.
    pub url: String,
    /// The token with which the runner authenticates.
    pub token: Option<String>,
    /// The server's certificate or its CAs, in PEM; absent if the token pins the certificate or the machine trusts it.
    #[serde(default)]
    pub certificates: Option<String>,
    /// Further arguments of `torc runner`.
    pub arguments: Vec<String>,
}

/// The response of a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerResponse {
    pub host: String,
    pub outcome: RequestOutcome,
    /// The last runner of the worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner: Option<RecordedRunner>,
    /// True if the process of that runner is alive.
    pub alive: bool,
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum RequestOutcome {
    /// The state was read.
    Looked,
    Started,
    AlreadyRunning,
    Stopped,
    /// There was no process to stop.
    NotRunning,
    /// The process did not end in time.
    StillRunning,
    Deleted {
        files: u64,
    },
    Refused {
        reason: String,
        advice: String,
    },
}

/// The record of a runner in its worker's folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedRunner {
    #[serde(flatten)]
    pub process: ProcessId,
    pub host: String,
    pub start_time: String,
    /// The time of a regular end; absent for a running or killed runner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_time: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_reason: Option<String>,
}

/// The prefix of the line with a response.
pub const REPORT: &str = "torc-report: ";
/// The line before an archive of logs.
pub const LOGS: &str = "torc-logs:";

/// Finds the response in the output of a worker.
pub fn find_report(printed: &str) -> Option<WorkerResponse> {
    printed.lines().find_map(|line| serde_json::from_str(line.strip_prefix(REPORT)?).ok())
}

/// Finds the version in the output of a worker, which starts with that of `torc --version`.
pub fn find_version(printed: &str) -> Option<&str> {
    printed.lines().take_while(|line| !line.starts_with(REPORT)).find_map(|line| line.strip_prefix("torc "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_found_in_the_output_of_a_shell() {
        let report =
            WorkerResponse { host: "n1".to_owned(), outcome: RequestOutcome::Started, runner: None, alive: true };
        let line = serde_json::to_string(&report).expect("JSON");
        let printed = format!("Welcome to n1!\ntorc 1.2.3\n{REPORT}{line}\n");
        assert_eq!(find_report(&printed), Some(report));
        assert_eq!(find_version(&printed), Some("1.2.3"));
        assert_eq!((find_report("torc 1.2.3\n"), find_version("hello\n")), (None, None));
    }

    #[test]
    fn requests_survive_serialization() {
        for order in [
            WorkerRequest::Start(Box::new(StartRequest {
                token: Some("secret".to_owned()),
                ..StartRequest::default()
            })),
            WorkerRequest::Stop { folder: "/a b".into(), force: true, wait_seconds: 3 },
        ] {
            let text = serde_json::to_string(&order).expect("JSON");
            assert_eq!(serde_json::from_str::<WorkerRequest>(&text).expect("an order"), order);
        }
    }
}
