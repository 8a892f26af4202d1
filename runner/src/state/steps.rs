//! Usage of running steps. Their processes may be on other nodes, so Slurm is queried: first for the numbers of new
//! steps, then for the usage of all steps.

use std::collections::{BTreeMap, BTreeSet};

use torc_api::execution::Granularity;
use torc_api::wire::AttemptKey;
use torc_slurm::retry::STEP_ID_RETRIES;
use torc_slurm::sstat::Sample;

use super::jobs::{JobStage, Jobs, LeasedJob};
use super::timer::Timer;
use crate::clock::BootInstant;
use crate::series::{DataPoint, Measurement, MeasurementRecord};
use crate::slurm_query::SlurmQuery;

/// The queries about running steps.
#[derive(Debug, Default)]
pub(super) struct StepTracker {
    /// Steps that are to be measured now.
    due: BTreeSet<AttemptKey>,
    /// True if a query is in flight.
    is_query_sent: bool,
    /// The earliest moment of the next query for numbers.
    ask_at: BootInstant,
}

impl StepTracker {
    /// Marks the steps that are measured at this interval as due. Returns whether there are any.
    pub fn measure(&mut self, jobs: &Jobs, every: u32) -> bool {
        let steps = running_steps(jobs).filter(|(_, job)| {
            let monitor = job.launch.template.monitor;
            monitor.jobs.is_some() && monitor.interval_seconds == every
        });
        let steps: Vec<AttemptKey> = steps.map(|(key, _)| key).collect();
        self.due.extend(&steps);
        !steps.is_empty()
    }

    /// Requests a step's number. Returns false if too many queries have not found it.
    pub fn expect_number(&mut self, key: AttemptKey, job: &LeasedJob) -> bool {
        let may_be_found = job.step.may_have_number();
        if may_be_found {
            self.due.insert(key);
        }
        may_be_found
    }

    /// Returns the query that is due: for numbers first, then for usage.
    pub fn next_query(&mut self, jobs: &Jobs, now: BootInstant, timer: &mut Timer) -> Option<SlurmQuery> {
        if self.is_query_sent {
            return None;
        }
        self.due.retain(|key| jobs.get(key).is_some_and(is_running_step));
        let due = || self.due.iter().filter_map(|key| jobs.get(key));
        if due().any(|job| job.step.number.is_none() && job.step.may_have_number()) {
            if now < self.ask_at {
                timer.set(self.ask_at);
                return None;
            }
            self.is_query_sent = true;
            return Some(SlurmQuery::StepNumbers);
        }
        let numbers: Vec<u32> = due().filter_map(|job| job.step.number).collect();
        self.due.clear();
        self.is_query_sent = !numbers.is_empty();
        self.is_query_sent.then_some(SlurmQuery::StepUsage(numbers))
    }

    /// Records the numbers of all running steps, by name.
    pub fn numbered(&mut self, jobs: &mut Jobs, numbers: &[(String, u32)], now: BootInstant) {
        self.is_query_sent = false;
        self.ask_at = now.plus(STEP_ID_RETRIES.delay);
        let numbers: BTreeMap<&str, u32> = numbers.iter().map(|(name, number)| (name.as_str(), *number)).collect();
        let running: Vec<AttemptKey> = running_steps(jobs).map(|(key, _)| key).collect();
        for key in running {
            let Some(step) = jobs.step_mut(&key) else { continue };
            match numbers.get(key.label().as_str()) {
                Some(number) => step.number = Some(*number),
                None if self.due.contains(&key) => step.tries += 1,
                None => {}
            }
        }
    }

    /// Records the usage of steps at a moment. Returns the samples that go into files.
    pub fn measured(&mut self, jobs: &mut Jobs, at: BootInstant, samples: &[Sample]) -> Vec<MeasurementRecord> {
        self.is_query_sent = false;
        let samples: BTreeMap<u32, &Sample> = samples.iter().map(|sample| (sample.step, sample)).collect();
        let mut records = Vec::new();
        let running = running_steps(jobs).map(|(key, job)| (key, job.launch.template.monitor));
        for (key, plan) in running.collect::<Vec<_>>() {
            let Some(step) = jobs.step_mut(&key) else { continue };
            let Some(sample) = step.number.and_then(|number| samples.get(&number)) else { continue };
            let milliseconds = i64::try_from(at.0 / 1_000).unwrap_or(i64::MAX);
            let Some(cpu_percent) = step.meter.take(milliseconds, sample) else { continue };
            if plan.jobs == Some(Granularity::TimeSeries) {
                // Slurm counts tasks and not processes.
                let memory_bytes = sample.memory_bytes.unwrap_or_default();
                let point = DataPoint { cpu_percent, memory_bytes, ..DataPoint::default() };
                let measurement = Measurement::JobSample { key, at, point };
                records.push(MeasurementRecord { workflow: key.workflow, run: key.run, plan, measurement });
            }
        }
        records
    }
}

fn is_running_step(job: &LeasedJob) -> bool {
    job.stage == JobStage::Running && job.launch.template.in_step
}

fn running_steps(jobs: &Jobs) -> impl Iterator<Item = (AttemptKey, &LeasedJob)> {
    jobs.active().filter(|(_, job)| is_running_step(job))
}
