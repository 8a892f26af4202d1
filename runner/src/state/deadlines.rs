//! The time line before an end: the signal at end − headroom − lead, SIGKILL at end − headroom, everything gone by the end.
//!
//! Steps have no such time line: Slurm ends them when the headroom begins. Only what is left of them in the last part of it is
//! ended from here.

use std::time::Duration;

use torc_api::wire::AttemptKey;

use super::job::Job;
use super::{Effect, Phase, State};
use crate::clock::BootInstant;
use crate::config::RunnerExit;
use crate::protocol::Terms;

/// When a job is asked to end, so that it is gone at `end`.
pub(super) fn signal_time(terms: &Terms, end: BootInstant) -> BootInstant {
    if terms.in_step {
        end.minus(terms.headroom().min(terms.lead()))
    } else {
        kill_time(terms, end).minus(terms.lead())
    }
}

/// When a job is killed, so that it is gone at `end`.
pub(super) fn kill_time(terms: &Terms, end: BootInstant) -> BootInstant {
    if terms.in_step { end.minus(terms.headroom().min(terms.lead()) / 2) } else { end.minus(terms.headroom()) }
}

impl State {
    /// When a job has to be asked to end, so that it is gone when the runner's time is over.
    pub(super) fn time_for(&self, job: &Job) -> Option<BootInstant> {
        self.settings.time.map(|(_, end)| signal_time(job.launch.terms(), end))
    }

    /// Remembers when a started job has to be asked to end.
    pub(super) fn mind_time(&mut self, key: AttemptKey) {
        let Some(job) = self.jobs.get(&key) else { return };
        let terms = job.launch.terms();
        let runtime = Duration::from_secs(u64::try_from(terms.runtime_seconds).unwrap_or(0));
        let own = (terms.enforce_runtime && terms.runtime_seconds > 0).then(|| job.since.plus(runtime));
        let due = [own, self.time_for(job)].into_iter().flatten().min();
        self.ends.extend(due.map(|due| (due, key)));
    }

    /// Asks jobs whose time is over to end, and stops taking work when the runner's own time draws to its close.
    pub(super) fn end_in_time(&mut self, now: BootInstant, effects: &mut Vec<Effect>) {
        let mut over = Vec::new();
        while let Some((due, key)) = self.ends.first().copied() {
            if due > now {
                self.wake(due);
                break;
            }
            self.ends.pop_first();
            if self.active.contains(&key) {
                over.push(key);
            }
        }
        self.terminate_all(&over, self.end_of_time(), now, effects);
        let Some((began, end)) = self.settings.time else { return };
        // The usual headroom and lead, but never more than half of a short life.
        let close = end.minus(Duration::from_secs(90).min(end.since(began) / 2));
        if self.phase == Phase::Serving && close <= now {
            self.phase = Phase::Ending(Ok(RunnerExit::Deadline));
            self.let_go(self.unstarted(), None, now, effects);
        } else if close > now {
            self.wake(close);
        }
        if end <= now {
            self.skip_worker_actions = true;
            self.kill_all(effects);
        } else {
            self.wake(end);
        }
    }
}
