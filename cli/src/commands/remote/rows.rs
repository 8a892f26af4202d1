//! Columns of the tables about workers.

use serde::Serialize;
use torc_api::remote::RemoteWorker;

use crate::output::table::{CellStyle, Column, TableCell, Tabular, ago, text};
use crate::remote::worker_status::{WorkerState, WorkerStatus};

impl Tabular for RemoteWorker {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::always("WORKER", |row, _| row.address.as_str().into()),
        Column::always("AGE", |row, now| ago(&row.creation_time, now)),
        Column::always("FOLDER", |row, _| text(&row.folder)),
        Column::wide("REMOTE-TORC", |row, _| text(&row.remote_torc)),
    ];
}

impl Tabular for WorkerStatus {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::always("WORKER", |row, _| row.worker.as_str().into()),
        Column::always("STATE", |row, _| TableCell::styled(row.state.word(), paint(row.state))),
        Column::always("FOR", |row, now| ago(&row.since, now)),
        Column::always("RUNNING", |row, _| row.running.into()),
        Column::always("QUEUED", |row, _| row.queued.into()),
        Column::always("HOST", |row, _| text(&row.host)),
        Column::always("PROCESS", |row, _| text(&row.pid)),
        Column::wide("RUNNER", |row, _| text(&row.runner)),
        Column::wide("FOLDER", |row, _| text(&row.folder)),
        Column::always("MESSAGE", |row, _| row.message.as_str().into()),
    ];
}

fn paint(state: WorkerState) -> CellStyle {
    match state {
        WorkerState::Running => CellStyle::Good,
        WorkerState::Stopped => CellStyle::Faint,
        WorkerState::Dead | WorkerState::Unreachable | WorkerState::Unknown => CellStyle::Bad,
    }
}

/// The outcome of a request to a worker.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OrderRow {
    /// The address of the worker: `[user@]host[:port]`.
    pub worker: String,
    /// The outcome in one or two words.
    pub outcome: &'static str,
    /// True if the request succeeded.
    #[serde(skip)]
    pub good: bool,
    /// The host name of the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The PID of the runner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// The reason of a failure.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

impl Tabular for OrderRow {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::always("WORKER", |row, _| row.worker.as_str().into()),
        Column::always("OUTCOME", |row, _| {
            TableCell::styled(row.outcome, if row.good { CellStyle::Good } else { CellStyle::Bad })
        }),
        Column::always("HOST", |row, _| text(&row.host)),
        Column::always("PROCESS", |row, _| text(&row.pid)),
        Column::always("MESSAGE", |row, _| row.message.as_str().into()),
    ];
}

/// The outcome for the logs of a worker.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LogsRow {
    /// The address of the worker: `[user@]host[:port]`.
    pub worker: String,
    /// The number of files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
    /// The folder of the logs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// The reason of a failure.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

impl Tabular for LogsRow {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::always("WORKER", |row, _| row.worker.as_str().into()),
        Column::always("FILES", |row, _| text(&row.files)),
        Column::always("FOLDER", |row, _| text(&row.folder)),
        Column::always("MESSAGE", |row, _| row.message.as_str().into()),
    ];
}
