//! Time series of what jobs and nodes use, in SQLite files that anybody can look into.
//!
//! One file holds one run of one workflow as one runner saw it: `resource_metrics_wf<W>_h<host>_r<R>_p<pid>.db` in the folder
//! `resource_utilization` of the outputs.

use std::collections::BTreeMap;

use torc_api::execution::MonitorPlan;
use torc_api::state::Cause;
use torc_api::wire::{AttemptKey, Resources, Usage};

use crate::clock::BootInstant;

mod file;

pub(crate) use file::write;
pub use file::{SeriesError, files_in, read};

/// The folder of these files, in that of the outputs.
pub const FOLDER: &str = "resource_utilization";

/// Something to be kept, with the plan of the workflow that wants it.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasurementRecord {
    /// The workflow's number.
    pub workflow: i64,
    /// Its run.
    pub run: i32,
    /// How often it is written, and what is made of it.
    pub plan: MonitorPlan,
    /// What is kept.
    pub measurement: Measurement,
}

/// See [`Record`].
#[derive(Clone, Debug, PartialEq)]
pub enum Measurement {
    /// What a job used at a moment.
    JobSample {
        /// Which attempt.
        key: AttemptKey,
        /// When.
        at: BootInstant,
        /// How much.
        point: DataPoint,
    },
    /// An attempt that ended.
    Job(Box<JobUsageRow<BootInstant>>),
    /// What the node used at a moment.
    NodeSample {
        /// When.
        at: BootInstant,
        /// How much.
        point: NodePoint,
    },
    /// What the node used in all.
    Node(NodeSummary),
}

/// What a job used at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DataPoint {
    /// CPU since the sample before, 100 for one core.
    pub cpu_percent: f64,
    /// Memory of all its processes.
    pub memory_bytes: i64,
    /// How many they were.
    pub processes: u32,
    /// How busy its GPUs were, 100 for one.
    pub gpu_percent: Option<f64>,
    /// Memory in use on its GPUs.
    pub gpu_memory_bytes: Option<i64>,
}

/// What a node used at a moment; what was not to be measured is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NodePoint {
    /// CPU since the sample before, 100 for all of its cores.
    pub cpu_percent: Option<f64>,
    /// Memory that is not available to others.
    pub memory_bytes: Option<i64>,
    /// Memory it has.
    pub total_memory_bytes: Option<i64>,
    /// How busy the runner's GPUs were, 100 for all of them.
    pub gpu_percent: Option<f64>,
    /// Memory in use on them.
    pub gpu_memory_bytes: Option<i64>,
    /// Memory they have.
    pub total_gpu_memory_bytes: Option<i64>,
}

/// Peaks and averages of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NodeSummary {
    /// How many samples there were.
    pub samples: u32,
    /// The most CPU at once.
    pub peak_cpu_percent: Option<f64>,
    /// CPU on average.
    pub average_cpu_percent: Option<f64>,
    /// The most memory at once.
    pub peak_memory_bytes: Option<i64>,
    /// Memory on average.
    pub average_memory_bytes: Option<i64>,
    /// The busiest that its GPUs were.
    pub peak_gpu_percent: Option<f64>,
    /// How busy they were on average.
    pub average_gpu_percent: Option<f64>,
    /// The most memory in use on them.
    pub peak_gpu_memory_bytes: Option<i64>,
}

/// An attempt that ended. Times are moments of this machine in a runner, and milliseconds since 1970 in a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobUsageRow<T> {
    /// Which attempt.
    pub key: AttemptKey,
    /// The job's name.
    pub name: String,
    /// Start.
    pub started: T,
    /// End.
    pub ended: T,
    /// Exit code.
    pub return_code: i32,
    /// Why it did not succeed.
    pub cause: Option<Cause>,
    /// What was measured.
    pub usage: Usage,
    /// What it had asked for.
    pub resources: Resources,
    /// The memory it was allowed, where that was enforced.
    pub memory_limit_bytes: Option<i64>,
    /// GPUs it used.
    pub devices: Vec<String>,
}

/// What a file holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// The workflow's number.
    pub workflow: i64,
    /// Its run.
    pub run: i32,
    /// The machine it was measured on.
    pub host: String,
    /// Attempts that ended.
    pub jobs: Vec<JobUsageRow<i64>>,
    /// Samples by job and attempt, with seconds since 1970.
    pub samples: BTreeMap<(i64, i32), Vec<(i64, DataPoint)>>,
    /// Samples of the node.
    pub node: Vec<(i64, NodePoint)>,
    /// What the node used in all.
    pub node_summary: Option<NodeSummary>,
}
