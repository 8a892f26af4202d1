//! Decides when to take a lease, by the local clock.

use std::time::Duration;

/// Duration of a lease that is not renewed.
pub(super) const LEASE_SECONDS: i32 = 15;
/// Interval between attempts and renewals.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// The content of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LeaseRecord {
    /// The holder; empty when the lease was released.
    pub holder: String,
    /// The number of changes of the holder.
    pub transitions: i64,
    pub seconds: i32,
}

/// The next step of a candidate or a leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseStep {
    /// Renew the lease: this process holds it.
    Renew,
    /// Take the lease: it was released or has expired.
    Take,
    /// Wait: another server holds it.
    Wait,
}

/// Decides the next step. `age_ms` is the local time since the lease last changed: the times in it are of other clocks.
pub(super) fn decide(record: Option<&LeaseRecord>, me: &str, age_ms: u64) -> LeaseStep {
    match record {
        None => LeaseStep::Take,
        Some(record) if record.holder == me => LeaseStep::Renew,
        Some(record) if record.holder.is_empty() => LeaseStep::Take,
        // The lease belongs to an earlier container of this Pod, which has ended before this one started.
        Some(record) if server_part(&record.holder) == server_part(me) => LeaseStep::Take,
        Some(record) if age_ms > u64::from(record.seconds.max(1).unsigned_abs()) * 1_000 => LeaseStep::Take,
        Some(_) => LeaseStep::Wait,
    }
}

/// Returns the part of an identity that all processes of one server share.
pub(super) fn server_part(identity: &str) -> &str {
    identity.rsplit_once('_').map_or(identity, |(who, _)| who)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leadership::RENEWAL_TIMEOUT;

    #[test]
    fn who_takes_a_lease() {
        let record = |holder: &str, seconds| LeaseRecord { holder: holder.to_owned(), transitions: 3, seconds };
        for (seen, age_ms, expected) in [
            (None, 0, LeaseStep::Take),
            (Some(record("", 15)), 0, LeaseStep::Take),
            (Some(record("other", 15)), 0, LeaseStep::Wait),
            (Some(record("other", 15)), 15_000, LeaseStep::Wait),
            (Some(record("other", 15)), 15_001, LeaseStep::Take),
            (Some(record("other", 0)), 500, LeaseStep::Wait),
            (Some(record("other", -5)), 1_001, LeaseStep::Take),
            (Some(record("me_1", 15)), 60_000, LeaseStep::Renew),
            (Some(record("me_0", 15)), 0, LeaseStep::Take),
            (Some(record("me_too_1", 15)), 0, LeaseStep::Wait),
            (Some(record("m_1", 15)), 0, LeaseStep::Wait),
        ] {
            assert_eq!(decide(seen.as_ref(), "me_1", age_ms), expected, "{seen:?} after {age_ms} ms");
        }
    }

    #[test]
    fn a_leader_stops_believing_before_another_one_starts() {
        assert!(RENEWAL_TIMEOUT + RETRY_INTERVAL < Duration::from_secs(u64::from(LEASE_SECONDS.unsigned_abs())));
    }

    #[test]
    fn a_lease_lasts_as_long_as_it_says_and_is_tried_for_often() {
        let record = |seconds| LeaseRecord { holder: "other_1".to_owned(), transitions: 3, seconds };
        for (seconds, age_ms, expected) in [
            (1, 1_000, LeaseStep::Wait),
            (1, 1_001, LeaseStep::Take),
            (20, 15_001, LeaseStep::Wait),
            (20, 20_000, LeaseStep::Wait),
            (20, 20_001, LeaseStep::Take),
            (0, 1_000, LeaseStep::Wait),
            (0, 1_001, LeaseStep::Take),
        ] {
            assert_eq!(decide(Some(&record(seconds)), "me_1", age_ms), expected, "{seconds} s after {age_ms} ms");
        }
        assert!(RETRY_INTERVAL * 3 <= RENEWAL_TIMEOUT, "a leader may miss two renewals");
        assert_eq!([server_part("a_b_c"), server_part("a"), server_part("a_")], ["a_b", "a", "a"]);
    }
}
