//! Measures of a schedule.

use std::time::Duration;

use torc_api::wire::Resources;
use torc_core::class::JobClass;

use crate::bound::lower_bound;
use crate::idle::idle_time;
use crate::placement::JobClasses;
use crate::reference::{Knowledge, reference_end};
use crate::time::Time;
use crate::trace::{Attempt, Trace};
use crate::workload::{RunnerPlan, Scenario};

/// Measures of one schedule. Times count from the first workflow that is no warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measures {
    pub makespan: Duration,
    /// The makespan of the reference schedule.
    pub reference: Duration,
    /// The makespan of the reference schedule with declared runtimes instead of durations.
    pub declared_reference: Duration,
    /// No schedule is shorter.
    pub bound: Duration,
    /// Of the resource that is used the most: use divided by capacity, from 0 to 1.
    pub utilization: f64,
    /// Idle capacity that ready jobs could have used, divided by itself and the capacity that was used, from 0 to 1.
    pub idle_while_ready: f64,
    pub moves_per_job: f64,
    pub syncs_per_job: f64,
    /// Jobs that did not succeed.
    pub unfinished: usize,
}

impl Measures {
    /// Returns the makespan divided by that of the reference.
    pub fn ratio(&self) -> f64 {
        quotient(self.makespan, self.reference)
    }

    /// Returns the makespan of the reference that knows declared runtimes only, divided by that of the reference.
    pub fn declared_ratio(&self) -> f64 {
        quotient(self.declared_reference, self.reference)
    }

    /// Returns the lower bound divided by the makespan of the reference.
    pub fn bound_ratio(&self) -> f64 {
        quotient(self.bound, self.reference)
    }
}

/// Returns `part` divided by `whole`; 1 if there is nothing to divide.
pub fn quotient(part: Duration, whole: Duration) -> f64 {
    if whole.is_zero() { 1.0 } else { part.as_secs_f64() / whole.as_secs_f64() }
}

/// Computes the measures of a schedule.
pub fn measure(scenario: &Scenario, trace: &Trace) -> Measures {
    let from = scenario.measured_from();
    let jobs = scenario.jobs().count().max(1) as f64;
    let idle = idle_time(scenario, trace);
    let until = trace.last_end(scenario);
    let busy: Duration = trace.attempts.iter().map(|attempt| busy_time(attempt, from, until)).sum();
    Measures {
        makespan: trace.makespan(scenario),
        reference: reference_end(scenario, Knowledge::Durations).since(from),
        declared_reference: reference_end(scenario, Knowledge::DeclaredRuntimes).since(from),
        bound: lower_bound(scenario).since(from),
        utilization: utilization(scenario, trace),
        idle_while_ready: if idle.is_zero() { 0.0 } else { quotient(idle, idle + busy) },
        moves_per_job: trace.lease_moves as f64 / jobs,
        syncs_per_job: trace.syncs as f64 / jobs,
        unfinished: trace.unfinished(scenario),
    }
}

/// Returns how long a process ran in a time span.
fn busy_time(attempt: &Attempt, from: Time, until: Time) -> Duration {
    attempt.ended.unwrap_or(until).min(until).since(attempt.started.max(from))
}

/// Returns the utilization of the resource that is used the most.
fn utilization(scenario: &Scenario, trace: &Trace) -> f64 {
    let (from, until) = (scenario.measured_from(), trace.last_end(scenario));
    let classes = JobClasses::new(scenario);
    let mut used = Amounts::default();
    for attempt in &trace.attempts {
        let class: &JobClass = &classes.classes[classes.of(attempt.job)].class;
        let runner = &scenario.runners[attempt.runner];
        // Jobs that still run after the runner got its stop signal do not count as capacity.
        let until = runner.closes().map_or(until, |end| end.min(until));
        used.add(&class.demand(&runner.capacity), busy_time(attempt, from, until));
    }
    let mut present = Amounts::default();
    for runner in &scenario.runners {
        present.add(&runner.capacity, presence(runner, from, until));
    }
    let parts = used.0.iter().zip(present.0).filter(|(_, present)| *present > 0.0);
    parts.map(|(used, present)| used / present).fold(0.0, f64::max)
}

fn presence(runner: &RunnerPlan, from: Time, until: Time) -> Duration {
    runner.closes().map_or(until, |end| end.min(until)).since(runner.arrives.max(from))
}

/// CPU seconds, byte seconds and GPU seconds.
#[derive(Default)]
struct Amounts([f64; 3]);

impl Amounts {
    fn add(&mut self, resources: &Resources, time: Duration) {
        let amounts = [resources.cpus, resources.memory_bytes, resources.gpus];
        for (sum, amount) in self.0.iter_mut().zip(amounts) {
            *sum += amount as f64 * time.as_secs_f64();
        }
    }
}
