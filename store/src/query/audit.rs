//! Who did what.

use sqlx::{FromRow, QueryBuilder, SqliteConnection};
use torc_api::api::Page;
use torc_core::rows::AuditRow;

use super::{page, push_limit};
use crate::error::Failure;

/// Which deeds, in the order in which they were done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditQuery {
    /// Of this person.
    pub who: Option<String>,
    /// After this sequence number; a page's `next` is one.
    pub after: i64,
    /// How many at most; 0 for 1,000.
    pub limit: u32,
}

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

/// Lists deeds, each with its number.
pub(crate) async fn list(
    connection: &mut SqliteConnection,
    query: &AuditQuery,
) -> Result<Page<(i64, AuditRow)>, Failure> {
    let mut sql = QueryBuilder::new("select * from audit where sequence > ");
    sql.push_bind(query.after);
    if let Some(who) = &query.who {
        sql.push(" and who = ").push_bind(who.clone());
    }
    sql.push(" order by sequence");
    push_limit(&mut sql, query.limit);
    let records: Vec<AuditRecord> = sql.build_query_as().fetch_all(connection).await?;
    let rows = records.into_iter().map(|record| {
        let AuditRecord { sequence, time_ms, who, scope, verb, object, outcome } = record;
        (sequence, AuditRow { time_ms, who, scope, verb, object, outcome })
    });
    Ok(page(rows.collect(), query.limit, |(sequence, _)| sequence.to_string()))
}
