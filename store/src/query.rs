//! Lists: filtered, in a fixed order, a page at a time.
//!
//! A cursor is the key of the last row of a page, so that new rows neither shift nor repeat others.

pub mod allocations;
pub mod audit;
pub mod data;
pub mod events;
pub mod jobs;
pub mod results;
pub mod runners;
pub mod slurm_stats;

use sqlx::{QueryBuilder, Sqlite};
use torc_api::api::Page;
use torc_api::state::JobState;

use crate::error::QueryError;

/// Rows of a page without a limit.
const DEFAULT_LIMIT: u32 = 1_000;
/// Maximum number of rows of a page.
const MAX_LIMIT: u32 = 10_000;

/// Returns the number of rows of a page.
fn page_size(limit: Option<u32>) -> usize {
    let limit = limit.filter(|limit| *limit > 0).unwrap_or(DEFAULT_LIMIT).min(MAX_LIMIT);
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// Limits a query to one row more than the page has: the extra row shows that there is a next page.
fn push_limit(query: &mut QueryBuilder<Sqlite>, limit: Option<u32>) {
    query.push(" limit ").push(page_size(limit) + 1);
}

/// Returns the page for the rows of a limited query.
fn page<T>(mut items: Vec<T>, limit: Option<u32>, cursor: impl Fn(&T) -> String) -> Page<T> {
    let size = page_size(limit);
    let has_more = items.len() > size;
    items.truncate(size);
    let next = if has_more { items.last().map(cursor) } else { None };
    Page { items, next }
}

/// Returns the numbers of a cursor.
fn parse_cursor<const N: usize>(cursor: &str) -> Result<[i64; N], QueryError> {
    let numbers: Result<Vec<i64>, _> = cursor.split('.').map(str::parse).collect();
    numbers.ok().and_then(|numbers| numbers.try_into().ok()).ok_or_else(|| QueryError::Cursor(cursor.to_owned()))
}

/// Adds `column in (…)`, or nothing without states.
fn push_states(query: &mut QueryBuilder<Sqlite>, column: &str, states: &[JobState]) {
    if states.is_empty() {
        return;
    }
    query.push(" and ").push(column).push(" in (");
    let mut list = query.separated(", ");
    for state in states {
        list.push(state.code());
    }
    query.push(")");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_1000_rows_unless_asked_and_10000_at_most() {
        for (asked, rows) in [
            (0, 1_000),
            (1, 1),
            (999, 999),
            (1_001, 1_001),
            (9_999, 9_999),
            (10_000, 10_000),
            (10_001, 10_000),
            (u32::MAX, 10_000),
        ] {
            assert_eq!(page_size(Some(asked)), rows, "{asked}");
        }
    }

    #[test]
    fn a_next_page_is_named_only_if_there_is_one() {
        for (found, kept, next) in [(0, 0, None), (2, 2, None), (3, 3, None), (4, 3, Some("2")), (9, 3, Some("2"))] {
            let page = page((0..found).collect(), Some(3), |item: &usize| item.to_string());
            assert_eq!(page.items, (0..kept).collect::<Vec<_>>(), "{found}");
            assert_eq!(page.next.as_deref(), next, "{found}");
        }
    }

    #[test]
    fn cursors_are_numbers_between_dots() {
        assert!(matches!(parse_cursor::<1>("17"), Ok([17])));
        assert!(matches!(parse_cursor::<3>("1.-2.3"), Ok([1, -2, 3])));
        for cursor in ["", "x", "1.2", "1.2.3.4", "1.2.x", "1..3", " 1.2.3", "1.2.9223372036854775808"] {
            let refused = parse_cursor::<3>(cursor);
            assert!(matches!(&refused, Err(QueryError::Cursor(told)) if told == cursor), "{cursor}: {refused:?}");
        }
    }
}
