//! What a worker is told and what it reports, one line each. Whatever else a login shell prints is passed over.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use torc_runner::ProcessId;

/// What a worker is to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum WorkerRequest {
    /// Start a runner, unless it runs.
    Start(Box<StartRequest>),
    /// Say how the runner stands.
    Look {
        /// The worker's folder.
        folder: PathBuf,
    },
    /// End the runner.
    Stop {
        /// The worker's folder.
        folder: PathBuf,
        /// Its jobs are not given time.
        force: bool,
        /// How long to wait for its end.
        wait_seconds: u64,
    },
    /// Send the logs.
    SendLogs {
        /// The worker's folder.
        folder: PathBuf,
    },
    /// Delete the logs.
    DeleteLogs {
        /// The worker's folder.
        folder: PathBuf,
    },
}

/// How to start a runner.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StartRequest {
    /// The version that is expected; absent: any.
    pub version: Option<String>,
    /// The worker's folder: its own, for logs and state.
    pub folder: PathBuf,
    /// Where an earlier runner of this worker may still live.
    pub earlier_folder: Option<PathBuf>,
    /// The folder that the workflow's jobs run in.
    pub working_dir: PathBuf,
    /// Make that folder where it is missing.
    pub make_folder: bool,
    /// The workflow's number.
    pub workflow: i64,
    /// The server, as the worker reaches it.
    pub url: String,
    /// The server's token.
    pub token: Option<String>,
    /// The server's certificate, or those who vouch for it, in PEM; absent where the token pins it or the machine trusts it.
    #[serde(default)]
    pub certificates: Option<String>,
    /// More words for `torc runner`.
    pub arguments: Vec<String>,
}

/// What a worker reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerResponse {
    /// The machine's name.
    pub host: String,
    /// What came of the order.
    pub outcome: RequestOutcome,
    /// The runner, if there ever was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner: Option<RecordedRunner>,
    /// Whether that runner lives.
    pub alive: bool,
}

/// What came of an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum RequestOutcome {
    /// It was looked at.
    Looked,
    /// It was started.
    Started,
    /// It was running already.
    AlreadyRunning,
    /// It has ended.
    Stopped,
    /// There was nothing to end.
    NotRunning,
    /// It has not ended in the time that was given.
    StillRunning,
    /// So many files were deleted.
    Deleted {
        /// How many.
        files: u64,
    },
    /// It was not done.
    Refused {
        /// Why.
        reason: String,
        /// What to do about it.
        advice: String,
    },
}

/// A runner as its worker's folder names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedRunner {
    /// Its process.
    #[serde(flatten)]
    pub process: ProcessId,
    /// The machine.
    pub host: String,
    /// When it started.
    pub start_time: String,
    /// When it left in order; absent while it lives, and for one that was killed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_time: Option<String>,
    /// Why it left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_reason: Option<String>,
}

/// Begins the line of a report.
pub const REPORT: &str = "torc-report: ";
/// The line before an archive of logs.
pub const LOGS: &str = "torc-logs:";

/// The report in what a worker printed.
pub fn find_report(printed: &str) -> Option<WorkerResponse> {
    printed.lines().find_map(|line| serde_json::from_str(line.strip_prefix(REPORT)?).ok())
}

/// The version in what a worker printed: `torc --version` comes first.
pub fn find_version(printed: &str) -> Option<&str> {
    printed.lines().take_while(|line| !line.starts_with(REPORT)).find_map(|line| line.strip_prefix("torc "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_found_among_what_a_shell_says() {
        let report =
            WorkerResponse { host: "n1".to_owned(), outcome: RequestOutcome::Started, runner: None, alive: true };
        let line = serde_json::to_string(&report).expect("JSON");
        let printed = format!("Welcome to n1!\ntorc 1.2.3\n{REPORT}{line}\n");
        assert_eq!(find_report(&printed), Some(report));
        assert_eq!(find_version(&printed), Some("1.2.3"));
        assert_eq!((find_report("torc 1.2.3\n"), find_version("hello\n")), (None, None));
    }

    #[test]
    fn orders_survive_the_way() {
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
