//! Reports of attempts that have ended.

use torc_api::state::Cause;
use torc_api::wire::{AttemptKey, FinishedAttempt};

use crate::failure::exit_codes;
use crate::ids::Now;

/// Returns the report of a lost attempt, which its runner cannot make.
pub(super) fn lost_attempt(key: AttemptKey, started_ms: Option<i64>, message: &str, now: Now) -> FinishedAttempt {
    let elapsed = started_ms.map_or(0, |started| (now.wall_ms - started).max(0));
    FinishedAttempt {
        key,
        return_code: exit_codes::LOST,
        cause: Some(Cause::Lost),
        duration_ms: elapsed.unsigned_abs(),
        message: Some(message.to_owned()),
        ..FinishedAttempt::default()
    }
}

/// Returns the time `ms` before another one. `ms` comes from a runner, so it may be absurdly large.
pub(super) fn before(now_ms: i64, ms: u64) -> i64 {
    now_ms.saturating_sub(i64::try_from(ms).unwrap_or(i64::MAX))
}

/// Returns why an attempt failed; none if it succeeded.
pub(super) fn cause_of(finished: &FinishedAttempt) -> Option<Cause> {
    finished.cause.or_else(|| (finished.return_code != 0).then_some(Cause::ExitCode))
}
