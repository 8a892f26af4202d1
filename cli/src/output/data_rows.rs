//! Columns of files and user data.

use torc_api::data::{File, FileStatus, UserData};

use super::human;
use super::table::{CellStyle, Column, TableCell, Tabular, ago, bytes, text};

/// Digits of a hash in tables: enough to distinguish files.
const SHORT_HASH_DIGITS: usize = 12;

impl Tabular for File {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::always("NAME", |row, _| row.name.as_str().into()),
        Column::always("PATH", |row, _| row.path.as_str().into()),
        Column::always("STATUS", |row, _| TableCell::styled(row.status.as_str(), style(row.status))),
        Column::always("SIZE", |row, _| bytes(row.size_bytes)),
        Column::always("MODIFIED", |row, now| ago(&row.modified_time, now)),
        Column::always("SHA256", |row, _| {
            row.sha256.as_deref().map_or(String::new(), |hash| hash.chars().take(SHORT_HASH_DIGITS).collect()).into()
        }),
        Column::always("PRODUCED BY", |row, _| row.produced_by.join(",").into()),
        Column::wide("READERS", |row, _| row.readers.into()),
        Column::wide("SEEN BY", |row, _| text(&row.seen_by)),
        Column::wide("SEEN", |row, now| ago(&row.seen_time, now)),
    ];
}

fn style(status: FileStatus) -> CellStyle {
    match status {
        FileStatus::Present => CellStyle::Good,
        FileStatus::Required => CellStyle::Plain,
        FileStatus::Expected => CellStyle::Faint,
    }
}

impl Tabular for UserData {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::always("NAME", |row, _| row.name.as_str().into()),
        Column::always("VALUE", |row, _| {
            row.data.as_ref().map_or(String::new(), |value| shortened(&value.to_string())).into()
        }),
        Column::always("FROM", |row, _| author(row).into()),
        Column::always("CHANGED", |row, now| human::age(&row.change_time, now).into()),
        Column::wide("IN DOCUMENT", |row, _| if row.in_document { "yes" } else { "no" }.into()),
        Column::wide("EPHEMERAL", |row, _| if row.is_ephemeral { "yes" } else { "no" }.into()),
    ];
}

fn author(row: &UserData) -> String {
    match (&row.written_by, row.written, &row.data) {
        (Some(job), ..) => format!("job {job}"),
        (None, true, _) => "user".to_owned(),
        (None, false, Some(_)) => "document".to_owned(),
        (None, false, None) => String::new(),
    }
}

/// Cuts long values for tables; `torc user-data get` prints them in full.
fn shortened(text: &str) -> String {
    const MAX_CHARS: usize = 60;
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
