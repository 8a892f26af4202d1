//! Statements over many rows at once, with `values` and a placeholder for every field.
//!
//! A driver call costs about 10 µs, so many rows share one. Compared with a JSON array as the only argument, placeholders take a
//! third of the time, because SQLite need not parse. Statements exist in a few sizes, so that they stay prepared. Unused
//! placeholders of the last statement are null, and the statement skips such rows.

use std::sync::Arc;

use sqlx::sqlite::SqliteArguments;
use sqlx::{Arguments, AssertSqlSafe, Encode, Sqlite, SqliteConnection, Type};

/// Numbers of rows for which there are statements.
const SIZES: [usize; 5] = [1, 4, 16, 64, 256];
const MAX_ROWS: usize = SIZES[SIZES.len() - 1];

/// A statement over a table `(values …)`, whose columns SQLite names `column1`, `column2`, …
pub(crate) struct BulkStatement {
    columns: usize,
    texts: [Arc<str>; SIZES.len()],
}

impl BulkStatement {
    /// Returns a statement. `text` contains `$rows` in place of the table.
    pub(crate) fn new(columns: usize, text: &str) -> Self {
        let row = format!("({})", vec!["?"; columns].join(","));
        let texts = SIZES.map(|size| {
            let rows = format!("(values {})", vec![row.as_str(); size].join(","));
            Arc::from(text.replace("$rows", &rows))
        });
        Self { columns, texts }
    }

    /// Runs the statement for all rows, in their order. `bind` adds the fields of one row.
    pub(crate) async fn run<R>(
        &self,
        connection: &mut SqliteConnection,
        rows: &[R],
        bind: impl Fn(&R, &mut RowBinder) -> Result<(), sqlx::Error>,
    ) -> Result<(), sqlx::Error> {
        for chunk in rows.chunks(MAX_ROWS) {
            let Some((_, text)) = SIZES.iter().zip(&self.texts).find(|(size, _)| **size >= chunk.len()) else { break };
            let mut binder = RowBinder(SqliteArguments::default());
            binder.0.reserve(chunk.len() * self.columns, 0);
            for row in chunk {
                bind(row, &mut binder)?;
            }
            debug_assert_eq!(binder.0.len(), chunk.len() * self.columns, "{text}");
            sqlx::query_with(AssertSqlSafe(text.clone()), binder.0).execute(&mut *connection).await?;
        }
        Ok(())
    }
}

/// Binds the fields of rows, one after the other.
pub(crate) struct RowBinder(SqliteArguments);

impl RowBinder {
    /// Adds the next field.
    pub(crate) fn add<'t>(&mut self, value: impl Encode<'t, Sqlite> + Type<Sqlite>) -> Result<&mut Self, sqlx::Error> {
        self.0.add(value).map_err(sqlx::Error::Encode)?;
        Ok(self)
    }
}
