//! What jobs and the node use: when samples are due, what becomes of them, and what follows from too much memory.

use std::collections::BTreeMap;
use std::time::Duration;

use torc_api::execution::{Granularity, MonitorPlan};
use torc_api::state::Cause;
use torc_api::wire::{AttemptKey, FinishedAttempt};

use self::node::Node;
use super::jobs::{Job, Stage};
use super::reports::Report;
use super::{Effect, State};
use crate::clock::BootInstant;
use crate::events::RunnerEvent;
use crate::gpus;
use crate::monitor::{Probe, SampleOrder, Samples};
use crate::protocol::StopReason;
use crate::series::{JobRow, Measurement, Record};

mod node;

/// SIGKILL, as a shell says it.
const KILLED: i32 = 128 + 9;
/// A job that was killed by somebody else with so much of its memory in use, in percent, was most likely killed for that.
const AT_THE_LIMIT: i128 = 95;

/// What is to be measured, and when.
#[derive(Debug)]
pub(super) struct UsageMonitor {
    /// When samples are due next, by the seconds between them.
    due: BTreeMap<u32, BootInstant>,
    /// Samples are being taken; nobody waits in line behind a slow `/proc`.
    busy: bool,
    /// How many processes the kernel had killed for want of memory when that was last looked at.
    oom_kills: u64,
    /// The node, for each workflow and run that wants it measured.
    nodes: BTreeMap<(i64, i32), Node>,
}

impl UsageMonitor {
    pub fn new(oom_kills: u64) -> Self {
        Self { due: BTreeMap::new(), busy: false, oom_kills, nodes: BTreeMap::new() }
    }

    /// No samples will be taken.
    #[cfg(test)]
    pub fn is_idle(&self) -> bool {
        self.due.is_empty()
    }

    /// A job with this plan runs from now on.
    pub fn expect(&mut self, key: &AttemptKey, plan: &MonitorPlan, now: BootInstant) {
        if plan.node.is_some() {
            self.nodes.entry((key.workflow, key.run)).or_insert_with(|| Node::new(*plan));
        }
        if plan.jobs.is_some() || plan.node.is_some() {
            self.due.entry(plan.interval_seconds).or_insert_with(|| now.plus(seconds(plan.interval_seconds)));
        }
    }
}

fn seconds(seconds: u32) -> Duration {
    Duration::from_secs(seconds.into())
}

/// Somebody else killed it: the kernel may have done so for want of memory.
pub(super) fn may_be_out_of_memory(finished: &FinishedAttempt) -> bool {
    finished.return_code == KILLED && finished.cause == Some(Cause::ExitCode)
}

/// What is kept of an attempt that ended, where its workflow wants that.
pub(super) fn record_of(key: AttemptKey, job: &Job, report: &Report) -> Option<Record> {
    let template = &job.launch.template;
    if !template.monitor.is_recorded() {
        return None;
    }
    let row = JobRow {
        key,
        name: job.name.clone(),
        started: report.ended.minus(Duration::from_millis(report.finished.duration_ms)),
        ended: report.ended,
        return_code: report.finished.return_code,
        cause: report.finished.cause,
        usage: report.finished.usage.unwrap_or_default(),
        resources: template.resources,
        memory_limit_bytes: template.memory_limit_bytes,
        devices: job.devices.clone(),
    };
    Some(Record {
        workflow: key.workflow,
        run: key.run,
        plan: template.monitor,
        measurement: Measurement::Job(Box::new(row)),
    })
}

impl State {
    /// Orders the samples that are due.
    pub(super) fn measure(&mut self, now: BootInstant, effects: &mut Vec<Effect>) {
        let mut order = SampleOrder::default();
        let due: Vec<u32> = self.usage.due.iter().filter(|(_, at)| **at <= now).map(|(every, _)| *every).collect();
        for every in due {
            let before = order.probes.len();
            order.probes.extend(self.probes(every));
            let node = self.usage.nodes.values().any(|node| node.plan.interval_seconds == every);
            order.node |= node;
            let steps = self.steps_are_due(every);
            if order.probes.len() == before && !node && !steps {
                self.usage.due.remove(&every);
            } else {
                self.usage.due.insert(every, now.plus(seconds(every)));
            }
        }
        if (order.node || !order.probes.is_empty()) && !self.usage.busy {
            self.usage.busy = true;
            order.gpus = !self.settings.devices.is_empty();
            effects.push(Effect::Sample(order));
        }
        if let Some(next) = self.usage.due.values().min().copied() {
            self.wake(next);
        }
    }

    /// The running jobs that are measured at this interval.
    fn probes(&self, every: u32) -> impl Iterator<Item = Probe> {
        self.jobs.active().filter_map(move |(key, job)| {
            let template = &job.launch.template;
            let measured = template.monitor.jobs.is_some() && template.monitor.interval_seconds == every;
            // The process of a step is `srun`, and the job is elsewhere.
            let there = job.stage == Stage::Running && job.pid > 0 && !template.in_step;
            (measured && there).then_some(Probe { key, pid: job.pid, limit_bytes: template.memory_limit_bytes })
        })
    }

    /// Samples were taken: they are remembered, and a job with too much memory is killed at once.
    pub(super) fn sampled(&mut self, samples: &Samples, now: BootInstant, effects: &mut Vec<Effect>) {
        self.usage.busy = false;
        let mut records = Vec::new();
        if let Some(sample) = &samples.node {
            let gpus = gpus::load(&self.settings.devices, &samples.gpus);
            let nodes = self.usage.nodes.iter_mut();
            records.extend(nodes.filter_map(|(of, node)| node.add(*of, sample, gpus, samples.at)));
        }
        for (key, sample) in &samples.jobs {
            let Some(job) = self.jobs.get(key).filter(|job| job.stage == Stage::Running) else { continue };
            let (plan, limit) = (job.launch.template.monitor, job.launch.template.memory_limit_bytes);
            let (since, pid, gpus) = (job.since, job.pid, gpus::load(&job.devices, &samples.gpus));
            let Some(usage) = self.jobs.usage_mut(key) else { continue };
            let point = usage.add(sample, gpus, since, samples.at);
            if plan.jobs == Some(Granularity::TimeSeries) {
                let measurement = Measurement::JobSample { key: *key, at: samples.at, point };
                records.push(Record { workflow: key.workflow, run: key.run, plan, measurement });
            }
            let Some(limit) = limit.filter(|limit| sample.memory_bytes > *limit) else { continue };
            if !usage.note_violation(sample.memory_bytes) {
                continue;
            }
            effects.push(Effect::Log(RunnerEvent::OomViolation {
                key: *key,
                pid,
                memory_bytes: sample.memory_bytes,
                limit_bytes: limit,
            }));
            effects.push(Effect::Log(RunnerEvent::OomKill { key: *key }));
            self.kill(*key, StopReason::OutOfMemory, now, effects);
        }
        if !records.is_empty() {
            effects.push(Effect::Record(records));
        }
    }

    /// The last word about the node.
    pub(super) fn sum_up_node(&mut self, effects: &mut Vec<Effect>) {
        let records: Vec<Record> = self.usage.nodes.iter().map(|(of, node)| node.sum_up(*of)).collect();
        if !records.is_empty() {
            effects.push(Effect::Record(records));
        }
    }

    /// Somebody killed a job, and the kernel says how many processes it has killed for want of memory. If there are more than
    /// before, or the job was at its limit, that is why.
    pub(super) fn blame_memory(&mut self, key: AttemptKey, kills: u64) {
        let killed_one = kills > std::mem::replace(&mut self.usage.oom_kills, kills);
        let (Some(job), Some(finished)) = (self.jobs.get(&key), self.reports.finished_mut(&key)) else { return };
        let peak = finished.usage.and_then(|usage| usage.peak_memory_bytes).unwrap_or_default();
        let limit = job.launch.template.memory_limit_bytes;
        let at_the_limit = limit.is_some_and(|limit| i128::from(peak) * 100 >= i128::from(limit) * AT_THE_LIMIT);
        if killed_one || at_the_limit {
            finished.cause = Some(Cause::OutOfMemory);
            finished.return_code = job.launch.template.oom_exit_code;
            let message = if killed_one {
                "the kernel killed it because memory ran out"
            } else {
                "it was killed with its memory used up"
            };
            finished.message = Some(message.to_owned());
        }
    }
}
