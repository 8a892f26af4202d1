//! The reference scheduler: knows all jobs and durations, pays no latency, and places greedily.
//!
//! At each moment it goes over the ready jobs by priority, longest remaining path and number, and puts each on the runner with the
//! least free capacity that can take it. With declared runtimes instead of durations it shows what a schedule can be that knows no
//! more than Torc does.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};
use std::time::Duration;

use torc_core::ledger::Reservation;

use crate::events::EventQueue;
use crate::graph::{children, remaining_paths};
use crate::placement::{JobClasses, RunnerSlots};
use crate::time::Time;
use crate::workload::{JobPlan, JobRef, Scenario};

/// A ready job; the least one is placed first.
type Rank = (Reverse<i64>, Reverse<Duration>, JobRef);

enum Change {
    Apply(usize),
    /// A runner arrives: there may be a place for jobs that wait.
    Arrive,
    End {
        job: JobRef,
        runner: usize,
        reservation: Reservation,
    },
}

/// The outcome of an attempt to place a ready job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placement {
    Started,
    /// There is room on a runner that leaves before the job would end.
    TooLong,
    NoRoom,
}

struct Reference<'a> {
    scenario: &'a Scenario,
    classes: JobClasses,
    runners: Vec<RunnerSlots<'a>>,
    paths: Vec<Vec<Duration>>,
    children: Vec<Vec<Vec<usize>>>,
    unmet: Vec<Vec<usize>>,
    /// Ready jobs of each class.
    ready: Vec<BTreeSet<Rank>>,
    changes: EventQueue<Change>,
}

/// The durations that the reference orders jobs by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knowledge {
    Durations,
    DeclaredRuntimes,
}

impl Knowledge {
    fn duration(self) -> fn(&JobPlan) -> Duration {
        match self {
            Self::Durations => |job| job.duration,
            Self::DeclaredRuntimes => |job| Duration::from_secs(job.runtime_seconds.unsigned_abs()),
        }
    }
}

/// Returns the end of the last measured job in the reference schedule.
pub fn reference_end(scenario: &Scenario, knowledge: Knowledge) -> Time {
    let mut reference = Reference::new(scenario, knowledge);
    let mut last_end = Time::ZERO;
    while let Some((now, change)) = reference.changes.pop() {
        if let Change::End { job, .. } = &change
            && scenario.is_measured(*job)
        {
            last_end = now;
        }
        reference.apply(change);
        // Everything that happens at one moment is known before anything is placed.
        if reference.changes.next_time() != Some(now) {
            reference.place(now);
        }
    }
    last_end
}

impl<'a> Reference<'a> {
    fn new(scenario: &'a Scenario, knowledge: Knowledge) -> Self {
        let mut changes = EventQueue::new();
        scenario
            .workflows
            .iter()
            .enumerate()
            .for_each(|(index, plan)| changes.push(plan.applied, Change::Apply(index)));
        scenario.runners.iter().for_each(|plan| changes.push(plan.arrives, Change::Arrive));
        let classes = JobClasses::new(scenario);
        Self {
            ready: vec![BTreeSet::new(); classes.classes.len()],
            classes,
            runners: scenario.runners.iter().map(RunnerSlots::new).collect(),
            paths: scenario.workflows.iter().map(|plan| remaining_paths(plan, knowledge.duration())).collect(),
            children: scenario.workflows.iter().map(children).collect(),
            unmet: scenario
                .workflows
                .iter()
                .map(|plan| plan.jobs.iter().map(|job| job.after.len()).collect())
                .collect(),
            changes,
            scenario,
        }
    }

    fn apply(&mut self, change: Change) {
        match change {
            Change::Arrive => {}
            Change::Apply(workflow) => {
                let jobs = 0..self.scenario.workflows[workflow].jobs.len();
                let ready: Vec<usize> = jobs.filter(|job| self.unmet[workflow][*job] == 0).collect();
                ready.into_iter().for_each(|job| self.add_ready(JobRef { workflow, job }));
            }
            Change::End { job: JobRef { workflow, job }, runner, reservation } => {
                self.runners[runner].release(reservation);
                for child in std::mem::take(&mut self.children[workflow][job]) {
                    self.unmet[workflow][child] -= 1;
                    if self.unmet[workflow][child] == 0 {
                        self.add_ready(JobRef { workflow, job: child });
                    }
                }
            }
        }
    }

    fn add_ready(&mut self, job: JobRef) {
        let rank = (Reverse(self.scenario.job(job).priority), Reverse(self.paths[job.workflow][job.job]), job);
        self.ready[self.classes.of(job)].insert(rank);
    }

    /// Places ready jobs until nothing fits any more.
    fn place(&mut self, now: Time) {
        let mut open: BTreeSet<(Rank, usize)> =
            self.ready.iter().enumerate().filter_map(|(class, ready)| Some((*ready.first()?, class))).collect();
        while let Some((rank, class)) = open.pop_first() {
            let placement = self.start(rank.2, class, now);
            // Jobs of a class differ only in their durations: if there is no room for one, there is none for the others.
            let next = self.ready[class].range((Excluded(rank), Unbounded)).next();
            open.extend(next.filter(|_| placement != Placement::NoRoom).map(|next| (*next, class)));
            if placement == Placement::Started {
                self.ready[class].remove(&rank);
            }
        }
    }

    fn start(&mut self, job: JobRef, class: usize, now: Time) -> Placement {
        let duration = self.scenario.job(job).duration;
        let class = &self.classes.classes[class];
        let may = |slots: &RunnerSlots<'_>| {
            slots.lasts(now, Duration::from_micros(1)) && slots.matches(class, self.scenario, now)
        };
        let mut suiting: Vec<usize> = (0..self.runners.len()).filter(|at| may(&self.runners[*at])).collect();
        suiting.sort_by_key(|at| {
            let free = self.runners[*at].free();
            (free.gpus, free.cpus, free.memory_bytes, *at)
        });
        let mut placement = Placement::NoRoom;
        for runner in suiting {
            let lasts = self.runners[runner].lasts(now, duration);
            match self.runners[runner].reserve(class) {
                Some(reservation) if lasts => {
                    self.changes.push(now.plus(duration), Change::End { job, runner, reservation });
                    return Placement::Started;
                }
                Some(reservation) => {
                    self.runners[runner].release(reservation);
                    placement = Placement::TooLong;
                }
                None => {}
            }
        }
        placement
    }
}
