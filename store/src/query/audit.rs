//! Queries of the audit log.

use sqlx::{FromRow, QueryBuilder, SqliteConnection};
use torc_api::api::Page;
use torc_api::filter::AuditFilter;
use torc_core::rows::AuditRow;

use super::{page, parse_cursor, push_limit};
use crate::error::QueryError;

#[derive(FromRow)]
struct AuditRecord {
    sequence: i64,
    time_ms: i64,
    who: String,
    scope: String,
    verb: String,
    object: String,
    outcome: String,
}

/// Lists entries, each with its sequence number.
pub(crate) async fn list(
    connection: &mut SqliteConnection,
    filter: &AuditFilter,
) -> Result<Page<(i64, AuditRow)>, QueryError> {
    let mut sql = QueryBuilder::new("select * from audit where true");
    if let Some(cursor) = &filter.cursor {
        let [after] = parse_cursor(cursor)?;
        sql.push(" and sequence > ").push_bind(after);
    }
    if let Some(who) = &filter.who {
        sql.push(" and who = ").push_bind(who.clone());
    }
    sql.push(" order by sequence");
    push_limit(&mut sql, filter.limit);
    let records: Vec<AuditRecord> = sql.build_query_as().fetch_all(connection).await?;
    let rows = records.into_iter().map(|record| {
        let AuditRecord { sequence, time_ms, who, scope, verb, object, outcome } = record;
        (sequence, AuditRow { time_ms, who, scope, verb, object, outcome })
    });
    Ok(page(rows.collect(), filter.limit, |(sequence, _)| sequence.to_string()))
}
