//! Reports of attempts that have ended.

use torc_api::state::{Cause, JobState};
use torc_api::wire::{AttemptKey, FinishedAttempt};

use super::workflow::LiveWorkflow;
use crate::failure::exit_codes;
use crate::ids::{Now, RunnerId};
use crate::rows::ResultRow;
use crate::time::before;

/// Returns a report for a lost attempt, in place of the one that its runner cannot send.
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

/// Returns the cause of a failed attempt; none if the attempt succeeded.
pub(super) fn cause_of(finished: &FinishedAttempt) -> Option<Cause> {
    finished.cause.or_else(|| (finished.return_code != 0).then_some(Cause::ExitCode))
}

/// The fields of a result that the engine decides. The runner reports the others.
#[derive(Clone, Copy, Debug)]
pub(super) struct AttemptRecord {
    pub run: i32,
    pub attempt: i32,
    pub state: JobState,
    pub cause: Option<Cause>,
    pub runner: Option<RunnerId>,
}

impl LiveWorkflow {
    /// Returns the record of an attempt that has ended.
    pub(super) fn result_row(
        &self,
        job: u32,
        finished: &FinishedAttempt,
        record: AttemptRecord,
        now: Now,
    ) -> ResultRow {
        let ended_ms = before(now.wall_ms, finished.ended_ms_ago);
        let AttemptRecord { run, attempt, state, cause, runner } = record;
        ResultRow {
            workflow: self.id(),
            job: self.graph.job(job).id(),
            run,
            attempt,
            state,
            return_code: finished.return_code,
            cause,
            message: finished.message.clone(),
            started_ms: before(ended_ms, finished.duration_ms),
            ended_ms,
            runner,
            stdout: finished.stdout.clone(),
            stderr: finished.stderr.clone(),
            usage: finished.usage.unwrap_or_default(),
        }
    }
}
