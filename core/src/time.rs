//! Points in time as people and documents read them.

use jiff::Timestamp;

/// Milliseconds since 1970 as RFC 3339 in UTC, e.g. `2026-11-16T08:00:00.25Z`. Beyond the year 9999 it is the last moment of it.
pub fn rfc3339(ms: i64) -> String {
    let limit = if ms < 0 { Timestamp::MIN } else { Timestamp::MAX };
    Timestamp::from_millisecond(ms).unwrap_or(limit).to_string()
}
