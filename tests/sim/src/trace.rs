//! The record of a simulation.

use std::time::Duration;

use crate::time::Time;
use crate::workload::{JobRef, Scenario};

/// The processes and events of a simulation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// In the order of their starts.
    pub attempts: Vec<Attempt>,
    /// Leases that a runner gave back because the server asked for them.
    pub lease_moves: u64,
    pub syncs: u64,
    /// The end of the simulation.
    pub ended: Time,
}

/// A process of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    pub job: JobRef,
    pub runner: usize,
    /// The engine's number of the attempt.
    pub number: i32,
    /// Time of the order to the shim, from which the process uses resources.
    pub ordered: Time,
    pub started: Time,
    /// None while it runs.
    pub ended: Option<Time>,
    /// The process exited with 0 without a stop signal.
    pub succeeded: bool,
}

impl Attempt {
    /// Returns its time from start to end, or to `now`.
    pub fn busy_until(&self, now: Time) -> Duration {
        self.ended.unwrap_or(now).min(now).since(self.started)
    }
}

/// Ready time and start of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobTimes {
    /// The end of its last dependency, or the time at which its workflow was applied.
    pub ready: Time,
    /// The start of its first attempt.
    pub started: Time,
    /// The end of the attempt that succeeded.
    pub ended: Time,
    /// The runner of that attempt.
    pub runner: usize,
}

impl Trace {
    /// Returns the times of all jobs, by workflow and job; none for a job that did not succeed.
    pub fn job_times(&self, scenario: &Scenario) -> Vec<Vec<Option<JobTimes>>> {
        let mut times: Vec<Vec<Option<JobTimes>>> =
            scenario.workflows.iter().map(|workflow| vec![None; workflow.jobs.len()]).collect();
        let mut first_start: Vec<Vec<Option<Time>>> =
            scenario.workflows.iter().map(|workflow| vec![None; workflow.jobs.len()]).collect();
        for attempt in &self.attempts {
            let JobRef { workflow, job } = attempt.job;
            let started = *first_start[workflow][job].get_or_insert(attempt.started);
            let Some(ended) = attempt.ended.filter(|_| attempt.succeeded) else { continue };
            times[workflow][job].get_or_insert(JobTimes {
                ready: scenario.workflows[workflow].applied,
                started,
                ended,
                runner: attempt.runner,
            });
        }
        for (workflow, plan) in scenario.workflows.iter().enumerate() {
            for (job, plan) in plan.jobs.iter().enumerate() {
                let ends = plan.after.iter().filter_map(|parent| times[workflow][*parent]).map(|times| times.ended);
                let last = ends.max().unwrap_or_default();
                if let Some(times) = &mut times[workflow][job] {
                    times.ready = times.ready.max(last);
                }
            }
        }
        times
    }

    /// Returns the number of jobs that have not succeeded.
    pub fn unfinished(&self, scenario: &Scenario) -> usize {
        self.job_times(scenario).iter().flatten().filter(|times| times.is_none()).count()
    }

    /// Returns the end of the last job that counts for the makespan.
    pub fn last_end(&self, scenario: &Scenario) -> Time {
        let measured = self.attempts.iter().filter(|attempt| scenario.is_measured(attempt.job));
        measured.filter_map(|attempt| attempt.ended).max().unwrap_or_default()
    }

    /// Returns the time from the first measured workflow to the end of its last job.
    pub fn makespan(&self, scenario: &Scenario) -> Duration {
        self.last_end(scenario).since(scenario.measured_from())
    }
}
