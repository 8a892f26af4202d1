//! Capacity that is idle while jobs are ready.
//!
//! At every moment: how many ready jobs that have not started could start in the free capacity of all runners, each job counted
//! once. A job counts when it has been ready for longer than a report, a commit, a lease and a start need, twice.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use torc_core::ledger::Reservation;

use crate::placement::{JobClasses, RunnerSlots};
use crate::time::Time;
use crate::trace::{Attempt, Trace};
use crate::workload::{JobRef, Scenario};

/// Returns the integral of idle jobs over time, from the first measured workflow to the end of the last job.
pub fn idle_time(scenario: &Scenario, trace: &Trace) -> Duration {
    let (from, until) = (scenario.measured_from(), trace.last_end(scenario));
    let mut sweep = Sweep::new(scenario, trace);
    let mut edges = edges(scenario, trace, &sweep.classes);
    edges.sort();
    let (mut idle_us, mut now, mut count) = (0_u128, from, 0_u64);
    let mut edges = edges.into_iter().peekable();
    while let Some(edge) = edges.next_if(|edge| edge.at < until) {
        idle_us += u128::from(count) * edge.at.since(now).as_micros();
        now = now.max(edge.at);
        sweep.apply(edge.change);
        if edges.peek().is_none_or(|next| next.at != edge.at) {
            count = if edge.at < from { 0 } else { sweep.idle_jobs(now) };
        }
    }
    idle_us += u128::from(count) * until.since(now).as_micros();
    Duration::from_micros(u64::try_from(idle_us).unwrap_or(u64::MAX))
}

/// Returns the time for which a job must be ready, and a runner present, before capacity counts as idle: two round trips and two
/// commits.
fn grace(scenario: &Scenario) -> Duration {
    let slowest = scenario.runners.iter().map(|runner| runner.link.round_trip()).max().unwrap_or_default();
    (slowest + scenario.timing.commit) * 2
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Edge {
    at: Time,
    change: Change,
}

/// A change, in the order in which changes at one time are applied: ends free capacity for starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    /// An attempt ends, by its position in the trace.
    Free(usize),
    Arrive(usize),
    Close(usize),
    Occupy(usize),
    /// A job of this class starts, or is given up.
    StopWaiting(usize),
    /// A job of this class could start.
    Wait(usize),
    EndDrain(Drain),
    BeginDrain(Drain),
}

/// A runner that collects nodes for a job of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Drain {
    runner: usize,
    class: usize,
}

impl PartialOrd for Edge {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Edge {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.change).cmp(&(other.at, other.change))
    }
}

fn edges(scenario: &Scenario, trace: &Trace, classes: &JobClasses) -> Vec<Edge> {
    let grace = grace(scenario);
    let mut edges = Vec::new();
    let mut add = |at: Time, change: Change| edges.push(Edge { at, change });
    for (index, runner) in scenario.runners.iter().enumerate() {
        add(runner.arrives.plus(grace), Change::Arrive(index));
        runner.closes().into_iter().for_each(|at| add(at, Change::Close(index)));
    }
    for (index, attempt) in trace.attempts.iter().enumerate() {
        add(attempt.ordered, Change::Occupy(index));
        attempt.ended.into_iter().for_each(|at| add(at, Change::Free(index)));
    }
    for (job, waits) in waits(scenario, trace) {
        let class = classes.of(job);
        for (ready, attempt) in waits {
            let (from, to) = (ready.plus(grace), attempt.map_or(trace.ended, |attempt| attempt.ordered));
            if from < to {
                add(from, Change::Wait(class));
                add(to, Change::StopWaiting(class));
            }
            if let Some(attempt) = attempt.filter(|_| classes.classes[class].is_multi_node()) {
                let drain = Drain { runner: attempt.runner, class };
                add(drain_start(trace, attempt).max(ready), Change::BeginDrain(drain));
                add(attempt.ordered, Change::EndDrain(drain));
            }
        }
    }
    edges
}

/// Returns the time from which a runner collected nodes for a job: the last start of another job before it.
fn drain_start(trace: &Trace, attempt: &Attempt) -> Time {
    let others =
        trace.attempts.iter().filter(|other| other.runner == attempt.runner && other.ordered < attempt.ordered);
    others.map(|other| other.ordered).max().unwrap_or_default()
}

/// Returns the times at which each job was ready, and the attempts that followed.
fn waits<'a>(scenario: &Scenario, trace: &'a Trace) -> BTreeMap<JobRef, Vec<(Time, Option<&'a Attempt>)>> {
    let mut attempts: BTreeMap<JobRef, Vec<&Attempt>> = BTreeMap::new();
    for attempt in &trace.attempts {
        attempts.entry(attempt.job).or_default().push(attempt);
    }
    let success = |job: &JobRef| attempts.get(job)?.iter().find(|attempt| attempt.succeeded)?.ended;
    let mut waits = BTreeMap::new();
    for (job, plan) in scenario.jobs() {
        let ends = plan.after.iter().map(|parent| success(&JobRef { job: *parent, ..job }));
        let applied = scenario.workflows[job.workflow].applied;
        // A job whose dependencies have not ended is not ready.
        let Some(mut ready) = ends.chain([Some(applied)]).collect::<Option<Vec<Time>>>().and_then(latest) else {
            continue;
        };
        let mut list = Vec::new();
        let tried = attempts.get(&job).map_or(&[][..], Vec::as_slice);
        for attempt in tried {
            list.push((ready, Some(*attempt)));
            ready = attempt.ended.unwrap_or(trace.ended);
        }
        if !tried.iter().any(|attempt| attempt.succeeded) {
            list.push((ready, None));
        }
        waits.insert(job, list);
    }
    waits
}

fn latest(times: Vec<Time>) -> Option<Time> {
    times.into_iter().max()
}

struct Sweep<'a> {
    scenario: &'a Scenario,
    trace: &'a Trace,
    classes: JobClasses,
    slots: Vec<RunnerSlots<'a>>,
    is_open: Vec<bool>,
    taken: BTreeMap<usize, Reservation>,
    /// Jobs of each class that could start.
    waiting: Vec<u64>,
    /// Runners that collect nodes, and the classes of the jobs that they do it for.
    drains: BTreeSet<Drain>,
    /// By runner and class: whether the runner may run such jobs while time has no end.
    matches: Vec<Vec<bool>>,
}

impl<'a> Sweep<'a> {
    fn new(scenario: &'a Scenario, trace: &'a Trace) -> Self {
        let classes = JobClasses::new(scenario);
        let slots: Vec<RunnerSlots<'_>> = scenario.runners.iter().map(RunnerSlots::new).collect();
        let matches = |slots: &RunnerSlots<'_>| {
            classes.classes.iter().map(|class| slots.matches(class, scenario, slots.plan.arrives)).collect()
        };
        Self {
            scenario,
            trace,
            matches: slots.iter().map(matches).collect(),
            is_open: vec![false; slots.len()],
            taken: BTreeMap::new(),
            waiting: vec![0; classes.classes.len()],
            drains: BTreeSet::new(),
            slots,
            classes,
        }
    }

    fn apply(&mut self, change: Change) {
        match change {
            Change::Arrive(runner) => self.is_open[runner] = true,
            Change::Close(runner) => self.is_open[runner] = false,
            Change::Occupy(index) => {
                let attempt = &self.trace.attempts[index];
                let class = &self.classes.classes[self.classes.of(attempt.job)];
                let reservation = self.slots[attempt.runner].reserve(class);
                self.taken.extend(reservation.map(|reservation| (index, reservation)));
            }
            Change::Free(index) => {
                if let Some(reservation) = self.taken.remove(&index) {
                    self.slots[self.trace.attempts[index].runner].release(reservation);
                }
            }
            Change::Wait(class) => self.waiting[class] += 1,
            Change::StopWaiting(class) => self.waiting[class] -= 1,
            Change::BeginDrain(drain) => drop(self.drains.insert(drain)),
            Change::EndDrain(drain) => drop(self.drains.remove(&drain)),
        }
    }

    /// Packs waiting jobs into what is free, and counts them.
    fn idle_jobs(&mut self, now: Time) -> u64 {
        if self.waiting.iter().all(|count| *count == 0) {
            return 0;
        }
        let mut waiting = self.waiting.clone();
        let mut count = 0;
        for runner in 0..self.slots.len() {
            if !self.is_open[runner] || self.is_draining(runner) {
                continue;
            }
            let mut packed = Vec::new();
            for (class, left) in waiting.iter_mut().enumerate().filter(|(_, left)| **left > 0) {
                let matches = match self.slots[runner].plan.walltime {
                    Some(_) => self.slots[runner].matches(&self.classes.classes[class], self.scenario, now),
                    None => self.matches[runner][class],
                };
                while matches
                    && *left > 0
                    && let Some(reservation) = self.slots[runner].reserve(&self.classes.classes[class])
                {
                    packed.push(reservation);
                    *left -= 1;
                    count += 1;
                }
            }
            packed.into_iter().for_each(|reservation| self.slots[runner].release(reservation));
        }
        count
    }

    /// Returns whether a runner collects nodes for a job that has no place yet.
    fn is_draining(&mut self, runner: usize) -> bool {
        let all = Drain { runner, class: 0 }..Drain { runner: runner + 1, class: 0 };
        let Some(drain) = self.drains.range(all).next() else { return false };
        let place = self.slots[runner].reserve(&self.classes.classes[drain.class]);
        place.map(|place| self.slots[runner].release(place)).is_none()
    }
}
