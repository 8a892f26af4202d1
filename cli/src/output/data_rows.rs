//! Columns of files and data.

use jiff::Timestamp;
use torc_api::data::{File, FileStatus, UserData};

use super::human;
use super::table::{Column, Paint, TableCell, Tabular};

/// Digits of a hash that tell files apart.
const SHORT: usize = 12;

impl Tabular for File {
    const COLUMNS: &'static [Column] = &[
        Column::always("NAME"),
        Column::always("PATH"),
        Column::always("STATUS"),
        Column::always("SIZE"),
        Column::always("MODIFIED"),
        Column::always("SHA256"),
        Column::always("PRODUCED BY"),
        Column::wide("READERS"),
        Column::wide("SEEN BY"),
        Column::wide("SEEN"),
    ];

    fn cells(&self, now: Timestamp) -> Vec<TableCell> {
        let paint = match self.status {
            FileStatus::Present => Paint::Good,
            FileStatus::Required => Paint::Plain,
            FileStatus::Expected => Paint::Faint,
        };
        let ago = |time: &Option<String>| time.as_deref().map_or(String::new(), |time| human::age(time, now));
        vec![
            self.name.as_str().into(),
            self.path.as_str().into(),
            TableCell::painted(self.status.as_str(), paint),
            self.size_bytes.map_or(String::new(), human::bytes).into(),
            ago(&self.modified_time).into(),
            self.sha256.as_deref().map_or(String::new(), |hash| hash.chars().take(SHORT).collect()).into(),
            self.produced_by.join(",").into(),
            self.readers.into(),
            self.seen_by.clone().unwrap_or_default().into(),
            ago(&self.seen_time).into(),
        ]
    }
}

impl Tabular for UserData {
    const COLUMNS: &'static [Column] = &[
        Column::always("NAME"),
        Column::always("VALUE"),
        Column::always("FROM"),
        Column::always("CHANGED"),
        Column::wide("IN DOCUMENT"),
        Column::wide("EPHEMERAL"),
    ];

    fn cells(&self, now: Timestamp) -> Vec<TableCell> {
        let from = match (&self.written_by, self.written, &self.data) {
            (Some(job), ..) => format!("job {job}"),
            (None, true, _) => "a person".to_owned(),
            (None, false, Some(_)) => "the document".to_owned(),
            (None, false, None) => String::new(),
        };
        vec![
            self.name.as_str().into(),
            self.data.as_ref().map_or(String::new(), |value| shortened(&value.to_string())).into(),
            from.into(),
            human::age(&self.change_time, now).into(),
            if self.in_document { "yes" } else { "no" }.into(),
            if self.is_ephemeral { "yes" } else { "no" }.into(),
        ]
    }
}

/// Long values are cut in tables; `torc user-data get` prints them whole.
fn shortened(text: &str) -> String {
    const MOST: usize = 60;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
