//! Time series of the usage of jobs and nodes, in SQLite files that users can read.
//!
//! One file holds one run of one workflow, measured by one runner: `resource_metrics_wf<W>_h<host>_r<R>_p<pid>.db` in
//! the folder `resource_utilization` of the outputs.

use std::collections::BTreeMap;

use torc_api::execution::MonitorPlan;
use torc_api::state::Cause;
use torc_api::wire::{AttemptKey, Resources, Usage};

use crate::clock::BootInstant;

mod file;

pub(crate) use file::write;
pub use file::{SeriesError, files_in, read};

/// The folder of these files within the outputs.
pub const FOLDER: &str = "resource_utilization";

/// A measurement for a file, with the plan of its workflow.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasurementRecord {
    pub workflow: i64,
    pub run: i32,
    /// The plan that decides when the file is written and whether it is plotted.
    pub plan: MonitorPlan,
    pub measurement: Measurement,
}

/// The content of a [`MeasurementRecord`].
#[derive(Clone, Debug, PartialEq)]
pub enum Measurement {
    /// The usage of a job at a moment.
    JobSample { key: AttemptKey, at: BootInstant, point: DataPoint },
    /// An attempt that ended.
    Job(Box<JobUsageRow<BootInstant>>),
    /// The usage of the node at a moment.
    NodeSample { at: BootInstant, point: NodePoint },
    /// Peaks and averages of the node.
    Node(NodeSummary),
}

/// The usage of a job at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DataPoint {
    /// CPU since the previous sample; 100 for one core.
    pub cpu_percent: f64,
    /// Memory of all its processes.
    pub memory_bytes: i64,
    /// Number of its processes.
    pub processes: u32,
    /// GPU usage; 100 for one GPU.
    pub gpu_percent: Option<f64>,
    /// GPU memory in use.
    pub gpu_memory_bytes: Option<i64>,
}

/// The usage of a node at a moment. Values that are not measured are absent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NodePoint {
    /// CPU since the previous sample; 100 for all cores.
    pub cpu_percent: Option<f64>,
    /// Used memory: the total minus what the kernel reports as available.
    pub memory_bytes: Option<i64>,
    pub total_memory_bytes: Option<i64>,
    /// Usage of the runner's GPUs; 100 for all of them.
    pub gpu_percent: Option<f64>,
    /// GPU memory in use.
    pub gpu_memory_bytes: Option<i64>,
    pub total_gpu_memory_bytes: Option<i64>,
}

/// Peaks and averages of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NodeSummary {
    pub samples: u32,
    pub peak_cpu_percent: Option<f64>,
    pub average_cpu_percent: Option<f64>,
    pub peak_memory_bytes: Option<i64>,
    pub average_memory_bytes: Option<i64>,
    pub peak_gpu_percent: Option<f64>,
    pub average_gpu_percent: Option<f64>,
    pub peak_gpu_memory_bytes: Option<i64>,
}

/// An attempt that ended. Times are boot-clock moments in a runner, and milliseconds since 1970 in a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobUsageRow<T> {
    pub key: AttemptKey,
    pub name: String,
    pub started: T,
    pub ended: T,
    pub return_code: i32,
    /// The cause of the failure; none after a success.
    pub cause: Option<Cause>,
    pub usage: Usage,
    pub resources: Resources,
    /// The memory limit, where it was enforced.
    pub memory_limit_bytes: Option<i64>,
    pub devices: Vec<String>,
}

/// The content of a measurement file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    pub workflow: i64,
    pub run: i32,
    /// The host that was measured.
    pub host: String,
    pub jobs: Vec<JobUsageRow<i64>>,
    /// Samples by job and attempt, with seconds since 1970.
    pub samples: BTreeMap<(i64, i32), Vec<(i64, DataPoint)>>,
    /// Samples of the node.
    pub node: Vec<(i64, NodePoint)>,
    /// Peaks and averages of the node.
    pub node_summary: Option<NodeSummary>,
}
