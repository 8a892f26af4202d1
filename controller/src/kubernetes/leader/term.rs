//! Whether to take a lease, by one's own clock. Pure.

use std::time::Duration;

/// How long a lease lasts that is not renewed.
pub(super) const LEASE_SECONDS: i32 = 15;
/// Between two attempts.
pub(super) const RETRY: Duration = Duration::from_secs(2);

/// What a lease says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Who has it; empty when it was given back.
    pub holder: String,
    /// How often it has changed hands.
    pub transitions: i64,
    /// How long it lasts.
    pub seconds: i32,
}

/// What to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It is ours already.
    Renew,
    /// Nobody has it any more.
    Take,
    /// Somebody has it.
    Wait,
}

/// Decides. `age_ms` is how long ago, by our own clock, it was last seen to change: the times in it are of other clocks.
pub(super) fn step(record: Option<&Record>, me: &str, age_ms: u64) -> Step {
    match record {
        None => Step::Take,
        Some(record) if record.holder == me => Step::Renew,
        Some(record) if record.holder.is_empty() => Step::Take,
        // Our own Pod had it: a container starts only after the one before it has ended.
        Some(record) if who(&record.holder) == who(me) => Step::Take,
        Some(record) if age_ms > u64::from(record.seconds.max(1).unsigned_abs()) * 1_000 => Step::Take,
        Some(_) => Step::Wait,
    }
}

/// Whose an identity is, without what tells its processes apart.
pub(super) fn who(identity: &str) -> &str {
    identity.rsplit_once('_').map_or(identity, |(who, _)| who)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leadership::RENEW_WITHIN;

    #[test]
    fn who_takes_a_lease() {
        let record = |holder: &str, seconds| Record { holder: holder.to_owned(), transitions: 3, seconds };
        for (seen, age_ms, expected) in [
            (None, 0, Step::Take),
            (Some(record("", 15)), 0, Step::Take),
            (Some(record("other", 15)), 0, Step::Wait),
            (Some(record("other", 15)), 15_000, Step::Wait),
            (Some(record("other", 15)), 15_001, Step::Take),
            (Some(record("other", 0)), 500, Step::Wait),
            (Some(record("other", -5)), 1_001, Step::Take),
            (Some(record("me_1", 15)), 60_000, Step::Renew),
            (Some(record("me_0", 15)), 0, Step::Take),
            (Some(record("me_too_1", 15)), 0, Step::Wait),
            (Some(record("m_1", 15)), 0, Step::Wait),
        ] {
            assert_eq!(step(seen.as_ref(), "me_1", age_ms), expected, "{seen:?} after {age_ms} ms");
        }
    }

    #[test]
    fn a_leader_stops_believing_before_another_one_starts() {
        assert!(RENEW_WITHIN + RETRY < Duration::from_secs(u64::from(LEASE_SECONDS.unsigned_abs())));
    }

    #[test]
    fn a_lease_lasts_as_long_as_it_says_and_is_tried_for_often() {
        let record = |seconds| Record { holder: "other_1".to_owned(), transitions: 3, seconds };
        for (seconds, age_ms, expected) in [
            (1, 1_000, Step::Wait),
            (1, 1_001, Step::Take),
            (20, 15_001, Step::Wait),
            (20, 20_000, Step::Wait),
            (20, 20_001, Step::Take),
            (0, 1_000, Step::Wait),
            (0, 1_001, Step::Take),
        ] {
            assert_eq!(step(Some(&record(seconds)), "me_1", age_ms), expected, "{seconds} s after {age_ms} ms");
        }
        assert!(RETRY * 3 <= RENEW_WITHIN, "a leader may miss two renewals");
        assert_eq!([who("a_b_c"), who("a"), who("a_")], ["a_b", "a", "a"]);
    }
}
