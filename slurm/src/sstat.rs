//! `sstat`: the usage of running steps.

use crate::call::{CommandSpec, Tool};
use crate::error::SlurmError;
use crate::exec::Answer;
use crate::job_id::{StepId, StepName};
use crate::parse::amounts::{cpu_seconds, memory_bytes};

/// Maximum number of steps in one call: the length of a command line is limited.
pub const MAX_STEPS_PER_CALL: usize = 1_000;

/// CPU usage above which a sample is a mistake of the accounting.
const MAX_CPU_PERCENT: f64 = 100_000.0;

/// The usage of a step at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The number of the step.
    pub step: u32,
    /// CPU time since its start.
    pub cpu_seconds: Option<f64>,
    /// The largest memory so far.
    pub memory_bytes: Option<i64>,
}

/// Returns the queries for steps of a job, one call for every [`MAX_STEPS_PER_CALL`] of them.
pub fn calls(job: &str, steps: &[u32]) -> Vec<CommandSpec> {
    let call = |steps: &[u32]| {
        let which = steps.iter().map(|step| format!("{job}.{step}")).collect::<Vec<String>>().join(",");
        CommandSpec::new(Tool::Sstat, ["-j", &which, "--format=JobID,AveCPU,MaxRSS", "-P", "-n"])
    };
    steps.chunks(MAX_STEPS_PER_CALL).map(call).collect()
}

/// Parses the samples, and returns the complaints for the debug log. Steps often end between the query and the answer, which
/// makes `sstat` fail.
pub fn read(answer: Result<Answer, SlurmError>) -> (Vec<Sample>, Vec<String>) {
    match answer {
        Ok(answer) => {
            let remarks = answer.remarks.lines().map(str::to_owned).collect();
            (answer.text.lines().filter_map(read_sample).collect(), remarks)
        }
        Err(trouble) => (Vec::new(), vec![trouble.to_string()]),
    }
}

fn read_sample(line: &str) -> Option<Sample> {
    let fields: Vec<&str> = line.trim().split('|').collect();
    let [id, cpu, memory] = fields.as_slice() else { return None };
    let StepName::Number(step) = id.parse::<StepId>().ok()?.step else { return None };
    Some(Sample { step, cpu_seconds: cpu_seconds(cpu), memory_bytes: memory_bytes(memory) })
}

/// Aggregates the samples of one step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CpuMeter {
    before: Option<(i64, f64)>,
    cpu: RunningMean,
    peak_cpu_percent: f64,
    memory: RunningMean,
    peak_memory_bytes: i64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct RunningMean {
    total: f64,
    count: u32,
}

impl RunningMean {
    fn add(&mut self, value: f64) {
        self.total += value;
        self.count += 1;
    }

    fn get(self) -> Option<f64> {
        (self.count > 0).then(|| self.total / f64::from(self.count))
    }
}

impl CpuMeter {
    /// Adds a sample, `at_ms` on a monotonic clock, and returns the CPU usage since the previous one, 100 for one core. The first
    /// sample has none: it would be the average since the start.
    pub fn take(&mut self, at_ms: i64, sample: &Sample) -> Option<f64> {
        if let Some(bytes) = sample.memory_bytes.filter(|bytes| *bytes > 0) {
            self.memory.add(bytes as f64);
            self.peak_memory_bytes = self.peak_memory_bytes.max(bytes);
        }
        let now = sample.cpu_seconds?;
        let (then_ms, then) = self.before.replace((at_ms, now))?;
        let elapsed = (at_ms - then_ms) as f64 / 1_000.0;
        let percent = (now - then) / elapsed * 100.0;
        // Ignores a clock that went backwards and a usage that no machine can reach.
        if elapsed <= 0.0 || !(0.0..=MAX_CPU_PERCENT).contains(&percent) {
            return None;
        }
        self.cpu.add(percent);
        self.peak_cpu_percent = self.peak_cpu_percent.max(percent);
        Some(percent)
    }

    /// Returns the aggregated usage; absent where nothing was measured.
    pub fn usage(&self) -> torc_api::wire::Usage {
        torc_api::wire::Usage {
            peak_memory_bytes: (self.memory.count > 0).then_some(self.peak_memory_bytes),
            average_memory_bytes: self.memory.get().map(|bytes| bytes as i64),
            peak_cpu_percent: (self.cpu.count > 0).then_some(self.peak_cpu_percent),
            average_cpu_percent: self.cpu.get(),
            ..torc_api::wire::Usage::default()
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn sample(cpu_seconds: f64, mebibytes: i64) -> Sample {
        Sample { step: 0, cpu_seconds: Some(cpu_seconds), memory_bytes: Some(mebibytes << 20) }
    }

    // S08
    #[test]
    fn cpu_is_the_difference_and_the_first_sample_says_nothing() {
        let mut meter = CpuMeter::default();
        assert_eq!(meter.take(60_000, &sample(600.0, 10)), None, "the average since the start is not usage");
        assert_eq!(meter.take(70_000, &sample(615.0, 40)), Some(150.0));
        assert_eq!(meter.take(80_000, &sample(620.0, 40)), Some(50.0));
        let usage = meter.usage();
        assert_eq!((usage.peak_cpu_percent, usage.average_cpu_percent), (Some(150.0), Some(100.0)));
        assert_eq!((usage.peak_memory_bytes, usage.average_memory_bytes), (Some(40 << 20), Some(30 << 20)));
    }

    // S08
    #[test]
    fn absurd_values_are_not_measurements() {
        let mut meter = CpuMeter::default();
        meter.take(0, &sample(10.0, 1));
        assert_eq!(meter.take(1_000, &sample(1e9, 1)), None, "more than any machine has");
        assert_eq!(meter.take(2_000, &sample(11.0, 1)), None, "less than before");
        assert_eq!(meter.take(2_000, &sample(12.0, 1)), None, "no time has passed");
        assert_eq!(meter.take(3_000, &sample(13.0, 1)), Some(100.0), "it goes on from the last one");
        assert_eq!(meter.usage().peak_cpu_percent, Some(100.0));
        let empty = CpuMeter::default();
        assert_eq!(empty.usage(), torc_api::wire::Usage::default());
        let mut once = CpuMeter::default();
        once.take(0, &Sample { step: 0, cpu_seconds: None, memory_bytes: Some(0) });
        assert_eq!(once.usage(), torc_api::wire::Usage::default(), "a zero is not a measurement");
    }

    // S08
    #[test]
    fn one_call_asks_about_many_steps() {
        let steps: Vec<u32> = (0..2_500).collect();
        let calls = calls("12345", &steps);
        assert_eq!(calls.len(), 3);
        assert!(calls[0].arguments[1].starts_with("12345.0,12345.1,"));
        assert_eq!(calls[2].arguments[1].split(',').count(), 500);
        assert_eq!(super::calls("12345", &[]), []);
    }

    // S08
    #[test]
    fn a_call_asks_about_a_thousand_steps_at_most() {
        let of = |count: u32| calls("7", &(0..count).collect::<Vec<u32>>()).len();
        assert_eq!((MAX_STEPS_PER_CALL, of(1), of(999), of(1_000), of(1_001)), (1_000, 1, 1, 1, 2));
        let call = &calls("7", &[3, 4])[0];
        assert_eq!(call.tool, Tool::Sstat);
        assert_eq!(call.arguments, ["-j", "7.3,7.4", "--format=JobID,AveCPU,MaxRSS", "-P", "-n"]);
    }

    // S08
    #[test]
    fn measurements_at_their_limits() {
        let take = |seconds: f64| {
            let mut meter = CpuMeter::default();
            meter.take(0, &sample(10.0, 1));
            meter.take(1_000, &sample(10.0 + seconds, 1))
        };
        assert_eq!(take(0.0), Some(0.0), "an idle step is measured");
        assert_eq!(take(1_000.0), Some(100_000.0));
        assert_eq!(take(1_001.0), None, "more than any machine has");
        let mut meter = CpuMeter::default();
        meter.take(0, &Sample { step: 0, cpu_seconds: Some(1.0), memory_bytes: None });
        meter.take(500, &Sample { step: 0, cpu_seconds: Some(2.0), memory_bytes: None });
        let usage = torc_api::wire::Usage {
            peak_memory_bytes: None,
            average_memory_bytes: None,
            peak_cpu_percent: Some(200.0),
            average_cpu_percent: Some(200.0),
            peak_gpu_percent: None,
            average_gpu_percent: None,
            peak_gpu_memory_bytes: None,
        };
        assert_eq!(meter.usage(), usage, "memory that was never seen is absent");
        let mut memory = CpuMeter::default();
        for mebibytes in [30, 10, 20] {
            memory.take(0, &Sample { step: 0, cpu_seconds: None, memory_bytes: Some(mebibytes << 20) });
        }
        let usage = memory.usage();
        assert_eq!((usage.peak_memory_bytes, usage.average_memory_bytes), (Some(30 << 20), Some(20 << 20)));
        assert_eq!((usage.peak_cpu_percent, usage.average_cpu_percent), (None, None));
    }

    // S09
    #[test]
    fn steps_that_have_ended_are_only_remarked_upon() {
        let text = "15860017.0|00:00:00|1580K\n15860017.batch|00:00:00|21100K\n15860017.1|00:00:02|\n".to_owned();
        let remarks = "sstat: error: StepId=15860017.9 not found running.\n".to_owned();
        let (samples, said) = read(Ok(Answer { text, remarks }));
        assert_eq!(said, ["sstat: error: StepId=15860017.9 not found running."]);
        let expected = [
            Sample { step: 0, cpu_seconds: Some(0.0), memory_bytes: Some(1_580 << 10) },
            Sample { step: 1, cpu_seconds: Some(2.0), memory_bytes: None },
        ];
        assert_eq!(samples, expected);
        let gone = SlurmError::Refused { message: "No steps running for job 15860009".to_owned() };
        let (samples, said) = read(Err(gone));
        assert_eq!((samples, said.len()), (Vec::new(), 1));
    }
}
