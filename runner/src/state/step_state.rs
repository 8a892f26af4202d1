//! The state of one Slurm step.

use std::time::Duration;

use torc_slurm::retry::STEP_ID_RETRIES;
use torc_slurm::sstat::CpuMeter;

/// The step of a job, as Slurm reported it.
#[derive(Clone, Debug, Default)]
pub(super) struct StepState {
    /// The number that Slurm assigned.
    pub number: Option<u32>,
    /// Number of queries that did not find the step. A step without a number is not measured.
    pub tries: u32,
    pub meter: CpuMeter,
    pub limit: Option<Duration>,
    /// True if the step was warned of its limit.
    pub is_warned: bool,
    /// True if Slurm refused to extend the step.
    pub is_fixed: bool,
    /// The message of `srun`, if it could not reach Slurm's controller.
    pub srun_error: Option<String>,
    /// The indexes of its nodes in the allocation, once the step has ended.
    pub nodes: Vec<usize>,
}

impl StepState {
    /// Returns the state of a step that another agent started.
    pub fn of_running(step_limit_ms: Option<u64>, is_warned: bool) -> Self {
        Self { limit: step_limit_ms.map(Duration::from_millis), is_warned, ..Self::default() }
    }

    /// Returns whether the number may still be found.
    pub fn may_have_number(&self) -> bool {
        self.tries < STEP_ID_RETRIES.tries
    }

    /// Returns whether `srun` failed before Slurm knew of the step.
    pub fn is_unknown_to_slurm(&self) -> bool {
        self.srun_error.is_some() && self.number.is_none()
    }
}
