//! The time line before an end: the signal at end − headroom − lead, SIGKILL at end − headroom, everything gone by the end.
//!
//! Steps have no such time line: Slurm ends them when the headroom begins. Only what is left of them in the last part of it is
//! ended from here.
//!
//! A lease that came too late, so that its job cannot have its time before the runner's own is over, goes back to the server.

use std::collections::BTreeSet;
use std::time::Duration;

use torc_api::wire::AttemptKey;

use super::jobs::{Job, Stage};
use super::{Effect, Settings, State};
use crate::clock::BootInstant;
use crate::config::RunnerExit;
use crate::events::RunnerEvent;
use crate::protocol::StartTemplate;

/// The server looked at the time when it granted a lease; so much of it may be lost on the way here.
const MAX_LEASE_DELAY: Duration = Duration::from_secs(5);

/// When a runner's time began, and when it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeSpan {
    /// Its start.
    pub began: BootInstant,
    /// Everything is gone by then.
    pub end: BootInstant,
}

/// The runner's time, and the moments at which jobs have to be asked to end because of it.
#[derive(Debug)]
pub(super) struct Deadlines {
    time: Option<TimeSpan>,
    /// When running jobs have to be asked to end.
    ends: BTreeSet<(BootInstant, AttemptKey)>,
    /// The moment from which the first unstarted lease is too late to start.
    late_from: Option<BootInstant>,
}

impl Deadlines {
    pub fn new(settings: &Settings) -> Self {
        Self { time: settings.time, ends: BTreeSet::new(), late_from: None }
    }

    #[cfg(test)]
    pub fn time(&self) -> Option<TimeSpan> {
        self.time
    }

    /// Returns when the runner's time is over.
    pub fn end(&self) -> Option<BootInstant> {
        self.time.map(|time| time.end)
    }

    /// The runner's time ends at another moment: what follows from that has to be found again.
    pub fn move_end(&mut self, end: BootInstant, now: BootInstant) {
        let began = self.time.map_or(now, |time| time.began);
        self.time = Some(TimeSpan { began, end });
        self.late_from = Some(now);
        self.ends.clear();
    }

    #[cfg(test)]
    pub fn set_time(&mut self, time: Option<TimeSpan>) {
        self.time = time;
    }
}

/// When a job is asked to end, so that it is gone at `end`.
pub(super) fn signal_time(template: &StartTemplate, end: BootInstant) -> BootInstant {
    if template.in_step {
        end.minus(template.headroom().min(template.lead()))
    } else {
        kill_time(template, end).minus(template.lead())
    }
}

/// When a job is killed, so that it is gone at `end`.
pub(super) fn kill_time(template: &StartTemplate, end: BootInstant) -> BootInstant {
    if template.in_step {
        end.minus(template.headroom().min(template.lead()) / 2)
    } else {
        end.minus(template.headroom())
    }
}

impl State {
    /// When a job has to be asked to end, so that it is gone when the runner's time is over.
    pub(super) fn time_for(&self, job: &Job) -> Option<BootInstant> {
        self.deadlines.end().map(|end| signal_time(&job.launch.template, end))
    }

    /// Remembers when a started job has to be asked to end.
    pub(super) fn watch_end_of(&mut self, key: AttemptKey) {
        let Some(job) = self.jobs.get(&key) else { return };
        let template = &job.launch.template;
        let runtime = Duration::from_secs(u64::try_from(template.runtime_seconds).unwrap_or(0));
        let own = (template.enforce_runtime && template.runtime_seconds > 0).then(|| job.since.plus(runtime));
        let due = [own, self.time_for(job)].into_iter().flatten().min();
        self.deadlines.ends.extend(due.map(|due| (due, key)));
    }

    /// Asks jobs whose time is over to end, and stops taking work when the runner's own time draws to its close.
    pub(super) fn end_in_time(&mut self, now: BootInstant, effects: &mut Vec<Effect>) {
        let mut over = Vec::new();
        while let Some((due, key)) = self.deadlines.ends.first().copied() {
            if due > now {
                self.wake(due);
                break;
            }
            self.deadlines.ends.pop_first();
            if self.jobs.is_active(&key) {
                over.push(key);
            }
        }
        self.terminate_all(&over, self.end_of_time(), now, effects);
        let Some(TimeSpan { began, end }) = self.deadlines.time else { return };
        // The usual headroom and lead, but never more than half of a short life.
        let close = end.minus(Duration::from_secs(90).min(end.since(began) / 2));
        if self.lifecycle.is_serving() && close <= now {
            self.lifecycle.end(Ok(RunnerExit::Deadline));
            self.let_go(self.jobs.unstarted(), None, now, effects);
        } else if close > now {
            self.wake(close);
        }
        if end <= now {
            self.lifecycle.skip_worker_actions();
            self.kill_all(effects);
        } else {
            self.wake(end);
        }
    }

    /// Notes when a lease that has not started will be too late.
    pub(super) fn watch_time_of(&mut self, job: &Job) {
        let due = self.latest_start(job);
        self.deadlines.late_from = [self.deadlines.late_from, due].into_iter().flatten().min();
    }

    /// Returns leases that cannot start any more, with the reason.
    pub(super) fn return_late_leases(&mut self, now: BootInstant, effects: &mut Vec<Effect>) {
        match self.deadlines.late_from {
            Some(due) if due < now => {}
            Some(due) => return self.wake(due.plus(Duration::from_millis(1))),
            None => return,
        }
        let (mut late, mut next) = (Vec::new(), None);
        for key in self.jobs.unstarted() {
            let Some(job) = self.jobs.get(&key) else { continue };
            match self.latest_start(job) {
                Some(due) if due < now => late.push(key),
                due => next = [next, due].into_iter().flatten().min(),
            }
        }
        self.deadlines.late_from = next;
        for key in &late {
            self.note_late(*key, now, effects);
        }
        self.let_go(late, None, now, effects);
    }

    fn note_late(&mut self, key: AttemptKey, now: BootInstant, effects: &mut Vec<Effect>) {
        let (Some(job), Some(end)) = (self.jobs.get(&key), self.deadlines.end()) else { return };
        let runtime_seconds = job.launch.template.runtime_seconds;
        self.reports.set_out_of_time(key);
        effects.push(Effect::Log(RunnerEvent::OutOfTime { key, runtime_seconds, remaining: end.since(now) }));
    }

    /// Returns the last moment at which the server would still have granted this lease.
    fn latest_start(&self, job: &Job) -> Option<BootInstant> {
        let end = self.deadlines.end().filter(|_| job.role.is_job() && job.stage != Stage::Recalled)?;
        // By number of jobs, declared runtimes are ignored.
        let runtime = if self.settings.max_parallel_jobs.is_some() { 0 } else { job.launch.template.runtime_seconds };
        let least = job.launch.template.end_margin().least_remaining(runtime);
        Some(end.minus(Duration::from_secs(u64::try_from(least).unwrap_or(0))).plus(MAX_LEASE_DELAY))
    }
}
