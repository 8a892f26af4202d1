//! The time to live of a finished object (`ttlSecondsAfterFinished`).

/// The time to live of a finished object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lifetime {
    /// The object is never deleted automatically.
    Unlimited,
    /// The object will be deleted.
    Ends {
        /// Seconds from now; at least 1.
        seconds: i64,
    },
    /// The object is due for deletion.
    Over,
}

/// Returns the time to live of a workflow that ended at `completed`. All times are in seconds since 1970.
pub(super) fn lifetime(ttl_seconds: Option<i32>, completed: Option<i64>, now: i64) -> Lifetime {
    match ttl_seconds.zip(completed) {
        None => Lifetime::Unlimited,
        Some((ttl, completed)) => match completed.saturating_add(i64::from(ttl)) - now {
            seconds @ 1.. => Lifetime::Ends { seconds },
            _ => Lifetime::Over,
        },
    }
}

/// Returns whether an object is deleted because its time to live is over: then the store keeps the workflow. A user who deletes
/// the object earlier wants to delete the workflow as well.
pub(super) fn leaves_archive(ttl_seconds: Option<i32>, completed: Option<i64>, deleted: i64) -> bool {
    lifetime(ttl_seconds, completed, deleted) == Lifetime::Over
}

/// Returns a time of a status in seconds since 1970.
pub(super) fn seconds(time: &str) -> Option<i64> {
    time.parse::<k8s_openapi::jiff::Timestamp>().ok().map(|time| time.as_second())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes() {
        for (ttl, completed, now, expected) in [
            (None, Some(100), 1_000, Lifetime::Unlimited),
            (Some(0), None, 1_000, Lifetime::Unlimited),
            (Some(0), Some(100), 100, Lifetime::Over),
            (Some(60), Some(100), 100, Lifetime::Ends { seconds: 60 }),
            (Some(60), Some(100), 159, Lifetime::Ends { seconds: 1 }),
            (Some(60), Some(100), 160, Lifetime::Over),
        ] {
            assert_eq!(lifetime(ttl, completed, now), expected, "{ttl:?} {completed:?} {now}");
        }
        assert!(leaves_archive(Some(60), Some(100), 160) && !leaves_archive(Some(60), Some(100), 120));
        assert!(!leaves_archive(None, Some(100), 160), "a user deleted it");
    }

    #[test]
    fn an_archive_is_left_from_the_second_at_which_the_time_is_over() {
        for (ttl, completed, deleted, expected) in [
            (Some(60), Some(100), 159, false),
            (Some(60), Some(100), 160, true),
            (Some(60), Some(100), 161, true),
            (Some(0), Some(100), 100, true),
            (Some(60), None, 9_999, false),
            (None, Some(100), 9_999, false),
        ] {
            assert_eq!(leaves_archive(ttl, completed, deleted), expected, "{ttl:?} {completed:?} {deleted}");
        }
        assert_eq!(lifetime(Some(i32::MAX), Some(i64::MAX), 0), Lifetime::Ends { seconds: i64::MAX });
    }
}
