//! The resource usage of one attempt, and its memory limit.

use std::time::Duration;

use torc_api::wire::{Profile, Usage};

pub(super) use self::spread::{Spread, as_float, as_whole};
use crate::clock::BootInstant;
use crate::gpus::GpuLoad;
use crate::monitor::JobSample;
use crate::protocol::{JobExit, StartTemplate};
use crate::series::DataPoint;

mod spread;

/// Peaks and averages of one attempt's samples.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UsageStats {
    samples: u32,
    peak_memory_bytes: i64,
    memory_sum: i128,
    peak_cpu_percent: f64,
    gpu: Spread,
    gpu_memory: Spread,
    /// The moment of the latest sample, and the CPU time up to it.
    latest: Option<(BootInstant, u64)>,
    /// The first sample above the memory limit.
    violation: Option<i64>,
}

impl UsageStats {
    /// Adds a sample of a job that started at `started`, and of its GPUs.
    pub fn add(
        &mut self,
        sample: &JobSample,
        gpus: Option<GpuLoad>,
        started: BootInstant,
        at: BootInstant,
    ) -> DataPoint {
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

    /// Returns peaks and averages. CPU time is the kernel's exact count. The memory peak is the larger of the kernel's,
    /// which covers the time between samples, and the sampled one, which adds up all processes.
    pub fn usage(&self, exit: &JobExit) -> Option<Usage> {
        let rusage = exit.rusage?;
        let counted = rusage.peak_memory_bytes.and_then(|bytes| i64::try_from(bytes).ok());
        let sampled = (self.samples > 0).then_some(self.peak_memory_bytes);
        let average_memory = self.memory_sum.checked_div(self.samples.into());
        let average_cpu = percent(rusage.cpu_us, exit.ended.since(exit.started));
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

    /// Records memory above the limit. Returns whether it is the first time.
    pub fn record_violation(&mut self, memory_bytes: i64) -> bool {
        let is_first = self.violation.is_none();
        self.violation.get_or_insert(memory_bytes);
        is_first
    }

    /// Returns the message of a job that exceeded its memory limit.
    pub fn violation_message(&self, template: &StartTemplate) -> Option<String> {
        let (memory, limit) = (self.violation?, template.memory_limit_bytes?);
        Some(format!("exceeded its memory limit: used {} of {}", amount(memory), amount(limit)))
    }
}

/// Returns CPU time in percent of the elapsed time, with one decimal.
fn percent(cpu_us: u64, time: Duration) -> Option<f64> {
    let time_us = time.as_micros();
    if time_us == 0 {
        return None;
    }
    let tenths = u128::from(cpu_us) * 1_000 / time_us;
    Some(u32::try_from(tenths).map_or(f64::from(u32::MAX), f64::from) / 10.0)
}

/// Formats bytes in MiB or GiB.
fn amount(bytes: i64) -> String {
    let (unit, name) = if bytes < 1 << 30 { (1 << 20, "MiB") } else { (1 << 30, "GiB") };
    #[expect(clippy::cast_precision_loss, reason = "one decimal is shown")]
    let amount = bytes as f64 / f64::from(unit);
    format!("{amount:.1} {name}")
}

/// Returns the memory above which the runner kills a job; none for a job that declares no memory, or that is not measured.
pub(super) fn memory_limit(profile: &Profile) -> Option<i64> {
    let config = profile.execution_config.clone().unwrap_or_default();
    let is_measured = profile.resource_monitor.clone().unwrap_or_default().plan().jobs.is_some();
    let is_limited = config.limit_resources.unwrap_or(true) && !profile.unlimited;
    (is_measured && is_limited).then_some(profile.resources.memory_bytes)
}
