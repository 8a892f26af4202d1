//! Which columns the tables about workers have.

use jiff::Timestamp;
use serde::Serialize;
use torc_api::remote::RemoteWorker;

use crate::output::human;
use crate::output::table::{Column, Paint, TableCell, Tabular};
use crate::remote::worker_status::{WorkerState, WorkerStatus};

fn text<T: ToString>(value: Option<&T>) -> TableCell {
    value.map(ToString::to_string).unwrap_or_default().into()
}

impl Tabular for RemoteWorker {
    const COLUMNS: &'static [Column] =
        &[Column::always("WORKER"), Column::always("AGE"), Column::always("FOLDER"), Column::wide("REMOTE-TORC")];

    fn cells(&self, now: Timestamp) -> Vec<TableCell> {
        let age = self.creation_time.as_ref().map(|time| human::age(time, now));
        vec![
            self.address.as_str().into(),
            text(age.as_ref()),
            text(self.folder.as_ref()),
            text(self.remote_torc.as_ref()),
        ]
    }
}

impl Tabular for WorkerStatus {
    const COLUMNS: &'static [Column] = &[
        Column::always("WORKER"),
        Column::always("STATE"),
        Column::always("FOR"),
        Column::always("RUNNING"),
        Column::always("QUEUED"),
        Column::always("HOST"),
        Column::always("PROCESS"),
        Column::wide("RUNNER"),
        Column::wide("FOLDER"),
        Column::always("MESSAGE"),
    ];

    fn cells(&self, now: Timestamp) -> Vec<TableCell> {
        let paint = match self.state {
            WorkerState::Running => Paint::Good,
            WorkerState::Stopped => Paint::Faint,
            WorkerState::Dead | WorkerState::Unreachable | WorkerState::Unknown => Paint::Bad,
        };
        let since = self.since.as_ref().map(|time| human::age(time, now));
        vec![
            self.worker.as_str().into(),
            TableCell::painted(self.state.word(), paint),
            text(since.as_ref()),
            self.running.into(),
            self.queued.into(),
            text(self.host.as_ref()),
            text(self.pid.as_ref()),
            text(self.runner.as_ref()),
            text(self.folder.as_ref()),
            self.message.as_str().into(),
        ]
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
    const COLUMNS: &'static [Column] = &[
        Column::always("WORKER"),
        Column::always("OUTCOME"),
        Column::always("HOST"),
        Column::always("PROCESS"),
        Column::always("MESSAGE"),
    ];

    fn cells(&self, _: Timestamp) -> Vec<TableCell> {
        vec![
            self.worker.as_str().into(),
            TableCell::painted(self.outcome, if self.good { Paint::Good } else { Paint::Bad }),
            text(self.host.as_ref()),
            text(self.pid.as_ref()),
            self.message.as_str().into(),
        ]
    }
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
    const COLUMNS: &'static [Column] =
        &[Column::always("WORKER"), Column::always("FILES"), Column::always("FOLDER"), Column::always("MESSAGE")];

    fn cells(&self, _: Timestamp) -> Vec<TableCell> {
        vec![
            self.worker.as_str().into(),
            text(self.files.as_ref()),
            text(self.folder.as_ref()),
            self.message.as_str().into(),
        ]
    }
}
