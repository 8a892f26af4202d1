//! The time line before an end: the signal at end − headroom − lead, SIGKILL at end − headroom, no process left at the end.
//!
//! Steps have no such time line: Slurm ends them when the headroom begins. The runner only ends those that remain in
//! the last part of the headroom.
//!
//! A lease that arrives too late for its job to finish before the runner's end returns to the server.

use std::collections::BTreeSet;
use std::time::Duration;

use torc_api::wire::{AttemptKey, RunnerPolicy};

use super::jobs::{JobStage, Jobs, LeasedJob};
use super::timer::Timer;
use super::{AgentSettings, Effect, State};
use crate::clock::BootInstant;
use crate::config::RunnerExit;
use crate::events::RunnerEvent;

/// Time that may pass between the server's check of the remaining time and the arrival of the lease.
const MAX_LEASE_DELAY: Duration = Duration::from_secs(5);
/// Time before its end at which a runner stops taking work: the default lead (30 s) and headroom (60 s) of its jobs.
const CLOSING_WINDOW: Duration = Duration::from_secs(90);

/// The time for which a runner may run jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeSpan {
    pub began: BootInstant,
    /// The moment at which no process may be left.
    pub end: BootInstant,
}

/// The runner's time, and the moments that follow from it.
#[derive(Debug)]
pub(super) struct Deadlines {
    time: Option<TimeSpan>,
    /// Running jobs by the moment at which they are asked to end.
    ends: BTreeSet<(BootInstant, AttemptKey)>,
    /// The moment from which the first unstarted lease is too late to start.
    late_from: Option<BootInstant>,
    /// True if the runner counts jobs instead of resources: then it ignores declared runtimes.
    counts_jobs: bool,
}

impl Deadlines {
    pub fn new(settings: &AgentSettings) -> Self {
        let counts_jobs = settings.user.max_parallel_jobs.is_some();
        Self { time: settings.time, ends: BTreeSet::new(), late_from: None, counts_jobs }
    }

    #[cfg(test)]
    pub fn time(&self) -> Option<TimeSpan> {
        self.time
    }

    /// Returns when the runner's time is over.
    pub fn end(&self) -> Option<BootInstant> {
        self.time.map(|time| time.end)
    }

    /// Returns the time that is left.
    pub fn remaining(&self, now: BootInstant) -> Option<Duration> {
        self.end().map(|end| end.since(now))
    }

    /// Moves the end. Callers must schedule the ends of running jobs again.
    pub fn reschedule_end(&mut self, end: BootInstant, now: BootInstant) {
        let began = self.time.map_or(now, |time| time.began);
        self.time = Some(TimeSpan { began, end });
        self.late_from = Some(now);
        self.ends.clear();
    }

    #[cfg(test)]
    pub fn set_time(&mut self, time: Option<TimeSpan>) {
        self.time = time;
    }

    /// Returns when a job must get its signal so that it has ended when the runner's time is over.
    pub fn signal_time(&self, job: &LeasedJob) -> Option<BootInstant> {
        self.end().map(|end| job.launch.template.signal_time(end))
    }

    /// Schedules the end of a started job.
    pub fn watch_end(&mut self, key: AttemptKey, job: &LeasedJob) {
        let template = &job.launch.template;
        let own =
            (template.enforce_runtime && template.runtime_seconds > 0).then(|| job.since.plus(template.runtime()));
        let due = [own, self.signal_time(job)].into_iter().flatten().min();
        self.ends.extend(due.map(|due| (due, key)));
    }

    /// Schedules the return of a lease that does not start in time.
    pub fn watch_start(&mut self, job: &LeasedJob) {
        let due = self.latest_start(job);
        self.late_from = [self.late_from, due].into_iter().flatten().min();
    }

    /// Returns the last moment at which the server would still have granted this lease.
    fn latest_start(&self, job: &LeasedJob) -> Option<BootInstant> {
        let end = self.end().filter(|_| job.role.is_job() && job.stage != JobStage::Recalled)?;
        let template = &job.launch.template;
        let runtime = if self.counts_jobs { 0 } else { template.runtime_seconds };
        let least = template.end_margin().least_remaining(runtime);
        Some(end.minus(Duration::from_secs(u64::try_from(least).unwrap_or(0))).plus(MAX_LEASE_DELAY))
    }

    /// Returns whether too little time is left to ask for jobs. This applies to runners that count jobs; for the others the server
    /// compares the remaining time with each job's runtime.
    pub fn is_too_late(&self, policy: &RunnerPolicy, now: BootInstant) -> bool {
        let least = Duration::from_secs(policy.min_time_for_new_jobs_seconds);
        self.counts_jobs && self.remaining(now).is_some_and(|left| left <= least)
    }

    /// Removes and returns the running jobs whose time is over.
    fn take_over(&mut self, jobs: &Jobs, now: BootInstant, timer: &mut Timer) -> Vec<AttemptKey> {
        let mut over = Vec::new();
        while let Some((due, key)) = self.ends.first().copied() {
            if due > now {
                timer.set(due);
                break;
            }
            self.ends.pop_first();
            if jobs.is_active(&key) {
                over.push(key);
            }
        }
        over
    }

    /// Returns the unstarted leases that are too late to start.
    fn remove_late(&mut self, jobs: &Jobs, now: BootInstant, timer: &mut Timer) -> Vec<AttemptKey> {
        let Some(first) = self.late_from else { return Vec::new() };
        if first >= now {
            timer.set(first.plus(Duration::from_millis(1)));
            return Vec::new();
        }
        let (mut late, mut next) = (Vec::new(), None);
        for key in jobs.unstarted() {
            let Some(job) = jobs.get(&key) else { continue };
            match self.latest_start(job) {
                Some(due) if due < now => late.push(key),
                due => next = [next, due].into_iter().flatten().min(),
            }
        }
        self.late_from = next;
        late
    }
}

impl State {
    /// Asks jobs whose time is over to end, and stops taking work shortly before the runner's own end.
    pub(super) fn end_expired_jobs(&mut self, now: BootInstant, effects: &mut Vec<Effect>) {
        let over = self.deadlines.take_over(&self.jobs, now, &mut self.timer);
        self.terminate_all(&over, self.allocation.timeout_reason(), now, effects);
        let Some(TimeSpan { began, end }) = self.deadlines.time else { return };
        // A short-lived runner takes work during the first half of its time.
        let close = end.minus(CLOSING_WINDOW.min(end.since(began) / 2));
        if self.lifecycle.is_serving() && close <= now {
            self.lifecycle.end(Ok(RunnerExit::Deadline));
            self.release(self.jobs.unstarted(), None, now, effects);
        } else if close > now {
            self.wake(close);
        }
        if end <= now {
            self.lifecycle.skip_worker_actions();
            effects.extend(super::ends::kill_all(&self.jobs));
        } else {
            self.wake(end);
        }
    }

    /// Returns leases to the server that can no longer start in time, and logs the reason.
    pub(super) fn return_late_leases(&mut self, now: BootInstant, effects: &mut Vec<Effect>) {
        let late = self.deadlines.remove_late(&self.jobs, now, &mut self.timer);
        for key in &late {
            let (Some(job), Some(remaining)) = (self.jobs.get(key), self.deadlines.remaining(now)) else { continue };
            let runtime_seconds = job.launch.template.runtime_seconds;
            self.reports.set_out_of_time(*key);
            effects.push(Effect::Log(RunnerEvent::OutOfTime { key: *key, runtime_seconds, remaining }));
        }
        self.release(late, None, now, effects);
    }
}
