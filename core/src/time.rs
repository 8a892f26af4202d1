//! Times as RFC 3339 texts, and arithmetic on them.

use jiff::Timestamp;

/// Formats milliseconds since 1970 as RFC 3339 in UTC, e.g. `2026-11-16T08:00:00.250Z`. All texts have the same
/// length, so they sort as their times do. Times beyond the year 9999 become its last moment.
pub fn rfc3339(ms: i64) -> String {
    let limit = if ms < 0 { Timestamp::MIN } else { Timestamp::MAX };
    format!("{:.3}", Timestamp::from_millisecond(ms).unwrap_or(limit))
}

/// Returns the time `ms` before another one. `ms` comes from a runner, so it may be absurdly large.
pub(crate) fn before(now_ms: i64, ms: u64) -> i64 {
    now_ms.saturating_sub(i64::try_from(ms).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::rfc3339;

    #[test]
    fn texts_sort_as_times_do() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(1_794_816_000_250), "2026-11-16T08:00:00.250Z");
        assert_eq!(rfc3339(-1), "1969-12-31T23:59:59.999Z");
        assert!(rfc3339(i64::MAX).starts_with("9999-12-30"));
        let times: Vec<String> = (0..5_000).step_by(7).map(rfc3339).collect();
        assert!(times.is_sorted());
    }
}
