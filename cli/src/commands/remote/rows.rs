//! Which columns the tables about workers have.

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

/// What came of an order to a worker.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OrderRow {
    /// `[user@]host[:port]`.
    pub worker: String,
    /// In a word or two.
    pub outcome: &'static str,
    /// Whether it was carried out.
    #[serde(skip)]
    pub good: bool,
    /// The machine's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The runner's process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// What went wrong.
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

/// What became of a worker's logs.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LogsRow {
    /// `[user@]host[:port]`.
    pub worker: String,
    /// How many files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
    /// Where.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// What went wrong.
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
