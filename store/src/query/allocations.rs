//! Slurm allocations, including those that have ended.

use sqlx::{QueryBuilder, SqliteConnection};
use torc_api::api::Page;
use torc_api::filter::AllocationFilter;
use torc_core::rows::AllocationRow;

use super::{page, parse_cursor, push_limit};
use crate::error::QueryError;
use crate::records::rows_from_json;

/// Lists allocations, a page at a time.
pub(crate) async fn list(
    connection: &mut SqliteConnection,
    filter: &AllocationFilter<i64>,
) -> Result<Page<AllocationRow>, QueryError> {
    let mut sql = QueryBuilder::new("select data from allocations where true");
    if let Some(workflow) = filter.workflow {
        sql.push(" and workflow = ").push_bind(workflow);
    }
    if filter.live {
        sql.push(" and status in ('pending', 'active')");
    }
    if let Some(cursor) = &filter.cursor {
        let [after] = parse_cursor(cursor)?;
        sql.push(" and id > ").push_bind(after);
    }
    sql.push(" order by id");
    push_limit(&mut sql, filter.limit);
    let texts: Vec<String> = sql.build_query_scalar().fetch_all(connection).await?;
    Ok(page(rows_from_json("allocation", &texts)?, filter.limit, |row: &AllocationRow| row.id.to_string()))
}
