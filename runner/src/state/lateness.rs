//! Leases that came too late: a job that cannot have its time before the runner's own is over goes back to the server.

use std::time::Duration;

use torc_api::wire::AttemptKey;

use super::job::{Job, Stage};
use super::{Effect, State};
use crate::clock::BootInstant;
use crate::events::RunnerEvent;

/// The server looked at the time when it granted a lease; so much of it may be lost on the way here.
const LATENESS: Duration = Duration::from_secs(5);

impl State {
    /// Notes when a lease that has not started will be too late.
    pub(super) fn watch_time_of(&mut self, job: &Job) {
        let due = self.latest_start(job);
        self.late_from = [self.late_from, due].into_iter().flatten().min();
    }

    /// Returns leases that cannot start any more, with the reason.
    pub(super) fn return_late_leases(&mut self, now: BootInstant, effects: &mut Vec<Effect>) {
        match self.late_from {
            Some(due) if due < now => {}
            Some(due) => return self.wake(due.plus(Duration::from_millis(1))),
            None => return,
        }
        let (mut late, mut next) = (Vec::new(), None);
        for key in self.unstarted() {
            let Some(job) = self.jobs.get(&key) else { continue };
            match self.latest_start(job) {
                Some(due) if due < now => late.push(key),
                due => next = [next, due].into_iter().flatten().min(),
            }
        }
        self.late_from = next;
        for key in &late {
            self.note_late(*key, now, effects);
        }
        self.let_go(late, None, now, effects);
    }

    fn note_late(&mut self, key: AttemptKey, now: BootInstant, effects: &mut Vec<Effect>) {
        let (Some(job), Some((_, end))) = (self.jobs.get(&key), self.settings.time) else { return };
        let runtime_seconds = job.launch.terms().runtime_seconds;
        self.out_of_time.insert(key);
        effects.push(Effect::Log(RunnerEvent::OutOfTime { key, runtime_seconds, remaining: end.since(now) }));
    }

    /// Returns the last moment at which the server would still have granted this lease.
    fn latest_start(&self, job: &Job) -> Option<BootInstant> {
        let (_, end) = self.settings.time.filter(|_| job.role.is_job() && job.stage != Stage::Recalled)?;
        // By number of jobs, declared runtimes are ignored.
        let runtime = if self.settings.max_parallel_jobs.is_some() { 0 } else { job.launch.terms().runtime_seconds };
        let least = job.launch.terms().end_margin().least_remaining(runtime);
        Some(end.minus(Duration::from_secs(u64::try_from(least).unwrap_or(0))).plus(LATENESS))
    }
}
