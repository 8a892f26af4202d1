//! Reports on a job's attempts: the end of each, the evidence, and the reason for the next one.

use torc_api::explain::AttemptReport;
use torc_api::quantity::{format_bytes, format_duration};
use torc_api::state::{Cause, JobState};

use super::failure;
use crate::expanded::Requirements;
use crate::failure::{Evidence, diagnose};
use crate::rows::ResultRow;
use crate::time::rfc3339;

/// An attempt that has ended.
#[derive(Clone, Copy, Debug)]
pub struct EndedAttempt<'a> {
    /// The record that the store keeps of it.
    pub result: &'a ResultRow,
    /// The host it ran on.
    pub node: Option<&'a str>,
}

/// Reports on each attempt. `needs` are the present requirements; an earlier attempt may have had lower ones.
pub fn attempt_reports(attempts: &[EndedAttempt<'_>], needs: &Requirements, is_over: bool) -> Vec<AttemptReport> {
    let later = attempts.iter().skip(1).map(Some).chain(std::iter::once(None));
    attempts.iter().zip(later).map(|(attempt, next)| attempt_report(attempt, next, needs, is_over)).collect()
}

fn attempt_report(
    attempt: &EndedAttempt<'_>,
    next: Option<&EndedAttempt<'_>>,
    needs: &Requirements,
    is_over: bool,
) -> AttemptReport {
    let row = attempt.result;
    let run_ms = (row.ended_ms - row.started_ms).max(0);
    let peak = row.usage.peak_memory_bytes;
    let evidence = Evidence::of_result(needs, Some(row));
    let diagnosis = row.cause.map(|_| diagnose(&evidence));
    let is_followed = next.is_some() || !is_over;
    AttemptReport {
        run_id: row.run,
        attempt: row.attempt,
        status: row.state,
        return_code: Some(row.return_code),
        cause: row.cause,
        diagnosis,
        end_time: rfc3339(row.ended_ms),
        duration_seconds: run_ms as f64 / 1_000.0,
        node: attempt.node.map(str::to_owned),
        peak_memory_bytes: peak,
        evidence: evidence_lines(row, diagnosis, needs, run_ms / 1_000, is_followed),
        stderr: row.stderr.clone(),
        stderr_tail: Vec::new(),
        then: is_followed.then(|| retry_reason(row, next, diagnosis)).flatten(),
    }
}

/// Returns the evidence about the end of an attempt.
fn evidence_lines(
    row: &ResultRow,
    diagnosis: Option<Cause>,
    needs: &Requirements,
    run_seconds: i64,
    is_followed: bool,
) -> Vec<String> {
    let Some(cause) = diagnosis else { return Vec::new() };
    let mut said = vec![failure(cause, row.return_code)];
    if row.cause.is_some_and(|found| found != cause) {
        said.push(format!("it was reported as {}, but the measurements indicate {cause}", row.cause.unwrap_or(cause)));
    }
    said.extend(row.message.clone());
    // The requirements of earlier attempts are not stored. Recovery or the user may have raised them since.
    let now = if is_followed { " now" } else { "" };
    if let Some(peak) = row.usage.peak_memory_bytes.filter(|peak| *peak > 0) {
        // The job was killed before its peak was measured.
        let is_missed = cause == Cause::OutOfMemory && peak < needs.memory_bytes;
        let missed = if is_missed { " when it was last measured" } else { "" };
        let (peak, limit) = (format_bytes(peak), format_bytes(needs.memory_bytes));
        said.push(format!("its peak memory was {peak}{missed}; it requests {limit}{now}"));
    }
    if cause == Cause::Timeout {
        let (ran, asked) = (format_duration(run_seconds), format_duration(needs.runtime_seconds));
        said.push(format!("it ran for {ran}; it requests {asked}{now}"));
    }
    said
}

/// Returns the reason for the next attempt.
fn retry_reason(row: &ResultRow, next: Option<&EndedAttempt<'_>>, diagnosis: Option<Cause>) -> Option<String> {
    if let Some(next) = next
        && next.result.run != row.run
    {
        return Some(format!("run {} was started", next.result.run));
    }
    let sentence = match diagnosis.or(row.cause) {
        None if row.state == JobState::Completed => {
            "it ran again because it, its inputs or a dependency changed or ran again"
        }
        Some(cause) if cause.is_loss() => "it was retried: the job did not cause the failure",
        Some(Cause::Stopped) => "it was retried: its runner had been stopped",
        Some(Cause::OutOfMemory) => "it was retried, with more memory if recovery or a user raised it",
        Some(Cause::Timeout) => "it was retried, with more time if recovery or a user raised it",
        Some(Cause::Canceled) => "it was reset to run again",
        Some(_) => "it was retried by a failure handler, the recovery policy or a user",
        None => return None,
    };
    Some(sentence.to_owned())
}
