//! Settings for the start, the limits, the end and the measurement of jobs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Settings for the start, the limits and the end of jobs. The schema has no defaults here, because a default of the
/// other mode would be an error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecutionConfig {
    /// direct, slurm, or auto (when absent): slurm inside an allocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<ExecutionMode>,
    /// Seconds between the last SIGKILL and the end of the allocation (60 when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub sigkill_headroom_seconds: Option<i64>,
    /// The return code of jobs that ran out of time (152 when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_exit_code: Option<i32>,
    /// Spread the registration of many runners over time (true when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staggered_start: Option<bool>,
    /// The streams of jobs to keep, and their files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdio: Option<Stdio>,
    /// Direct mode: kill jobs that exceed their memory (true when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_resources: Option<bool>,
    /// Direct mode: the first signal to a job that has to end (SIGTERM when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub termination_signal: Option<String>,
    /// Direct mode: seconds between that signal and SIGKILL (30 when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub sigterm_lead_seconds: Option<i64>,
    /// Direct mode: the return code of jobs that exceeded their memory (137 when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oom_exit_code: Option<i32>,
    /// Slurm mode: the value of srun's option `--signal`, e.g. `TERM@120`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub srun_termination_signal: Option<String>,
    /// Slurm mode: let srun bind CPUs (false when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable_cpu_bind: Option<bool>,
    /// Direct mode with a worker per node: the value of srun's option `--mpi` for the workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub srun_mpi: Option<String>,
    /// End jobs that exceed their declared runtime (false when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enforce_runtime: Option<bool>,
}

/// Seconds between the last SIGKILL and the end of an allocation, unless a document says otherwise.
pub const SIGKILL_HEADROOM_SECONDS: i64 = 60;
/// Seconds between the termination signal and SIGKILL in direct mode, unless a document says otherwise.
pub const SIGTERM_LEAD_SECONDS: i64 = 30;

/// The program that starts and limits the processes of jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExecutionMode {
    /// The runner itself starts processes.
    Direct,
    /// srun, a step for each job.
    Slurm,
    /// slurm inside an allocation, direct elsewhere.
    #[default]
    Auto,
}

/// The streams of a job that are kept, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Stdio {
    /// separate (when absent), combined, no_stdout, no_stderr, none or packed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<StdioMode>,
    /// Remove the files of jobs that succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delete_on_success: Option<bool>,
}

/// The files that hold a job's standard output and standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StdioMode {
    /// A file each for stdout and stderr.
    #[default]
    Separate,
    /// Both in one file.
    Combined,
    /// Only stderr is kept.
    NoStdout,
    /// Only stdout is kept.
    NoStderr,
    /// Neither stdout nor stderr is kept.
    None,
    /// Many jobs in few files with an index.
    Packed,
}

/// Settings for the measurement of CPU and memory use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceMonitor {
    /// Measure jobs (the older spelling of `jobs.enabled`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// The older spelling of `jobs.granularity`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granularity: Option<Granularity>,
    /// Whole seconds between samples (10 when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub sample_interval_seconds: Option<i32>,
    /// Seconds between writes of a time series (300 when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub flush_interval_seconds: Option<i32>,
    /// Make plots when a runner leaves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generate_plots: Option<bool>,
    /// Settings for the measurement of each job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobs: Option<MonitorScope>,
    /// Settings for the measurement of each node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_node: Option<MonitorScope>,
}

/// The measurement of jobs or nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MonitorScope {
    /// Take samples; by default of jobs only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Peaks and averages, or every sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granularity: Option<Granularity>,
    /// Measure CPU (nodes only; true when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<bool>,
    /// Measure memory (nodes only; true when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<bool>,
}

/// The detail in which measurements are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Granularity {
    /// Only peaks and averages are kept.
    #[default]
    Summary,
    /// Every sample is kept in a time series.
    TimeSeries,
}

/// Seconds between samples, unless the document says otherwise.
const SAMPLE_INTERVAL_SECONDS: u32 = 10;
/// Seconds between writes of a time series, unless the document says otherwise.
const FLUSH_INTERVAL_SECONDS: u32 = 300;

/// A [`ResourceMonitor`] with all defaults resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MonitorPlan {
    /// The detail in which each job's samples are kept; none if jobs are not sampled.
    pub jobs: Option<Granularity>,
    /// The measurement of each node; none if nodes are not sampled.
    pub node: Option<NodePlan>,
    /// Whole seconds between two samples.
    pub interval_seconds: u32,
    /// Seconds between writes of a time series.
    pub flush_interval_seconds: u32,
    /// Plots are made when a runner leaves.
    pub plots: bool,
}

/// The measurement of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodePlan {
    /// The detail in which samples are kept.
    pub granularity: Granularity,
    /// CPU use is sampled.
    pub cpu: bool,
    /// Memory use is sampled.
    pub memory: bool,
}

impl ResourceMonitor {
    /// Returns the settings with all defaults. Jobs are sampled every ten seconds unless the document disables it,
    /// because the cost is negligible and the result is needed to size them. Nodes are sampled only if the document
    /// enables it.
    pub fn plan(&self) -> MonitorPlan {
        let jobs = self.jobs.clone().unwrap_or_default();
        let node = self.compute_node.clone().unwrap_or_default();
        let granularity = |own: Option<Granularity>| own.or(self.granularity).unwrap_or_default();
        let seconds = |value: Option<i32>, default: u32| {
            value.map_or(default, |seconds| u32::try_from(seconds).unwrap_or(0).max(1))
        };
        MonitorPlan {
            jobs: jobs.enabled.or(self.enabled).unwrap_or(true).then(|| granularity(jobs.granularity)),
            node: node.enabled.unwrap_or(false).then(|| NodePlan {
                granularity: node.granularity.unwrap_or_default(),
                cpu: node.cpu.unwrap_or(true),
                memory: node.memory.unwrap_or(true),
            }),
            interval_seconds: seconds(self.sample_interval_seconds, SAMPLE_INTERVAL_SECONDS),
            flush_interval_seconds: seconds(self.flush_interval_seconds, FLUSH_INTERVAL_SECONDS),
            plots: self.generate_plots.unwrap_or(false),
        }
    }
}

impl Default for MonitorPlan {
    fn default() -> Self {
        ResourceMonitor::default().plan()
    }
}

impl MonitorPlan {
    /// Returns whether samples are written to files, and not only to results.
    pub fn is_recorded(&self) -> bool {
        self.plots || self.jobs == Some(Granularity::TimeSeries) || self.node.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // X08
    #[test]
    fn jobs_are_sampled_every_ten_seconds_by_default() {
        let plan = MonitorPlan::default();
        assert_eq!((plan.jobs, plan.node, plan.plots), (Some(Granularity::Summary), None, false));
        assert_eq!((plan.interval_seconds, plan.flush_interval_seconds), (10, 300));
        assert!(!plan.is_recorded());
    }

    #[test]
    fn the_newer_spelling_counts_before_the_older_one() {
        let scope = |enabled, granularity| Some(MonitorScope { enabled, granularity, ..MonitorScope::default() });
        let (summary, series) = (Some(Granularity::Summary), Some(Granularity::TimeSeries));
        let older = |enabled, granularity| ResourceMonitor { enabled, granularity, ..ResourceMonitor::default() };
        let cases = [
            (older(Some(false), None), None),
            (older(Some(true), series), series),
            (ResourceMonitor { jobs: scope(Some(true), None), ..older(Some(false), None) }, summary),
            (ResourceMonitor { jobs: scope(Some(false), series), ..older(Some(true), series) }, None),
            (ResourceMonitor { jobs: scope(None, summary), ..older(None, series) }, summary),
            (ResourceMonitor { compute_node: scope(Some(true), None), ..older(None, None) }, summary),
        ];
        for (monitor, jobs) in cases {
            assert_eq!(monitor.plan().jobs, jobs, "{monitor:?}");
        }
    }

    // X08
    #[test]
    fn a_plan_takes_every_setting_of_the_document() {
        let (summary, series) = (Some(Granularity::Summary), Some(Granularity::TimeSeries));
        let monitor = ResourceMonitor {
            enabled: None,
            granularity: summary,
            sample_interval_seconds: Some(7),
            flush_interval_seconds: Some(8),
            generate_plots: Some(true),
            jobs: Some(MonitorScope { enabled: None, granularity: series, cpu: None, memory: None }),
            compute_node: Some(MonitorScope {
                enabled: Some(true),
                granularity: series,
                cpu: Some(true),
                memory: Some(false),
            }),
        };
        let node = NodePlan { granularity: Granularity::TimeSeries, cpu: true, memory: false };
        let expected =
            MonitorPlan { jobs: series, node: Some(node), interval_seconds: 7, flush_interval_seconds: 8, plots: true };
        assert_eq!(monitor.plan(), expected);
        for (seconds, expected) in [(-1, 1), (0, 1), (1, 1), (2, 2)] {
            let monitor = ResourceMonitor {
                sample_interval_seconds: Some(seconds),
                flush_interval_seconds: Some(seconds),
                ..ResourceMonitor::default()
            };
            let plan = monitor.plan();
            assert_eq!((plan.interval_seconds, plan.flush_interval_seconds), (expected, expected), "{seconds}");
        }
    }

    #[test]
    fn a_series_a_node_or_a_plot_needs_files() {
        let none = MonitorPlan { jobs: None, node: None, interval_seconds: 1, flush_interval_seconds: 1, plots: false };
        let node = NodePlan { granularity: Granularity::Summary, cpu: true, memory: true };
        let cases = [
            (none, false),
            (MonitorPlan { jobs: Some(Granularity::Summary), ..none }, false),
            (MonitorPlan { jobs: Some(Granularity::TimeSeries), ..none }, true),
            (MonitorPlan { node: Some(node), ..none }, true),
            (MonitorPlan { plots: true, ..none }, true),
        ];
        for (plan, is_recorded) in cases {
            assert_eq!(plan.is_recorded(), is_recorded, "{plan:?}");
        }
    }

    // X06
    #[test]
    fn the_headroom_is_a_minute() {
        assert_eq!(SIGKILL_HEADROOM_SECONDS, 60);
    }

    #[test]
    fn nodes_are_measured_only_on_request() {
        let scope = MonitorScope { enabled: Some(true), cpu: Some(false), ..MonitorScope::default() };
        let monitor = ResourceMonitor { compute_node: Some(scope), ..ResourceMonitor::default() };
        let node = NodePlan { granularity: Granularity::Summary, cpu: false, memory: true };
        assert_eq!(monitor.plan().node, Some(node));
        let off = ResourceMonitor { compute_node: Some(MonitorScope::default()), ..ResourceMonitor::default() };
        assert_eq!(off.plan().node, None);
    }
}
