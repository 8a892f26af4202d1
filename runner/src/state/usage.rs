//! Usage of jobs and of the node: schedules samples, records them, and enforces memory limits.

use std::collections::BTreeMap;
use std::time::Duration;

use torc_api::execution::{Granularity, MonitorPlan};
use torc_api::state::Cause;
use torc_api::wire::{AttemptKey, FinishedAttempt};

use self::node::NodeUsage;
use super::jobs::{JobStage, Jobs, LeasedJob};
use super::reports::PendingReport;
use super::steps::StepTracker;
use super::timer::Timer;
use super::{Effect, State};
use crate::clock::BootInstant;
use crate::events::RunnerEvent;
use crate::gpus;
use crate::monitor::{JobProbe, SampleOrder, Samples};
use crate::protocol::StopReason;
use crate::series::{JobUsageRow, Measurement, MeasurementRecord};

mod node;

/// The exit code of a job that SIGKILL has ended, as in a shell: 128 + 9.
const KILLED: i32 = 128 + 9;
/// Share of the memory limit, in percent, above which a killed job counts as out of memory. The last sample before a kill is
/// usually a little below the limit.
const OOM_USAGE_PERCENT: i128 = 95;

/// The schedule of samples, and the usage of the node.
#[derive(Debug)]
pub(super) struct UsageMonitor {
    /// The next moment of each interval, in seconds.
    due: BTreeMap<u32, BootInstant>,
    /// True if samples are being taken: orders do not queue behind a slow `/proc`.
    busy: bool,
    /// Number of processes that the kernel had killed for lack of memory at the last check.
    oom_kills: u64,
    /// The usage of the node for each workflow and run that measures it.
    nodes: BTreeMap<(i64, i32), NodeUsage>,
}

impl UsageMonitor {
    pub fn new(oom_kills: u64) -> Self {
        Self { due: BTreeMap::new(), busy: false, oom_kills, nodes: BTreeMap::new() }
    }

    /// Returns whether no samples are scheduled.
    #[cfg(test)]
    pub fn is_idle(&self) -> bool {
        self.due.is_empty()
    }

    /// Schedules samples of a job that starts now.
    pub fn expect(&mut self, key: &AttemptKey, plan: &MonitorPlan, now: BootInstant) {
        if plan.node.is_some() {
            self.nodes.entry((key.workflow, key.run)).or_insert_with(|| NodeUsage::new(*plan));
        }
        if plan.jobs.is_some() || plan.node.is_some() {
            self.due.entry(plan.interval_seconds).or_insert_with(|| now.plus(seconds(plan.interval_seconds)));
        }
    }

    /// Returns the order for the samples that are due.
    pub fn next_order(
        &mut self,
        jobs: &Jobs,
        steps: &mut StepTracker,
        has_gpus: bool,
        now: BootInstant,
        timer: &mut Timer,
    ) -> Option<SampleOrder> {
        let mut order = SampleOrder::default();
        let due: Vec<u32> = self.due.iter().filter(|(_, at)| **at <= now).map(|(every, _)| *every).collect();
        for every in due {
            let before = order.probes.len();
            order.probes.extend(probes(jobs, every));
            let measures_node = self.nodes.values().any(|node| node.plan.interval_seconds == every);
            order.node |= measures_node;
            let measures_steps = steps.measure(jobs, every);
            if order.probes.len() == before && !measures_node && !measures_steps {
                self.due.remove(&every);
            } else {
                self.due.insert(every, now.plus(seconds(every)));
            }
        }
        self.due.values().min().into_iter().for_each(|next| timer.set(*next));
        if self.busy || !order.node && order.probes.is_empty() {
            return None;
        }
        self.busy = true;
        order.gpus = has_gpus;
        Some(order)
    }

    /// Returns the summaries of the node's usage.
    pub fn node_summaries(&self) -> Vec<MeasurementRecord> {
        self.nodes.iter().map(|((workflow, run), node)| node.summary(*workflow, *run)).collect()
    }
}

fn seconds(seconds: u32) -> Duration {
    Duration::from_secs(seconds.into())
}

/// Returns whether another process killed the job: then the kernel may have done so for lack of memory.
pub(super) fn may_be_out_of_memory(finished: &FinishedAttempt) -> bool {
    finished.return_code == KILLED && finished.cause == Some(Cause::ExitCode)
}

/// Returns the row of an attempt in the measurement file, if its workflow keeps one.
pub(super) fn record_of(key: AttemptKey, job: &LeasedJob, report: &PendingReport) -> Option<MeasurementRecord> {
    let template = &job.launch.template;
    if !template.monitor.is_recorded() {
        return None;
    }
    let row = JobUsageRow {
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
    Some(MeasurementRecord {
        workflow: key.workflow,
        run: key.run,
        plan: template.monitor,
        measurement: Measurement::Job(Box::new(row)),
    })
}

/// Returns the running jobs that are measured at this interval.
fn probes(jobs: &Jobs, every: u32) -> impl Iterator<Item = JobProbe> {
    jobs.active().filter_map(move |(key, job)| {
        let template = &job.launch.template;
        let is_due = template.monitor.jobs.is_some() && template.monitor.interval_seconds == every;
        // The process of a step is `srun`: the job's processes may be on other nodes.
        let is_here = job.stage == JobStage::Running && job.pid > 0 && !template.in_step;
        (is_due && is_here).then_some(JobProbe { key, pid: job.pid, limit_bytes: template.memory_limit_bytes })
    })
}

impl State {
    /// Records samples, and kills jobs that exceed their memory limit.
    pub(super) fn sampled(&mut self, samples: &Samples, now: BootInstant, effects: &mut Vec<Effect>) {
        self.usage.busy = false;
        let mut records = Vec::new();
        if let Some(sample) = &samples.node {
            let gpus = gpus::load(&self.settings.devices, &samples.gpus);
            let nodes = self.usage.nodes.iter_mut();
            records.extend(nodes.filter_map(|(of, node)| node.add(of.0, of.1, sample, gpus, samples.at)));
        }
        for (key, sample) in &samples.jobs {
            let Some(job) = self.jobs.get(key).filter(|job| job.stage == JobStage::Running) else { continue };
            let (plan, limit) = (job.launch.template.monitor, job.launch.template.memory_limit_bytes);
            let (since, pid, gpus) = (job.since, job.pid, gpus::load(&job.devices, &samples.gpus));
            let Some(usage) = self.jobs.usage_mut(key) else { continue };
            let point = usage.add(sample, gpus, since, samples.at);
            if plan.jobs == Some(Granularity::TimeSeries) {
                let measurement = Measurement::JobSample { key: *key, at: samples.at, point };
                records.push(MeasurementRecord { workflow: key.workflow, run: key.run, plan, measurement });
            }
            let Some(limit) = limit.filter(|limit| sample.memory_bytes > *limit) else { continue };
            if !usage.record_violation(sample.memory_bytes) {
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

    /// Decides whether a job that another process killed ran out of memory. It did if the kernel has counted a new OOM
    /// kill, or if the job was at its limit.
    pub(super) fn apply_oom_kills(&mut self, key: AttemptKey, kills: u64) {
        let killed_one = kills > std::mem::replace(&mut self.usage.oom_kills, kills);
        let (Some(job), Some(finished)) = (self.jobs.get(&key), self.reports.finished_mut(&key)) else { return };
        let peak = finished.usage.and_then(|usage| usage.peak_memory_bytes).unwrap_or_default();
        let limit = job.launch.template.memory_limit_bytes;
        let at_limit = limit.is_some_and(|limit| i128::from(peak) * 100 >= i128::from(limit) * OOM_USAGE_PERCENT);
        if killed_one || at_limit {
            finished.cause = Some(Cause::OutOfMemory);
            finished.return_code = job.launch.template.oom_exit_code;
            let message = if killed_one {
                "killed by the kernel: the node ran out of memory"
            } else {
                "killed while its memory was used up"
            };
            finished.message = Some(message.to_owned());
        }
    }
}
