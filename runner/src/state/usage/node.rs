//! The usage of the node, for one workflow that measures it.

use torc_api::execution::{Granularity, MonitorPlan};

use crate::clock::BootInstant;
use crate::gpus::GpuLoad;
use crate::monitor::NodeSample;
use crate::series::{Measurement, MeasurementRecord, NodePoint, NodeSummary};
use crate::state::usage_stats::{Spread, as_float, as_whole};

/// Averages and peaks of the node's samples.
#[derive(Debug)]
pub(in crate::state) struct NodeUsage {
    pub plan: MonitorPlan,
    latest: Option<NodeSample>,
    samples: u32,
    cpu: Spread,
    memory: Spread,
    gpu: Spread,
    gpu_memory: Spread,
}

impl NodeUsage {
    pub fn new(plan: MonitorPlan) -> Self {
        let (cpu, memory, gpu, gpu_memory) = Default::default();
        Self { plan, latest: None, samples: 0, cpu, memory, gpu, gpu_memory }
    }

    /// Adds a sample of the node and of the runner's GPUs. Returns the record for the measurement file. CPU usage is known from the
    /// second sample on.
    pub fn add(
        &mut self,
        workflow: i64,
        run: i32,
        sample: &NodeSample,
        gpus: Option<GpuLoad>,
        at: BootInstant,
    ) -> Option<MeasurementRecord> {
        let wanted = self.plan.node?;
        let before = self.latest.replace(*sample);
        self.samples += 1;
        let cpu_percent = before.filter(|_| wanted.cpu).and_then(|before| busy_percent(&before, sample));
        let memory_bytes = wanted.memory.then_some(sample.memory_bytes);
        cpu_percent.into_iter().for_each(|percent| self.cpu.add(percent));
        memory_bytes.into_iter().for_each(|bytes| self.memory.add(as_float(bytes)));
        let total_memory_bytes = wanted.memory.then_some(sample.total_memory_bytes);
        let gpu_percent = gpus.map(|load| f64::from(load.percent) / f64::from(load.count.max(1)));
        let gpu_memory_bytes = gpus.map(|load| load.memory_bytes);
        gpu_percent.into_iter().for_each(|percent| self.gpu.add(percent));
        gpu_memory_bytes.into_iter().for_each(|bytes| self.gpu_memory.add(as_float(bytes)));
        let total_gpu_memory_bytes = gpus.map(|load| load.total_memory_bytes);
        let point = NodePoint {
            cpu_percent,
            memory_bytes,
            total_memory_bytes,
            gpu_percent,
            gpu_memory_bytes,
            total_gpu_memory_bytes,
        };
        let measurement = Measurement::NodeSample { at, point };
        (wanted.granularity == Granularity::TimeSeries).then_some(MeasurementRecord {
            workflow,
            run,
            plan: self.plan,
            measurement,
        })
    }

    /// Returns averages and peaks of all samples.
    pub fn summary(&self, workflow: i64, run: i32) -> MeasurementRecord {
        let summary = NodeSummary {
            samples: self.samples,
            peak_cpu_percent: self.cpu.peak(),
            average_cpu_percent: self.cpu.average(),
            peak_memory_bytes: self.memory.peak().map(as_whole),
            average_memory_bytes: self.memory.average().map(as_whole),
            peak_gpu_percent: self.gpu.peak(),
            average_gpu_percent: self.gpu.average(),
            peak_gpu_memory_bytes: self.gpu_memory.peak().map(as_whole),
        };
        MeasurementRecord { workflow, run, plan: self.plan, measurement: Measurement::Node(summary) }
    }
}

fn busy_percent(before: &NodeSample, now: &NodeSample) -> Option<f64> {
    let busy = now.busy_ticks.saturating_sub(before.busy_ticks);
    let all = now.all_ticks.saturating_sub(before.all_ticks);
    let tenths = busy.checked_mul(1_000)?.checked_div(all)?;
    Some(f64::from(u32::try_from(tenths).ok()?) / 10.0)
}
