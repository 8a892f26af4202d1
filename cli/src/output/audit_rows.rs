//! Columns of the audit.

use jiff::Timestamp;
use torc_api::api::AuditEntry;

use super::table::{Column, Paint, TableCell, Tabular};

impl Tabular for AuditEntry {
    const COLUMNS: &'static [Column] = &[
        Column::always("TIME"),
        Column::always("WHO"),
        Column::always("SCOPE"),
        Column::always("VERB"),
        Column::always("OBJECT"),
        Column::always("OUTCOME"),
    ];

    fn cells(&self, _: Timestamp) -> Vec<TableCell> {
        let paint = if self.outcome == "ok" { Paint::Plain } else { Paint::Bad };
        vec![
            self.time.as_str().into(),
            self.who.as_str().into(),
            self.scope.as_str().into(),
            self.verb.as_str().into(),
            self.object.as_str().into(),
            TableCell::painted(&self.outcome, paint),
        ]
    }
}
