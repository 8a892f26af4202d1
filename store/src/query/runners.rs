//! Runners, those that left too.

use sqlx::{QueryBuilder, SqliteConnection};
use torc_api::api::Page;
use torc_core::rows::RunnerRow;

use super::{page, parse_cursor, push_limit};
use crate::error::Failure;
use crate::records::RunnerRecord;

/// Which runners, in the order of their registration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunnerQuery {
    /// Only those that have not left.
    pub active_only: bool,
    /// After the page that ended here.
    pub cursor: Option<String>,
    /// How many at most; 0 for 1,000.
    pub limit: u32,
}

/// Lists runners.
pub(crate) async fn list(connection: &mut SqliteConnection, query: &RunnerQuery) -> Result<Page<RunnerRow>, Failure> {
    let mut sql = QueryBuilder::new("select * from runners where true");
    if let Some(cursor) = &query.cursor {
        let [after] = parse_cursor(cursor)?;
        sql.push(" and id > ").push_bind(after);
    }
    if query.active_only {
        sql.push(" and ended_ms is null");
    }
    sql.push(" order by id");
    push_limit(&mut sql, query.limit);
    let records: Vec<RunnerRecord> = sql.build_query_as().fetch_all(connection).await?;
    let rows: Result<Vec<RunnerRow>, Failure> = records.into_iter().map(RunnerRow::try_from).collect();
    Ok(page(rows?, query.limit, |row| row.id.to_string()))
}
