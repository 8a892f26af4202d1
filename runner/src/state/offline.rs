//! Work without the server. The runner repeats calls for a while. Then it drains: it takes no new work, lets running jobs end, writes
//! their results into its journal, and pings the server.
//!
//! The shim drops a result only after the journal has it, and a result leaves the journal only when the server has it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use torc_api::wire::{AttemptKey, JournalledResult};

use super::jobs::Jobs;
use super::lifecycle::Phase;
use super::reports::{PendingReport, Reports};
use super::timer::Timer;
use super::{Effect, State};
use crate::clock::BootInstant;
use crate::config::RunnerExit;
use crate::events::RunnerEvent;
use crate::link::LinkError;

/// Interval between two attempts to write the journal: a full disk rarely has room again within seconds.
const WRITE_RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// The state of writing the journal.
#[derive(Debug, Default)]
pub(super) struct JournalState {
    /// True if a write is in flight.
    writing: bool,
    write_at: BootInstant,
    /// True if a failure to write the journal was already logged.
    failure_logged: bool,
}

impl JournalState {
    /// Returns the next write. Only one is in flight at a time.
    fn next_write(
        &mut self,
        reports: &Reports,
        jobs: &Jobs,
        runner: Option<i64>,
        now: BootInstant,
        timer: &mut Timer,
    ) -> Option<Effect> {
        if self.writing {
            return None;
        }
        let unwritten = |(key, report): &(&AttemptKey, &PendingReport)| !report.is_journaled && !jobs.contains_key(key);
        let results: Vec<JournalledResult> = reports
            .iter()
            .filter(unwritten)
            .map(|(_, report)| JournalledResult {
                ended_ms: 0,
                runner,
                name: report.name.clone(),
                finished: report.with_age(now),
            })
            .collect();
        if results.is_empty() {
            return None;
        }
        if now < self.write_at {
            timer.set(self.write_at);
            return None;
        }
        self.writing = true;
        Some(Effect::Journal(results))
    }

    /// Marks results as written. The shim can drop them.
    pub fn written(&mut self, reports: &mut Reports, keys: Vec<AttemptKey>, effects: &mut Vec<Effect>) {
        *self = Self::default();
        // The server may have got some of them in the meantime.
        let delivered: Vec<AttemptKey> = keys.iter().filter(|key| !reports.set_journaled(key)).copied().collect();
        effects.push(Effect::Acknowledge(keys));
        if !delivered.is_empty() {
            effects.push(Effect::Unjournal(delivered));
        }
    }

    /// Schedules another attempt. Until one succeeds or the server has the results, memory and the shim hold them.
    pub fn failed(&mut self, reason: String, now: BootInstant, effects: &mut Vec<Effect>) {
        self.writing = false;
        self.write_at = now.plus(WRITE_RETRY_INTERVAL);
        if !std::mem::replace(&mut self.failure_logged, true) {
            let message = format!("cannot write results to the journal, keeping them in memory: {reason}");
            effects.push(Effect::Log(RunnerEvent::Problem { message }));
        }
    }
}

impl State {
    /// Begins to drain when the server has been unreachable for the whole retry window.
    pub(super) fn check_outage(&mut self, now: BootInstant, effects: &mut Vec<Effect>) {
        let Some(since) = self.session.failing_since() else { return };
        if self.session.is_draining() {
            return;
        }
        let minutes = self.session.policy().wait_for_healthy_database_minutes;
        let by_workflow = || Duration::from_secs(minutes.saturating_mul(60));
        let window = self.settings.user.server_retry_window.unwrap_or_else(by_workflow);
        if now < since.plus(window) {
            self.wake(since.plus(window));
            return;
        }
        self.session.drain(now.plus(self.settings.user.drain_ping_interval));
        if !self.settings.user.offline_drain {
            let error = LinkError::Unreachable(self.session.last_failure().to_owned());
            self.begin_end(Err(error), now, effects);
            return;
        }
        effects.push(Effect::Log(RunnerEvent::Draining { after: window, running: self.jobs.active_count() }));
    }

    /// Writes results into the journal while it is unknown when the server can have them.
    pub(super) fn write_journal(&mut self, now: BootInstant, effects: &mut Vec<Effect>) {
        let leaving = matches!(self.lifecycle.phase(), Phase::Leaving(..)) && self.session.is_failing();
        let is_needed = !self.lifecycle.is_gone() && (self.session.is_draining() || leaving);
        if self.settings.user.offline_drain && is_needed {
            let runner = self.session.last_runner();
            effects.extend(self.journal.next_write(&self.reports, &self.jobs, runner, now, &mut self.timer));
        }
    }

    /// Returns whether the runner has drained: no job runs, and the journal has every result.
    pub(super) fn is_drained(&self) -> bool {
        self.settings.user.offline_drain
            && self.session.is_draining()
            && self.jobs.is_empty()
            && self.sacct.is_settled()
            && self.reports.iter().all(|(_, report)| report.is_journaled)
    }

    /// Exits although the server does not have every result, and logs the commands that deliver the journal. Results that are not
    /// in the journal stay with the shim for the next runner in this place.
    pub(super) fn exit_with_undelivered(&mut self, exit: RunnerExit, effects: &mut Vec<Effect>) {
        let journalled = self.reports.iter().filter(|(_, report)| report.is_journaled);
        let runs: BTreeSet<(i64, i32)> = journalled.clone().map(|(key, _)| (key.workflow, key.run)).collect();
        let journalled = journalled.count();
        let folder = &self.settings.output_dir;
        let hints = runs.iter().map(|(workflow, run)| reconcile_command(*workflow, *run, folder)).collect();
        let unwritten = self.reports.len() - journalled;
        effects.push(Effect::Log(RunnerEvent::LeftResults { journalled, unwritten, hints }));
        self.exit(Ok(exit), effects);
    }
}

/// Returns the command that delivers the journal of a run, ready for a shell.
fn reconcile_command(workflow: i64, run: i32, folder: &str) -> String {
    let mut line = format!("torc workflows reconcile {workflow} {run} --base-dir ");
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_./-+:@%,=".contains(c);
    if !folder.is_empty() && folder.chars().all(is_plain) {
        line.push_str(folder);
    } else {
        // Writing to a string cannot fail.
        let _ = write!(line, "'{}'", folder.replace('\'', r"'\''"));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::reconcile_command;

    // J18
    #[test]
    fn the_reconcile_command_quotes_the_folder() {
        assert_eq!(
            reconcile_command(42, 1, "/scratch/run42"),
            "torc workflows reconcile 42 1 --base-dir /scratch/run42"
        );
        assert_eq!(
            reconcile_command(1, 2, "/my runs/it's"),
            r"torc workflows reconcile 1 2 --base-dir '/my runs/it'\''s'"
        );
    }
}
