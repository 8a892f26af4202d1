//! What is known of one step.

use std::time::Duration;

use torc_slurm::retry::STEP_NUMBER;
use torc_slurm::sstat::Meter;

/// What is known of a step that runs.
#[derive(Clone, Debug, Default)]
pub(super) struct StepState {
    /// Its number, which only Slurm knows.
    pub number: Option<u32>,
    /// How often its number was looked for in vain; a step without one is not measured.
    pub tries: u32,
    /// What its samples come to.
    pub meter: Meter,
    /// How long it may take.
    pub limit: Option<Duration>,
    /// It was warned of the end of that.
    pub is_warned: bool,
    /// Slurm does not let it have more.
    pub is_fixed: bool,
    /// Why `srun` could not even ask for it.
    pub never_asked_for: Option<String>,
    /// The nodes that it was put on, once it has ended.
    pub nodes: Vec<usize>,
}

impl StepState {
    /// What the shim knows of a step that another agent started.
    pub fn of_running(step_limit_ms: Option<u64>, is_warned: bool) -> Self {
        Self { limit: step_limit_ms.map(Duration::from_millis), is_warned, ..Self::default() }
    }

    /// Whether its number may still be found.
    pub fn may_have_number(&self) -> bool {
        self.tries < STEP_NUMBER.tries
    }
}
