//! Runners, including those that have left.

use sqlx::{QueryBuilder, SqliteConnection};
use torc_api::filter::RunnerFilter;
use torc_core::rows::RunnerRow;

use crate::error::Failure;
use crate::records::RunnerRecord;

/// Lists runners.
pub(crate) async fn list(connection: &mut SqliteConnection, filter: RunnerFilter) -> Result<Vec<RunnerRow>, Failure> {
    let mut sql = QueryBuilder::new("select * from runners");
    if !filter.all {
        sql.push(" where ended_ms is null");
    }
    sql.push(" order by id");
    let records: Vec<RunnerRecord> = sql.build_query_as().fetch_all(connection).await?;
    records.into_iter().map(RunnerRow::try_from).collect()
}
