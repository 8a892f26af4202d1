//! Runners, including those that have left.

use sqlx::{QueryBuilder, SqliteConnection};
use torc_api::filter::RunnerFilter;
use torc_core::rows::RunnerRow;

use crate::error::QueryError;
use crate::records::rows_from_json;

pub(crate) async fn list(
    connection: &mut SqliteConnection,
    filter: RunnerFilter,
) -> Result<Vec<RunnerRow>, QueryError> {
    let mut sql = QueryBuilder::new("select data from runners");
    if !filter.all {
        sql.push(" where ended_ms is null");
    }
    sql.push(" order by id");
    let texts: Vec<String> = sql.build_query_scalar().fetch_all(connection).await?;
    rows_from_json("runner", &texts)
}
