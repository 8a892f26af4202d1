//! What is known of one attempt's use of the node, and how much memory it may use.

use std::time::Duration;

use torc_api::wire::{Profile, Usage};

pub(super) use self::spread::{Spread, as_float, as_whole};
use crate::clock::BootInstant;
use crate::gpus::GpuLoad;
use crate::monitor::JobSample;
use crate::protocol::{JobExit, StartTemplate};
use crate::series::DataPoint;

mod spread;

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

    /// Peaks and averages. The operating system's own counts are exact for CPU and cover the time between samples; the memory of
    /// several processes at once is only in the samples.
    pub fn usage(&self, ended: &JobExit) -> Option<Usage> {
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

    /// Notes memory above the limit. Returns whether it is the first time.
    pub fn note_violation(&mut self, memory_bytes: i64) -> bool {
        let is_first = self.violation.is_none();
        self.violation.get_or_insert(memory_bytes);
        is_first
    }

    /// A sentence about the memory that was too much.
    pub fn excess(&self, template: &StartTemplate) -> Option<String> {
        let (memory, limit) = (self.violation?, template.memory_limit_bytes?);
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
