//! What the accounting says of steps that have ended. It knows later than we do: a success is reported at once and its numbers
//! follow; a failure waits, because only the accounting knows whether memory, time or a node was to blame.
//!
//! One question is about all steps that ended meanwhile. It is asked beside the loop, and no more often than it is cheap.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use torc_api::slurm::SlurmState;
use torc_api::slurm_stats::SlurmStats;
use torc_api::state::Cause;
use torc_api::wire::AttemptKey;
use torc_core::accounting::complete;
use torc_slurm::error::SlurmError;
use torc_slurm::retry::ACCOUNTING;
use torc_slurm::sacct::StepAccount;
use torc_slurm::step_failure;

use super::{Effect, State};
use crate::clock::BootInstant;
use crate::protocol::StopReason;
use crate::series::{Measurement, Record};
use crate::slurm_query::SlurmQuery;

/// A success waits so long for company: the accounting rarely knows of it at once.
const BATCH_DELAY: Duration = Duration::from_secs(1);
/// Between two questions there is at least so much time, and at least so many times what the last one took.
const QUERY_SPACING: u32 = 10;
/// So many steps are named in one question; for more, all of the allocation's are listed.
const MAX_NAMED_STEPS: usize = 1_000;
/// A step that failed so shortly before the runner was told to stop was ended for the same reason.
const SHUTDOWN_WINDOW: Duration = Duration::from_secs(10);

/// Number of sacct queries for which the report of a step that ran out of memory waits for its memory peak.
const OOM_PEAK_TRIES: u32 = 2;

/// The exit code of a job that SIGTERM has ended: 128 + 15.
pub(super) const ASKED_TO_END: i32 = 143;

/// The books on steps that have ended.
#[derive(Debug, Default)]
pub(super) struct SacctQueue {
    /// Steps that the accounting has not told everything of.
    open: BTreeMap<AttemptKey, Open>,
    /// Those that it is being asked about.
    asked: Option<Vec<AttemptKey>>,
    ask_at: BootInstant,
    /// There is no accounting here.
    absent: bool,
    /// What the server has not been told, and has a result of already.
    news: BTreeMap<AttemptKey, SlurmStats>,
}

/// A step that has ended.
#[derive(Debug)]
struct Open {
    number: Option<u32>,
    tries: u32,
    due: BootInstant,
    ended: BootInstant,
    /// Its report waits to know why it failed.
    waits: bool,
    /// What is kept of it in a file, to be completed.
    record: Option<Record>,
    /// The accounting knows of its end, but has no numbers of it yet.
    told: Option<StepAccount>,
}

impl SacctQueue {
    /// Nothing is waited for.
    pub fn are_settled(&self) -> bool {
        self.open.is_empty()
    }

    /// Returns what the server has not been told, and has a result of already.
    pub fn news(&self) -> &BTreeMap<AttemptKey, SlurmStats> {
        &self.news
    }

    #[cfg(test)]
    pub fn add_news(&mut self, key: AttemptKey) {
        self.news.insert(key, SlurmStats::default());
    }

    /// The server was told of a step.
    pub fn forget_news(&mut self, key: &AttemptKey) {
        self.news.remove(key);
    }
}

impl State {
    /// A step has ended. Whether its report has to wait for the accounting.
    pub(super) fn open_account(
        &mut self,
        key: AttemptKey,
        ended: BootInstant,
        is_failure: bool,
        now: BootInstant,
    ) -> bool {
        let Some(job) = self.jobs.get(&key).filter(|_| self.settings.allocation.is_some()) else { return false };
        let waits = is_failure && !self.sacct.absent;
        let open = Open {
            number: job.step.number,
            tries: 0,
            due: if waits { now } else { now.plus(BATCH_DELAY) },
            ended,
            waits,
            record: None,
            told: None,
        };
        self.sacct.open.insert(key, open);
        waits
    }

    /// What is written to a file about a step is completed when the accounting has spoken.
    pub(super) fn note_record(&mut self, key: AttemptKey, record: &Record) {
        if let Some(open) = self.sacct.open.get_mut(&key) {
            open.record = Some(record.clone());
        }
    }

    /// Asks the accounting, if it is time for that.
    pub(super) fn ask_accounting(&mut self, now: BootInstant, effects: &mut Vec<Effect>) {
        // Why steps were ended may be answered by what becomes of the allocation.
        if self.sacct.asked.is_some() || self.allocation.is_asked() {
            return;
        }
        if self.sacct.absent {
            for key in self.sacct.open.keys().copied().collect::<Vec<_>>() {
                self.settle_account(key, None, now, effects);
            }
            return;
        }
        let Some(due) = self.sacct.open.values().map(|open| open.due).min() else { return };
        let due = due.max(self.sacct.ask_at);
        if now < due {
            self.wake(due);
            return;
        }
        let asked: Vec<(AttemptKey, Option<u32>)> =
            self.sacct.open.iter().filter(|(_, open)| open.due <= now).map(|(key, open)| (*key, open.number)).collect();
        let numbers = named(asked.iter().map(|(_, number)| *number));
        self.sacct.asked = Some(asked.into_iter().map(|(key, _)| key).collect());
        effects.push(Effect::QuerySlurm(SlurmQuery::Accounts(numbers)));
    }

    /// The accounting has answered, or has not.
    pub(super) fn accounted(
        &mut self,
        answer: Result<HashMap<String, StepAccount>, SlurmError>,
        took: Duration,
        now: BootInstant,
        effects: &mut Vec<Effect>,
    ) {
        let asked = self.sacct.asked.take().unwrap_or_default();
        self.sacct.ask_at = now.plus(ACCOUNTING.pause.max(took.saturating_mul(QUERY_SPACING)));
        let mut found = match answer {
            Ok(found) => found,
            Err(trouble) if is_absence(&trouble) => return self.sacct.absent = true,
            Err(_) => HashMap::new(),
        };
        for key in asked {
            // Without a state, that it has ended is known all the same.
            let has_ended = |account: &StepAccount| account.state.is_over() || account.state == SlurmState::Unknown;
            let account = found.remove(&key.label()).filter(has_ended);
            if account.is_none() && self.was_never_asked_for(key) {
                self.controller_is_away(key, now, effects);
                self.settle_account(key, None, now, effects);
                continue;
            }
            let Some(open) = self.sacct.open.get_mut(&key) else { continue };
            open.tries += 1;
            open.due = now.plus(ACCOUNTING.pause);
            let is_last = open.tries >= ACCOUNTING.tries;
            let code = self.reports.get(&key).map_or(0, |report| report.finished.return_code);
            let has_all = |account: &StepAccount| account.has_numbers() || step_failure::never_began(account, code);
            let is_settled = is_last || account.as_ref().is_some_and(has_all);
            if let Some(account) = account.as_ref().filter(|_| open.waits) {
                // The next attempt of a job that ran out of memory gets more than the peak that the accounting knows of.
                let needs_peak = account.state == SlurmState::OutOfMemory && open.tries < OOM_PEAK_TRIES;
                // Why it failed is known; its numbers may follow.
                open.waits = is_settled || needs_peak;
                self.blame(key, account, now, effects);
                if !is_settled && !needs_peak {
                    self.close(key, now, effects);
                }
            }
            if is_settled {
                self.settle_account(key, account, now, effects);
            } else if let Some(open) = self.sacct.open.get_mut(&key) {
                open.told = account;
            }
        }
    }

    /// There is nothing more to do here. A step so short that nobody measured it will never have numbers: an allocation is not
    /// kept for them.
    pub(super) fn settle_told_accounts(&mut self, now: BootInstant, effects: &mut Vec<Effect>) {
        let is_told = |(key, open): (&AttemptKey, &Open)| Some((*key, open.told.clone()?));
        let told: Vec<(AttemptKey, StepAccount)> = self.sacct.open.iter().filter_map(is_told).collect();
        for (key, account) in told {
            self.settle_account(key, Some(account), now, effects);
        }
    }

    /// What is known goes to the server, and the books are closed.
    fn settle_account(
        &mut self,
        key: AttemptKey,
        account: Option<StepAccount>,
        now: BootInstant,
        effects: &mut Vec<Effect>,
    ) {
        let Some(open) = self.sacct.open.remove(&key) else { return };
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
        effects.extend(open.record.map(|record| Effect::Record(vec![completed(record, &stats)])));
        if let Some(finished) = self.reports.finished_mut(&key) {
            finished.slurm_stats = Some(Box::new(stats.clone()));
        }
        if open.waits {
            self.close(key, now, effects);
        } else {
            self.sacct.news.insert(key, stats);
            self.session.mark_dirty(now);
        }
    }

    /// Slurm's word counts for more than the exit code of `srun`.
    fn blame(&mut self, key: AttemptKey, account: &StepAccount, now: BootInstant, effects: &mut Vec<Effect>) {
        let code = self.reports.get(&key).map_or(0, |report| report.finished.return_code);
        if step_failure::never_began(account, code) {
            self.node_fails(key, now, effects);
        } else if account.state != SlurmState::Unknown {
            self.step_begun(key);
        }
        let was_preempted = self.is_preempted();
        let (Some(job), Some(finished)) = (self.jobs.get(&key), self.reports.finished_mut(&key)) else { return };
        if account.state == SlurmState::Unknown {
            return;
        }
        if step_failure::never_began(account, code) {
            finished.cause = Some(Cause::Stopped);
            finished.message = Some(format!("Slurm did not start its step: srun ended with {code}"));
            return;
        }
        let cause = match step_failure::cause(account.state, finished.return_code) {
            // Its time was over by our own clock. Of one that died of its warning Slurm says that it was cancelled.
            Some(Cause::Lost) | None if finished.cause == Some(Cause::Timeout) => Cause::Timeout,
            Some(Cause::Lost) | None if was_preempted && finished.return_code == ASKED_TO_END => Cause::Preempted,
            cause => cause.unwrap_or(Cause::ExitCode),
        };
        finished.cause = Some(cause);
        match cause {
            Cause::OutOfMemory => finished.return_code = job.launch.template.oom_exit_code,
            Cause::Timeout => finished.return_code = job.launch.template.timeout_exit_code,
            _ => {}
        }
        if cause != Cause::ExitCode {
            let state = &account.state_text;
            // Slurm does not know that it was warned because of the time.
            let is_warned =
                cause == Cause::Timeout && !matches!(account.state, SlurmState::Timeout | SlurmState::Deadline);
            finished.message = Some(match is_warned {
                true => format!(
                    "it ended when it was warned that its time was nearly over; Slurm says of its step: {state}"
                ),
                false => format!("Slurm says of its step: {state}"),
            });
        }
    }

    /// There is no time to wait for the accounting. What failed just now was ended together with the runner.
    pub(super) fn give_up_accounts(&mut self, is_stopped: bool, now: BootInstant, effects: &mut Vec<Effect>) {
        let waiting = self.sacct.open.iter_mut().filter(|(_, open)| open.waits);
        let waiting: Vec<(AttemptKey, BootInstant)> = waiting.map(|(key, open)| (*key, open.ended)).collect();
        for (key, ended) in waiting {
            if let Some(open) = self.sacct.open.get_mut(&key) {
                open.waits = false;
            }
            if is_stopped
                && now.since(ended) <= SHUTDOWN_WINDOW
                && let Some(finished) = self.reports.finished_mut(&key)
            {
                finished.cause = Some(StopReason::Stopped.cause());
            }
            self.close(key, now, effects);
        }
    }
}

/// The steps that a question names; none where it is about all of the allocation: one has no number, or they are too many.
fn named(numbers: impl Iterator<Item = Option<u32>>) -> Vec<u32> {
    let numbers: Option<Vec<u32>> = numbers.collect();
    numbers.filter(|numbers| numbers.len() <= MAX_NAMED_STEPS).unwrap_or_default()
}

/// It is not installed, not set up, or switched off: there is nothing to wait for.
fn is_absence(trouble: &SlurmError) -> bool {
    match trouble {
        SlurmError::Missing { .. } => true,
        SlurmError::Refused { message: sentence } => sentence.contains("disabled"),
        SlurmError::NoAnswer { reason, .. } => reason.contains("configuration source"),
    }
}

/// The record of a job, with what the accounting adds.
fn completed(mut record: Record, stats: &SlurmStats) -> Record {
    if let Measurement::Job(row) = &mut record.measurement {
        let run_ms = i64::try_from(row.ended.since(row.started).as_millis()).unwrap_or(i64::MAX);
        row.usage = complete(row.usage, stats, run_ms);
    }
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    // S10. A command line has an end.
    #[test]
    fn steps_are_named_while_they_are_few_and_all_have_numbers() {
        assert_eq!(named([Some(3), Some(5)].into_iter()), [3, 5]);
        assert_eq!(named([Some(3), None].into_iter()), Vec::<u32>::new());
        for (count, expected) in [(1_000, 1_000), (1_001, 0)] {
            assert_eq!(named((0..count).map(Some)).len(), expected, "{count}");
        }
    }
}
