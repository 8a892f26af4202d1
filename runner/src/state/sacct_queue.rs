//! Accounting data of steps that have ended, which Slurm records with a delay. The runner reports a success at once and
//! adds the data later. The report of a failure waits, because only the accounting knows whether memory, time or a node
//! was the cause.
//!
//! One query covers all steps that have ended since the last one.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use torc_api::slurm::SlurmState;
use torc_api::slurm_stats::SlurmStats;
use torc_api::state::Cause;
use torc_api::wire::{AttemptKey, FinishedAttempt};
use torc_core::accounting::complete;
use torc_slurm::error::SlurmError;
use torc_slurm::retry::SACCT_RETRIES;
use torc_slurm::sacct::StepAccount;
use torc_slurm::step_failure;

use super::node_health::StepFailure;
use super::timer::Timer;
use super::{Effect, State};
use crate::clock::BootInstant;
use crate::protocol::{StartTemplate, StopReason};
use crate::series::{Measurement, MeasurementRecord};
use crate::slurm_query::SlurmQuery;

/// Delay before a success is looked up: the accounting rarely has it at once, and one query then covers several steps.
const BATCH_DELAY: Duration = Duration::from_secs(1);
/// The interval between two queries is at least this multiple of the duration of the last one, to spare the accounting.
const QUERY_SPACING: u32 = 10;
/// Number of steps that one query names, because a command line has a limit. For more, the query lists all steps.
const MAX_NAMED_STEPS: usize = 1_000;
/// A step that failed within this time before the runner was stopped is considered stopped, too.
const SHUTDOWN_WINDOW: Duration = Duration::from_secs(10);
/// Number of sacct queries for which the report of a step that ran out of memory waits for its memory peak.
const OOM_PEAK_TRIES: u32 = 2;

/// The exit code of a job that SIGTERM has ended: 128 + 15.
pub(super) const TERMINATED: i32 = 143;

/// Steps that wait for their accounting data.
#[derive(Debug, Default)]
pub(super) struct SacctQueue {
    /// Steps whose data is not complete.
    pending: BTreeMap<AttemptKey, PendingAccount>,
    /// Steps of the query in flight.
    queried: Option<Vec<AttemptKey>>,
    ask_at: BootInstant,
    /// True if this Slurm has no accounting.
    absent: bool,
    /// Data of attempts whose result the server has already.
    unreported: BTreeMap<AttemptKey, SlurmStats>,
}

/// A step that has ended.
#[derive(Debug)]
struct PendingAccount {
    number: Option<u32>,
    tries: u32,
    due: BootInstant,
    ended: BootInstant,
    /// True if the report waits for the cause of the failure.
    holds_report: bool,
    /// The row for the measurement file, which the data completes.
    record: Option<MeasurementRecord>,
    /// The account of a step that the accounting knows as ended, but without numbers.
    ended_account: Option<StepAccount>,
}

impl SacctQueue {
    /// Returns whether all data is complete.
    pub fn is_settled(&self) -> bool {
        self.pending.is_empty()
    }

    /// Returns data of attempts whose result the server has already.
    pub fn unreported(&self) -> &BTreeMap<AttemptKey, SlurmStats> {
        &self.unreported
    }

    #[cfg(test)]
    pub fn add_unreported(&mut self, key: AttemptKey) {
        self.unreported.insert(key, SlurmStats::default());
    }

    /// Removes data that the server has confirmed.
    pub fn remove_reported(&mut self, key: &AttemptKey) {
        self.unreported.remove(key);
    }

    /// Adds a step that has ended. Returns whether its report has to wait.
    pub fn add(
        &mut self,
        key: AttemptKey,
        number: Option<u32>,
        ended: BootInstant,
        failed: bool,
        now: BootInstant,
    ) -> bool {
        let holds_report = failed && !self.absent;
        let account = PendingAccount {
            number,
            tries: 0,
            due: if holds_report { now } else { now.plus(BATCH_DELAY) },
            ended,
            holds_report,
            record: None,
            ended_account: None,
        };
        self.pending.insert(key, account);
        holds_report
    }

    /// Keeps the row of a step until its data is complete.
    pub fn keep_until_complete(&mut self, key: AttemptKey, record: &MeasurementRecord) {
        if let Some(account) = self.pending.get_mut(&key) {
            account.record = Some(record.clone());
        }
    }

    /// Returns the query that is due, if none is in flight.
    fn next_query(&mut self, now: BootInstant, timer: &mut Timer) -> Option<SlurmQuery> {
        let due = self.pending.values().map(|account| account.due).min()?.max(self.ask_at);
        if self.queried.is_some() {
            return None;
        }
        if now < due {
            timer.set(due);
            return None;
        }
        let is_due = |(_, account): &(&AttemptKey, &PendingAccount)| account.due <= now;
        let numbers = named(self.pending.iter().filter(is_due).map(|(_, account)| account.number));
        self.queried = Some(self.pending.iter().filter(is_due).map(|(key, _)| *key).collect());
        Some(SlurmQuery::Accounts(numbers))
    }
}

impl State {
    /// Asks the accounting when a query is due. Without accounting the data counts as complete.
    pub(super) fn query_accounting(&mut self, now: BootInstant, effects: &mut Vec<Effect>) {
        // The answer about the allocation may contain the cause of a failure, too.
        if self.allocation.is_query_in_flight() {
            return;
        }
        if self.sacct.absent {
            for key in self.sacct.pending.keys().copied().collect::<Vec<_>>() {
                self.complete_account(key, None, now, effects);
            }
            return;
        }
        effects.extend(self.sacct.next_query(now, &mut self.timer).map(Effect::QuerySlurm));
    }

    /// Handles the answer of the accounting.
    pub(super) fn accounts_answered(
        &mut self,
        answer: Result<HashMap<String, StepAccount>, SlurmError>,
        took: Duration,
        now: BootInstant,
        effects: &mut Vec<Effect>,
    ) {
        let queried = self.sacct.queried.take().unwrap_or_default();
        self.sacct.ask_at = now.plus(SACCT_RETRIES.delay.max(took.saturating_mul(QUERY_SPACING)));
        let mut found = match answer {
            Ok(found) => found,
            Err(error) if is_absence(&error) => return self.sacct.absent = true,
            Err(_) => HashMap::new(),
        };
        for key in queried {
            // A step in an unknown state has ended, too: `srun` has returned.
            let has_ended = |account: &StepAccount| account.state.is_over() || account.state == SlurmState::Unknown;
            let account = found.remove(&key.label()).filter(has_ended);
            if account.is_none() && self.jobs.get(&key).is_some_and(|job| job.step.is_unknown_to_slurm()) {
                self.step_not_started(key, StepFailure::Controller, now, effects);
                self.complete_account(key, None, now, effects);
                continue;
            }
            let Some(pending) = self.sacct.pending.get_mut(&key) else { continue };
            pending.tries += 1;
            pending.due = now.plus(SACCT_RETRIES.delay);
            let is_last = pending.tries >= SACCT_RETRIES.tries;
            let code = self.reports.get(&key).map_or(0, |report| report.finished.return_code);
            let has_all =
                |account: &StepAccount| account.has_numbers() || step_failure::was_never_started(account, code);
            let is_settled = is_last || account.as_ref().is_some_and(has_all);
            if let Some(account) = account.as_ref().filter(|_| pending.holds_report) {
                // After an out-of-memory failure the next attempt gets more than this peak.
                let needs_peak = account.state == SlurmState::OutOfMemory && pending.tries < OOM_PEAK_TRIES;
                // The cause is known; the numbers may follow.
                pending.holds_report = is_settled || needs_peak;
                self.apply_account(key, account, now, effects);
                if !is_settled && !needs_peak {
                    self.finish_report(key, now, effects);
                }
            }
            if is_settled {
                self.complete_account(key, account, now, effects);
            } else if let Some(pending) = self.sacct.pending.get_mut(&key) {
                pending.ended_account = account;
            }
        }
    }

    /// Completes accounts without numbers, because the runner has nothing more to do. Slurm never measures very short steps: the
    /// allocation is not kept for their numbers.
    pub(super) fn complete_ended_accounts(&mut self, now: BootInstant, effects: &mut Vec<Effect>) {
        let ended = |(key, pending): (&AttemptKey, &PendingAccount)| Some((*key, pending.ended_account.clone()?));
        let ended: Vec<(AttemptKey, StepAccount)> = self.sacct.pending.iter().filter_map(ended).collect();
        for (key, account) in ended {
            self.complete_account(key, Some(account), now, effects);
        }
    }

    /// Completes the account of a step: its data goes to the server.
    fn complete_account(
        &mut self,
        key: AttemptKey,
        account: Option<StepAccount>,
        now: BootInstant,
        effects: &mut Vec<Effect>,
    ) {
        let Some(pending) = self.sacct.pending.remove(&key) else { return };
        let allocation = self.settings.allocation.as_ref().map_or("", |allocation| &allocation.job_id);
        let unknown = || SlurmStats {
            workflow: key.workflow,
            job: key.job,
            run: key.run,
            attempt: key.attempt,
            slurm_job_id: Some(allocation.to_owned()),
            step: Some(key.label()),
            ..SlurmStats::default()
        };
        let stats = account.map_or_else(unknown, |account| account.stats(key, allocation));
        effects.extend(pending.record.map(|record| Effect::Record(vec![completed(record, &stats)])));
        if let Some(finished) = self.reports.finished_mut(&key) {
            finished.slurm_stats = Some(Box::new(stats.clone()));
        }
        if pending.holds_report {
            self.finish_report(key, now, effects);
        } else {
            self.sacct.unreported.insert(key, stats);
            self.session.mark_dirty(now);
        }
    }

    /// Applies the accounted state of a failed step, which is more precise than the exit code of `srun`.
    fn apply_account(&mut self, key: AttemptKey, account: &StepAccount, now: BootInstant, effects: &mut Vec<Effect>) {
        let code = self.reports.get(&key).map_or(0, |report| report.finished.return_code);
        let has_begun = !step_failure::was_never_started(account, code);
        if !has_begun {
            self.step_not_started(key, StepFailure::Node, now, effects);
        } else if account.state != SlurmState::Unknown {
            self.node_health.step_started(&mut self.jobs, &key);
        }
        let was_preempted = self.allocation.is_preempted();
        let (Some(job), Some(finished)) = (self.jobs.get(&key), self.reports.finished_mut(&key)) else { return };
        if account.state != SlurmState::Unknown {
            set_cause(finished, account, &job.launch.template, has_begun, was_preempted);
        }
    }

    /// Sends the reports that wait for the accounting, because the runner ends. Steps that failed shortly before were stopped with
    /// the runner.
    pub(super) fn release_held_reports(&mut self, is_stopped: bool, now: BootInstant, effects: &mut Vec<Effect>) {
        let waiting = self.sacct.pending.iter_mut().filter(|(_, pending)| pending.holds_report);
        let waiting: Vec<(AttemptKey, BootInstant)> = waiting.map(|(key, pending)| (*key, pending.ended)).collect();
        for (key, ended) in waiting {
            if let Some(pending) = self.sacct.pending.get_mut(&key) {
                pending.holds_report = false;
            }
            if is_stopped
                && now.since(ended) <= SHUTDOWN_WINDOW
                && let Some(finished) = self.reports.finished_mut(&key)
            {
                finished.cause = Some(StopReason::Stopped.cause());
            }
            self.finish_report(key, now, effects);
        }
    }
}

/// Sets cause, return code and message of a failed attempt from the state of its step.
fn set_cause(
    finished: &mut FinishedAttempt,
    account: &StepAccount,
    template: &StartTemplate,
    has_begun: bool,
    was_preempted: bool,
) {
    let code = finished.return_code;
    if !has_begun {
        finished.cause = Some(Cause::Stopped);
        finished.message = Some(format!("Slurm did not start its step: srun exited with code {code}"));
        return;
    }
    let cause = match step_failure::cause(account.state, code) {
        // The runner's own clock counts: Slurm calls a step that died of its warning canceled.
        Some(Cause::Lost) | None if finished.cause == Some(Cause::Timeout) => Cause::Timeout,
        Some(Cause::Lost) | None if was_preempted && code == TERMINATED => Cause::Preempted,
        cause => cause.unwrap_or(Cause::ExitCode),
    };
    finished.cause = Some(cause);
    match cause {
        Cause::OutOfMemory => finished.return_code = template.oom_exit_code,
        Cause::Timeout => finished.return_code = template.timeout_exit_code,
        Cause::ExitCode => return,
        _ => {}
    }
    let state = &account.state_text;
    // Slurm does not know that the time limit was the reason for the warning.
    let is_warned = cause == Cause::Timeout && !matches!(account.state, SlurmState::Timeout | SlurmState::Deadline);
    finished.message = Some(match is_warned {
        true => format!("ended by the warning before its time limit; state in Slurm: {state}"),
        false => format!("state of its step in Slurm: {state}"),
    });
}

/// Returns the step numbers that a query names; empty if it must list all steps, because a step has no number or there
/// are too many.
fn named(numbers: impl Iterator<Item = Option<u32>>) -> Vec<u32> {
    let numbers: Option<Vec<u32>> = numbers.collect();
    numbers.filter(|numbers| numbers.len() <= MAX_NAMED_STEPS).unwrap_or_default()
}

/// Returns whether accounting is not installed, not configured or disabled.
fn is_absence(error: &SlurmError) -> bool {
    match error {
        SlurmError::Missing { .. } => true,
        SlurmError::Refused { message: sentence } => sentence.contains("disabled"),
        SlurmError::NoAnswer { reason, .. } => reason.contains("configuration source"),
    }
}

/// Returns the row of a job with the data of the accounting.
fn completed(mut record: MeasurementRecord, stats: &SlurmStats) -> MeasurementRecord {
    if let Measurement::Job(row) = &mut record.measurement {
        let run_ms = i64::try_from(row.ended.since(row.started).as_millis()).unwrap_or(i64::MAX);
        row.usage = complete(row.usage, stats, run_ms);
    }
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    // S10. A command line has a limit.
    #[test]
    fn queries_name_steps_while_they_are_few_and_numbered() {
        assert_eq!(named([Some(3), Some(5)].into_iter()), [3, 5]);
        assert_eq!(named([Some(3), None].into_iter()), Vec::<u32>::new());
        for (count, expected) in [(1_000, 1_000), (1_001, 0)] {
            assert_eq!(named((0..count).map(Some)).len(), expected, "{count}");
        }
    }
}
