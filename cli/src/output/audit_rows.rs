//! Columns of the audit log.

use torc_api::api::AuditEntry;

use super::table::{CellStyle, Column, TableCell, Tabular};

impl Tabular for AuditEntry {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::always("TIME", |row, _| row.time.as_str().into()),
        Column::always("WHO", |row, _| row.who.as_str().into()),
        Column::always("SCOPE", |row, _| row.scope.as_str().into()),
        Column::always("VERB", |row, _| row.verb.as_str().into()),
        Column::always("OBJECT", |row, _| row.object.as_str().into()),
        Column::always("OUTCOME", |row, _| {
            TableCell::styled(&row.outcome, if row.outcome == "ok" { CellStyle::Plain } else { CellStyle::Bad })
        }),
    ];
}
