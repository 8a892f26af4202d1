//! What steps use while they run. Their processes may be on other nodes, so Slurm is asked: once for the numbers of all steps that
//! have none yet, and then once for what they all use.

use std::collections::{BTreeMap, BTreeSet};

use torc_api::execution::Granularity;
use torc_api::wire::AttemptKey;
use torc_slurm::retry::STEP_NUMBER;
use torc_slurm::sstat::Sample;

use super::jobs::{Job, Stage};
use super::{Effect, State};
use crate::clock::BootInstant;
use crate::series::{DataPoint, Measurement, Record};
use crate::slurm_query::SlurmQuery;

/// What is to be asked about steps that run.
#[derive(Debug, Default)]
pub(super) struct StepTracker {
    /// Steps that are to be measured now.
    due: BTreeSet<AttemptKey>,
    /// Slurm was asked and has not answered.
    asked: bool,
    /// Numbers are not looked for before.
    ask_at: BootInstant,
}

/// It runs as a step.
fn is_running_step(job: &Job) -> bool {
    job.stage == Stage::Running && job.launch.template.in_step
}

impl State {
    /// The steps that are measured at this interval are due. Whether there are any.
    pub(super) fn steps_are_due(&mut self, every: u32) -> bool {
        let steps = self.jobs.active().filter(|(_, job)| {
            let monitor = job.launch.template.monitor;
            is_running_step(job) && monitor.jobs.is_some() && monitor.interval_seconds == every
        });
        let steps: Vec<AttemptKey> = steps.map(|(key, _)| key).collect();
        self.steps.due.extend(&steps);
        !steps.is_empty()
    }

    fn running_steps(&self) -> Vec<AttemptKey> {
        self.jobs.active().filter(|(_, job)| is_running_step(job)).map(|(key, _)| key).collect()
    }

    /// A step's number is wanted. Whether it may still be found.
    pub(super) fn expect_number(&mut self, key: AttemptKey) -> bool {
        let may_be_found = self.jobs.get(&key).is_some_and(|job| job.step.may_have_number());
        if may_be_found {
            self.steps.due.insert(key);
        }
        may_be_found
    }

    /// Asks for the numbers of steps that are due, and then for what they use.
    pub(super) fn query_steps(&mut self, now: BootInstant, effects: &mut Vec<Effect>) {
        if self.steps.asked {
            return;
        }
        let jobs = &self.jobs;
        self.steps.due.retain(|key| jobs.get(key).is_some_and(is_running_step));
        let due = || self.steps.due.iter().filter_map(|key| jobs.get(key));
        if due().any(|job| job.step.number.is_none() && job.step.may_have_number()) {
            if now < self.steps.ask_at {
                self.wake(self.steps.ask_at);
                return;
            }
            self.steps.asked = true;
            effects.push(Effect::QuerySlurm(SlurmQuery::StepNumbers));
            return;
        }
        let numbers: Vec<u32> = due().filter_map(|job| job.step.number).collect();
        self.steps.due.clear();
        if !numbers.is_empty() {
            self.steps.asked = true;
            effects.push(Effect::QuerySlurm(SlurmQuery::StepUsage(numbers)));
        }
    }

    /// Slurm has said which steps run.
    pub(super) fn steps_numbered(&mut self, numbers: &[(String, u32)], now: BootInstant) {
        self.steps.asked = false;
        self.steps.ask_at = now.plus(STEP_NUMBER.pause);
        let numbers: BTreeMap<&str, u32> = numbers.iter().map(|(name, number)| (name.as_str(), *number)).collect();
        for key in self.running_steps() {
            let Some(step) = self.jobs.step_mut(&key) else { continue };
            match numbers.get(key.label().as_str()) {
                Some(number) => step.number = Some(*number),
                None if self.steps.due.contains(&key) => step.tries += 1,
                None => {}
            }
        }
    }

    /// Slurm has said what steps had used at a moment.
    pub(super) fn steps_measured(&mut self, at: BootInstant, samples: &[Sample], effects: &mut Vec<Effect>) {
        self.steps.asked = false;
        let samples: BTreeMap<u32, &Sample> = samples.iter().map(|sample| (sample.step, sample)).collect();
        let mut records = Vec::new();
        for key in self.running_steps() {
            let Some(plan) = self.jobs.get(&key).map(|job| job.launch.template.monitor) else { continue };
            let Some(step) = self.jobs.step_mut(&key) else { continue };
            let Some(sample) = step.number.and_then(|number| samples.get(&number)) else { continue };
            let milliseconds = i64::try_from(at.0 / 1_000).unwrap_or(i64::MAX);
            let Some(cpu_percent) = step.meter.take(milliseconds, sample) else { continue };
            if plan.jobs == Some(Granularity::TimeSeries) {
                // Slurm counts tasks and not processes.
                let memory_bytes = sample.memory_bytes.unwrap_or_default();
                let point = DataPoint { cpu_percent, memory_bytes, ..DataPoint::default() };
                let measurement = Measurement::JobSample { key, at, point };
                records.push(Record { workflow: key.workflow, run: key.run, plan, measurement });
            }
        }
        if !records.is_empty() {
            effects.push(Effect::Record(records));
        }
    }
}
