//! What is known of a node's use, for one workflow that wants it measured.

use torc_api::execution::{Granularity, MonitorPlan};

use crate::clock::Moment;
use crate::monitor::NodeSample;
use crate::series::{Fact, NodePoint, NodeSummary, Record};

#[derive(Debug)]
pub(in crate::state) struct Node {
    pub plan: MonitorPlan,
    latest: Option<NodeSample>,
    samples: u32,
    cpu: Spread,
    memory: Spread,
}

/// The most, and the sum for an average.
#[derive(Debug, Default)]
struct Spread {
    peak: f64,
    sum: f64,
    count: u32,
}

impl Spread {
    fn add(&mut self, value: f64) {
        self.peak = self.peak.max(value);
        self.sum += value;
        self.count += 1;
    }

    fn summary(&self) -> Option<(f64, f64)> {
        (self.count > 0).then(|| (self.peak, self.sum / f64::from(self.count)))
    }
}

impl Node {
    pub fn new(plan: MonitorPlan) -> Self {
        Self { plan, latest: None, samples: 0, cpu: Spread::default(), memory: Spread::default() }
    }

    /// Takes in a sample; what is to be kept of it. CPU is known from the second one on.
    pub fn add(&mut self, (workflow, run): (i64, i32), sample: &NodeSample, at: Moment) -> Option<Record> {
        let wanted = self.plan.node?;
        let before = self.latest.replace(*sample);
        self.samples += 1;
        let cpu_percent = before.filter(|_| wanted.cpu).and_then(|before| busy_percent(&before, sample));
        let memory_bytes = wanted.memory.then_some(sample.memory_bytes);
        cpu_percent.into_iter().for_each(|percent| self.cpu.add(percent));
        memory_bytes.into_iter().for_each(|bytes| self.memory.add(as_float(bytes)));
        let total_memory_bytes = wanted.memory.then_some(sample.total_memory_bytes);
        let fact = Fact::NodeSample { at, point: NodePoint { cpu_percent, memory_bytes, total_memory_bytes } };
        (wanted.granularity == Granularity::TimeSeries).then_some(Record { workflow, run, plan: self.plan, fact })
    }

    /// Everything that was measured, in short.
    pub fn sum_up(&self, (workflow, run): (i64, i32)) -> Record {
        let (cpu, memory) = (self.cpu.summary(), self.memory.summary());
        let summary = NodeSummary {
            samples: self.samples,
            peak_cpu_percent: cpu.map(|(peak, _)| peak),
            average_cpu_percent: cpu.map(|(_, average)| average),
            peak_memory_bytes: memory.map(|(peak, _)| as_whole(peak)),
            average_memory_bytes: memory.map(|(_, average)| as_whole(average)),
        };
        Record { workflow, run, plan: self.plan, fact: Fact::Node(summary) }
    }
}

fn busy_percent(before: &NodeSample, now: &NodeSample) -> Option<f64> {
    let busy = now.busy_ticks.saturating_sub(before.busy_ticks);
    let all = now.all_ticks.saturating_sub(before.all_ticks);
    let tenths = busy.checked_mul(1_000)?.checked_div(all)?;
    Some(f64::from(u32::try_from(tenths).ok()?) / 10.0)
}

#[expect(clippy::cast_precision_loss, reason = "a double is exact up to 8 PiB")]
fn as_float(bytes: i64) -> f64 {
    bytes as f64
}

#[expect(clippy::cast_possible_truncation, reason = "amounts of memory fit")]
fn as_whole(bytes: f64) -> i64 {
    bytes.round() as i64
}
