//! What jobs and the node use: when samples are due, what becomes of them, and what follows from too much memory.

use std::collections::BTreeMap;
use std::time::Duration;

use torc_api::execution::{Granularity, MonitorPlan};
use torc_api::state::Cause;
use torc_api::wire::{AttemptKey, FinishedAttempt, Profile, Usage};

use self::node::Node;
use self::spread::{Spread, as_float, as_whole};
use super::job::{Job, Report, Stage};
use super::{Effect, State};
use crate::clock::BootInstant;
use crate::events::RunnerEvent;
use crate::gpus::{self, GpuLoad};
use crate::monitor::{JobSample, Probe, SampleOrder, Samples};
use crate::protocol::{Ended, Ending, Terms};
use crate::series::{DataPoint, JobRow, Measurement, Record};

mod node;
mod spread;

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

/// What is known of one attempt's use.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UsageStats {
    samples: u32,
    peak_memory_bytes: i64,
    memory_sum: i128,
    peak_cpu_percent: f64,
    gpu: Spread,
    gpu_memory: Spread,
    /// When the latest sample was taken, and the CPU time up to then.
    latest: Option<(BootInstant, u64)>,
    /// The memory that was too much.
    violation: Option<i64>,
}

impl UsageStats {
    /// Takes in a sample of a job that runs since `started`, and of its GPUs.
    fn add(&mut self, sample: &JobSample, gpus: Option<GpuLoad>, started: BootInstant, at: BootInstant) -> DataPoint {
        self.samples += 1;
        self.peak_memory_bytes = self.peak_memory_bytes.max(sample.memory_bytes);
        self.memory_sum += i128::from(sample.memory_bytes);
        let (since, before) = self.latest.unwrap_or((started, 0));
        let cpu_percent = percent(sample.cpu_us.saturating_sub(before), at.since(since)).unwrap_or_default();
        self.peak_cpu_percent = self.peak_cpu_percent.max(cpu_percent);
        self.latest = Some((at, sample.cpu_us));
        if let Some(load) = gpus {
            self.gpu.add(load.percent.into());
            self.gpu_memory.add(as_float(load.memory_bytes));
        }
        DataPoint {
            cpu_percent,
            memory_bytes: sample.memory_bytes,
            processes: sample.processes,
            gpu_percent: gpus.map(|load| load.percent.into()),
            gpu_memory_bytes: gpus.map(|load| load.memory_bytes),
        }
    }

    /// Peaks and averages. The operating system's own counts are exact for CPU and cover the time between samples; the memory of
    /// several processes at once is only in the samples.
    pub fn usage(&self, ended: &Ended) -> Option<Usage> {
        let rusage = ended.rusage?;
        let counted = rusage.peak_memory_bytes.and_then(|bytes| i64::try_from(bytes).ok());
        let sampled = (self.samples > 0).then_some(self.peak_memory_bytes);
        let average_memory = self.memory_sum.checked_div(self.samples.into());
        let average_cpu = percent(rusage.cpu_us, ended.ended.since(ended.started));
        Some(Usage {
            peak_memory_bytes: counted.max(sampled),
            average_memory_bytes: average_memory.and_then(|bytes| i64::try_from(bytes).ok()),
            peak_cpu_percent: average_cpu.map(|average| average.max(self.peak_cpu_percent)),
            average_cpu_percent: average_cpu,
            peak_gpu_percent: self.gpu.peak(),
            average_gpu_percent: self.gpu.average(),
            peak_gpu_memory_bytes: self.gpu_memory.peak().map(as_whole),
        })
    }

    /// A sentence about the memory that was too much.
    pub fn excess(&self, terms: &Terms) -> Option<String> {
        let (memory, limit) = (self.violation?, terms.memory_limit_bytes?);
        Some(format!("it had {} of memory, and may have {}", amount(memory), amount(limit)))
    }
}

/// CPU time in percent of the time that passed, in tenths.
fn percent(cpu_us: u64, time: Duration) -> Option<f64> {
    let time_us = time.as_micros();
    if time_us == 0 {
        return None;
    }
    let tenths = u128::from(cpu_us) * 1_000 / time_us;
    Some(u32::try_from(tenths).map_or(f64::from(u32::MAX), f64::from) / 10.0)
}

/// Bytes in a unit that suits them, in powers of 1024.
fn amount(bytes: i64) -> String {
    let (unit, name) = if bytes < 1 << 30 { (1 << 20, "MB") } else { (1 << 30, "GB") };
    #[expect(clippy::cast_precision_loss, reason = "two digits are shown")]
    let amount = bytes as f64 / f64::from(unit);
    format!("{amount:.2}{name}")
}

/// The memory that a job is killed above, where the runner sees to that itself: not for one that declares nothing, and not where
/// nobody measures.
pub(super) fn memory_limit(profile: &Profile) -> Option<i64> {
    let config = profile.execution_config.clone().unwrap_or_default();
    let is_measured = profile.resource_monitor.clone().unwrap_or_default().plan().jobs.is_some();
    let is_limited = config.limit_resources.unwrap_or(true) && !profile.unlimited;
    (is_measured && is_limited).then_some(profile.resources.memory_bytes)
}

/// Somebody else killed it: the kernel may have done so for want of memory.
pub(super) fn may_be_out_of_memory(finished: &FinishedAttempt) -> bool {
    finished.return_code == KILLED && finished.cause == Some(Cause::ExitCode)
}

/// What is kept of an attempt that ended, where its workflow wants that.
pub(super) fn record_of(key: AttemptKey, job: &Job, report: &Report) -> Option<Record> {
    let terms = job.launch.terms();
    if !terms.monitor.is_recorded() {
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
        resources: terms.resources,
        memory_limit_bytes: terms.memory_limit_bytes,
        devices: job.devices.clone(),
    };
    Some(Record {
        workflow: key.workflow,
        run: key.run,
        plan: terms.monitor,
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
        let running = self.active.iter().filter_map(|key| Some((*key, self.jobs.get(key)?)));
        running.filter_map(move |(key, job)| {
            let terms = job.launch.terms();
            let measured = terms.monitor.jobs.is_some() && terms.monitor.interval_seconds == every;
            // The process of a step is `srun`, and the job is elsewhere.
            let there = job.stage == Stage::Running && job.pid > 0 && !terms.in_step;
            (measured && there).then_some(Probe { key, pid: job.pid, limit_bytes: terms.memory_limit_bytes })
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
            let Some(job) = self.jobs.get_mut(key).filter(|job| job.stage == Stage::Running) else { continue };
            let point = job.usage.add(sample, gpus::load(&job.devices, &samples.gpus), job.since, samples.at);
            let plan = job.launch.terms().monitor;
            if plan.jobs == Some(Granularity::TimeSeries) {
                let measurement = Measurement::JobSample { key: *key, at: samples.at, point };
                records.push(Record { workflow: key.workflow, run: key.run, plan, measurement });
            }
            let Some(limit) = job.launch.terms().memory_limit_bytes else { continue };
            if sample.memory_bytes <= limit || job.usage.violation.is_some() {
                continue;
            }
            job.usage.violation = Some(sample.memory_bytes);
            effects.push(Effect::Log(RunnerEvent::OomViolation {
                key: *key,
                pid: job.pid,
                memory_bytes: sample.memory_bytes,
                limit_bytes: limit,
            }));
            effects.push(Effect::Log(RunnerEvent::OomKill { key: *key }));
            self.kill(*key, Ending::OutOfMemory, now, effects);
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
        let (Some(job), Some(report)) = (self.jobs.get(&key), self.reports.get_mut(&key)) else { return };
        let peak = report.finished.usage.and_then(|usage| usage.peak_memory_bytes).unwrap_or_default();
        let limit = job.launch.terms().memory_limit_bytes;
        let at_the_limit = limit.is_some_and(|limit| i128::from(peak) * 100 >= i128::from(limit) * AT_THE_LIMIT);
        if killed_one || at_the_limit {
            report.finished.cause = Some(Cause::OutOfMemory);
            report.finished.return_code = job.launch.terms().oom_exit_code;
            let message = if killed_one {
                "the kernel killed it because memory ran out"
            } else {
                "it was killed with its memory used up"
            };
            report.finished.message = Some(message.to_owned());
        }
    }
}
