//! Life without the server. Calls are repeated for a while; then the runner drains: it takes nothing new, lets running jobs end,
//! writes their results into its journal, and now and then asks whether the server is back.
//!
//! A result is safe in the journal before the shim may forget it, and leaves the journal only when the server has it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use torc_api::wire::{AttemptKey, JournalledResult};

use super::lifecycle::Phase;
use super::reports::Report;
use super::{Effect, State};
use crate::clock::BootInstant;
use crate::config::RunnerExit;
use crate::events::RunnerEvent;
use crate::link::LinkError;

/// Pause before a journal that could not be written is tried again.
const WRITE_AGAIN: Duration = Duration::from_secs(5);

/// What is known about the journal.
#[derive(Debug, Default)]
pub(super) struct Journal {
    /// A write has been asked for and not answered.
    writing: bool,
    write_at: BootInstant,
    /// A person knows that it cannot be written.
    told: bool,
}

impl State {
    /// Begins to drain when the server has been away for too long.
    pub(super) fn check_outage(&mut self, now: BootInstant, effects: &mut Vec<Effect>) {
        let Some(since) = self.session.failing_since() else { return };
        if self.session.is_draining() {
            return;
        }
        let window = self.retry_window();
        if now < since.plus(window) {
            self.wake(since.plus(window));
            return;
        }
        self.session.drain(now.plus(self.settings.offline.ping_interval));
        if !self.settings.offline.enabled {
            self.end_with(Err(LinkError::Unreachable(self.session.last_failure().to_owned())), now, effects);
            return;
        }
        effects.push(Effect::Log(RunnerEvent::Draining { after: window, running: self.jobs.active_count() }));
    }

    fn retry_window(&self) -> Duration {
        let minutes = self.session.policy().wait_for_healthy_database_minutes;
        self.settings.offline.retry_window.unwrap_or_else(|| Duration::from_secs(minutes.saturating_mul(60)))
    }

    /// Results go to the journal: nobody knows when the server can have them.
    fn keeps_journal(&self) -> bool {
        let leaving = matches!(self.lifecycle.phase(), Phase::Leaving(..)) && self.session.is_failing();
        self.settings.offline.enabled && !self.lifecycle.is_gone() && (self.session.is_draining() || leaving)
    }

    /// Asks for results to be written down, one batch at a time.
    pub(super) fn keep_journal(&mut self, now: BootInstant, effects: &mut Vec<Effect>) {
        if !self.keeps_journal() || self.journal.writing {
            return;
        }
        let fresh = |key: &AttemptKey, report: &Report| !report.is_journaled && !self.jobs.contains_key(key);
        let unwritten: Vec<AttemptKey> =
            self.reports.iter().filter(|(key, report)| fresh(key, report)).map(|(key, _)| *key).collect();
        if unwritten.is_empty() {
            return;
        }
        if now < self.journal.write_at {
            self.wake(self.journal.write_at);
            return;
        }
        self.journal.writing = true;
        let runner = self.session.last_runner();
        let results = unwritten.iter().filter_map(|key| self.reports.get(key)).map(|report| JournalledResult {
            ended_ms: 0,
            runner,
            name: report.name.clone(),
            finished: report.told_at(now),
        });
        effects.push(Effect::Journal(results.collect()));
    }

    /// These are on the disk, so the shim need not hold them any longer.
    pub(super) fn journalled(&mut self, keys: Vec<AttemptKey>, effects: &mut Vec<Effect>) {
        self.journal = Journal::default();
        let mut delivered = Vec::new();
        for key in &keys {
            if !self.reports.set_journaled(key) {
                // The server was quicker.
                delivered.push(*key);
            }
        }
        effects.push(Effect::Acknowledge(keys));
        if !delivered.is_empty() {
            effects.push(Effect::Unjournal(delivered));
        }
    }

    /// They could not be written: memory and the shim hold them until that succeeds or the server has them.
    pub(super) fn not_journalled(&mut self, reason: String, now: BootInstant, effects: &mut Vec<Effect>) {
        self.journal.writing = false;
        self.journal.write_at = now.plus(WRITE_AGAIN);
        if !std::mem::replace(&mut self.journal.told, true) {
            let message = format!("results cannot be written to the journal and are kept in memory: {reason}");
            effects.push(Effect::Log(RunnerEvent::Problem { message }));
        }
    }

    /// Results that an earlier runner of this place wrote down and nobody has fetched.
    pub(super) fn recovered(&mut self, results: Vec<(JournalledResult, Duration)>, now: BootInstant) {
        for (result, age) in results {
            let key = result.finished.key;
            if !self.reports.set_journaled(&key) && !self.jobs.contains_key(&key) {
                self.reports.add(Report {
                    name: result.name,
                    finished: result.finished,
                    ended: now,
                    older: age,
                    is_journaled: true,
                });
                self.session.mark_dirty(now);
            }
        }
    }

    /// The server has these: the journal need not.
    pub(super) fn forget_journalled(&mut self, keys: &[AttemptKey], effects: &mut Vec<Effect>) {
        let kept = |key: &&AttemptKey| self.reports.get(key).is_some_and(|report| report.is_journaled);
        let journalled: Vec<AttemptKey> = keys.iter().filter(kept).copied().collect();
        if !journalled.is_empty() {
            effects.push(Effect::Unjournal(journalled));
        }
    }

    /// Everything that could be done without the server has been done.
    pub(super) fn is_drained(&self) -> bool {
        let safe = |(_, report): (&AttemptKey, &Report)| report.is_journaled;
        self.settings.offline.enabled
            && self.session.is_draining()
            && self.jobs.is_empty()
            && self.sacct.are_settled()
            && self.reports.iter().all(safe)
    }

    /// Leaves without the server having every result, and says what is to be typed when it is back. What is not in the journal
    /// stays with the shim for the next runner of this place.
    pub(super) fn leave_results(&mut self, exit: RunnerExit, effects: &mut Vec<Effect>) {
        let journalled = self.reports.iter().filter(|(_, report)| report.is_journaled);
        let runs: BTreeSet<(i64, i32)> = journalled.clone().map(|(key, _)| (key.workflow, key.run)).collect();
        let journalled = journalled.count();
        let hints = runs.iter().map(|(workflow, run)| reconcile(*workflow, *run, &self.settings.output_dir)).collect();
        let unwritten = self.reports.len() - journalled;
        effects.push(Effect::Log(RunnerEvent::LeftResults { journalled, unwritten, hints }));
        self.exit(Ok(exit), effects);
    }
}

/// What a person types once the server is back.
fn reconcile(workflow: i64, run: i32, folder: &str) -> String {
    let mut line = format!("torc workflows reconcile {workflow} {run} --base-dir ");
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_./-+:@%,=".contains(c);
    if !folder.is_empty() && folder.chars().all(is_plain) {
        line.push_str(folder);
    } else {
        // Writing to a text cannot fail.
        let _ = write!(line, "'{}'", folder.replace('\'', r"'\''"));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::reconcile;

    // J18
    #[test]
    fn the_hint_can_be_pasted() {
        assert_eq!(reconcile(42, 1, "/scratch/run42"), "torc workflows reconcile 42 1 --base-dir /scratch/run42");
        assert_eq!(reconcile(1, 2, "/my runs/it's"), r"torc workflows reconcile 1 2 --base-dir '/my runs/it'\''s'");
    }
}
