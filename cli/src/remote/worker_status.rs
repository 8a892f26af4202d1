//! The status of a worker, from its machine and from the server.

use std::path::Path;

use serde::Serialize;
use torc_api::api::{Runner, RunnerStatus};
use torc_api::remote::RemoteWorker;

use super::request::WorkerResponse;
use super::ssh::WorkerError;

/// The state of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum WorkerState {
    Running,
    /// The runner ended regularly, or was never started.
    Stopped,
    /// The runner was killed.
    Dead,
    /// SSH cannot connect to the machine.
    Unreachable,
    /// SSH can connect, but `torc` there does not respond.
    Unknown,
}

impl WorkerState {
    /// Returns the word in tables.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Stopped => "stopped",
            Self::Dead => "dead",
            Self::Unreachable => "unreachable",
            Self::Unknown => "unknown",
        }
    }
}

/// The status of a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerStatus {
    /// The address of the worker: `[user@]host[:port]`.
    pub worker: String,
    pub state: WorkerState,
    /// The time of the last change, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Number of running jobs.
    pub running: i64,
    /// Number of jobs that wait in the runner.
    pub queued: i64,
    /// The host name of the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The PID of the runner, on its machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<i64>,
    /// The number of the runner at the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runner: Option<i64>,
    /// The worker's folder; absent before the first start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// The reason of the state; empty for a running worker.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Returns the last runner of a worker; no other runner writes to its folder.
pub fn runner_of<'a>(worker: &RemoteWorker, runners: &'a [Runner]) -> Option<&'a Runner> {
    let folder = Path::new(worker.folder.as_deref()?);
    runners.iter().filter(|runner| Path::new(&runner.output_dir).ends_with(folder)).max_by_key(|runner| runner.id)
}

/// Determines the status of a worker. The machine knows whether the runner is running, the server knows its jobs.
pub fn worker_status(
    worker: &RemoteWorker,
    answer: &Result<Option<WorkerResponse>, WorkerError>,
    runners: &[Runner],
) -> WorkerStatus {
    let runner = runner_of(worker, runners);
    let last_contact = |runner: &Runner| runner.last_contact_time.clone().or_else(|| runner.end_time.clone());
    let (state, since, message) = match answer {
        Err(error) => {
            let state = if error.unreachable { WorkerState::Unreachable } else { WorkerState::Unknown };
            (state, runner.and_then(last_contact), without_response(error, runner))
        }
        Ok(None) => (WorkerState::Stopped, None, "it has not been started yet".to_owned()),
        Ok(Some(report)) => match &report.runner {
            None => (WorkerState::Stopped, None, "it has not been started yet".to_owned()),
            Some(known) if report.alive => (WorkerState::Running, Some(known.start_time.clone()), String::new()),
            Some(known) => match &known.end_time {
                Some(end) => (WorkerState::Stopped, Some(end.clone()), known.end_reason.clone().unwrap_or_default()),
                None => (
                    WorkerState::Dead,
                    runner.and_then(last_contact),
                    "its process was killed; restart it with `torc remote run`".to_owned(),
                ),
            },
        },
    };
    let known = answer.as_ref().ok().and_then(|report| report.as_ref()?.runner.as_ref());
    WorkerStatus {
        worker: worker.address.clone(),
        state,
        since,
        running: runner.map_or(0, |runner| runner.running),
        queued: runner.map_or(0, |runner| runner.queued),
        host: known.map(|known| known.host.clone()).or_else(|| runner.map(|runner| runner.host.clone())),
        pid: known.map(|known| known.process.pid.into()).or_else(|| runner.map(|runner| runner.pid)),
        runner: runner.map(|runner| runner.id),
        folder: worker.folder.clone(),
        message,
    }
}

/// Describes a worker without a response: the error, and the server's state of its runner.
fn without_response(error: &WorkerError, runner: Option<&Runner>) -> String {
    match runner.map(|runner| runner.status) {
        Some(RunnerStatus::Active) => format!("{}; its runner reports to the server", error.reason),
        Some(RunnerStatus::Silent) => format!("{}; the server has lost contact to its runner", error.reason),
        _ => error.reason.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use torc_runner::ProcessId;

    use super::super::request::{RecordedRunner, RequestOutcome};
    use super::*;

    fn worker() -> RemoteWorker {
        RemoteWorker { address: "n1".to_owned(), folder: Some("/w/out/s_n1".to_owned()), ..RemoteWorker::default() }
    }

    fn runner(id: i64, folder: &str, status: &str) -> Runner {
        let none = json!({ "cpus": 1, "memoryBytes": 1, "gpus": 0, "nodes": 1 });
        let value = json!({ "id": id, "host": "h", "pid": 7, "kind": "remote", "status": status, "capacity": none,
            "outputDir": folder, "version": "1", "queued": 2, "running": 3, "startTime": "t0", "lastContactTime": "t1" });
        serde_json::from_value(value).expect("a runner")
    }

    fn report(alive: bool, end: Option<&str>) -> Result<Option<WorkerResponse>, WorkerError> {
        let known = RecordedRunner {
            process: ProcessId { pid: 9, ..ProcessId::default() },
            host: "h".to_owned(),
            start_time: "start".to_owned(),
            end_time: end.map(str::to_owned),
            end_reason: end.map(|_| "stopped".to_owned()),
        };
        Ok(Some(WorkerResponse { host: "h".to_owned(), outcome: RequestOutcome::Looked, runner: Some(known), alive }))
    }

    // J04
    #[test]
    fn response_and_record_decide_the_state() {
        let no_program = WorkerError { unreachable: false, reason: "no program".to_owned(), advice: String::new() };
        let silent = WorkerError { unreachable: true, reason: "no route".to_owned(), advice: String::new() };
        for (answer, state, since) in [
            (report(true, None), WorkerState::Running, Some("start")),
            (report(false, Some("end")), WorkerState::Stopped, Some("end")),
            (report(false, None), WorkerState::Dead, Some("t1")),
            (Err(silent), WorkerState::Unreachable, Some("t1")),
            (Err(no_program), WorkerState::Unknown, Some("t1")),
            (Ok(None), WorkerState::Stopped, None),
        ] {
            let status = worker_status(&worker(), &answer, &[runner(4, "/w/out/s_n1", "silent")]);
            assert_eq!((status.state, status.since.as_deref()), (state, since), "{answer:?}");
            assert_eq!((status.running, status.queued, status.runner), (3, 2, Some(4)));
        }
    }

    #[test]
    fn the_last_runner_of_the_folder_is_used() {
        let runners =
            [runner(1, "/w/out/s_n1", "gone"), runner(3, "/w/out/s_n1", "active"), runner(5, "/w/out/s_n2", "active")];
        assert_eq!(runner_of(&worker(), &runners).map(|runner| runner.id), Some(3));
        let in_home = RemoteWorker { folder: Some("out/s_n1".to_owned()), ..worker() };
        assert_eq!(runner_of(&in_home, &runners).map(|runner| runner.id), Some(3));
        assert_eq!(runner_of(&RemoteWorker { folder: None, ..worker() }, &runners), None);
    }

    #[test]
    fn an_unreachable_machine_is_described_by_the_server() {
        let error = || Err(WorkerError { unreachable: true, reason: "no route".to_owned(), advice: String::new() });
        for (status, expected) in [
            ("active", "no route; its runner reports to the server"),
            ("silent", "no route; the server has lost contact to its runner"),
            ("gone", "no route"),
        ] {
            let status = worker_status(&worker(), &error(), &[runner(4, "/w/out/s_n1", status)]);
            assert_eq!(status.message, expected);
            assert_eq!((status.host.as_deref(), status.pid), (Some("h"), Some(7)), "as the server knows them");
        }
        let unknown = worker_status(&worker(), &error(), &[]);
        assert_eq!((unknown.running, unknown.queued, unknown.runner, unknown.since), (0, 0, None, None));
        let known = worker_status(&worker(), &report(true, None), &[runner(4, "/w/out/s_n1", "active")]);
        assert_eq!((known.pid, known.worker.as_str(), known.folder.as_deref()), (Some(9), "n1", Some("/w/out/s_n1")));
        let never = Ok(Some(WorkerResponse {
            host: "h".to_owned(),
            outcome: RequestOutcome::Looked,
            runner: None,
            alive: false,
        }));
        assert_eq!(worker_status(&worker(), &never, &[]).state, WorkerState::Stopped);
        let words = [
            WorkerState::Running,
            WorkerState::Stopped,
            WorkerState::Dead,
            WorkerState::Unreachable,
            WorkerState::Unknown,
        ]
        .map(WorkerState::word);
        assert_eq!(words, ["running", "stopped", "dead", "unreachable", "unknown"]);
    }
}
