//! The launch mode of jobs: processes of the runner, or Slurm steps.

use torc_api::execution::{ExecutionConfig, ExecutionMode};

/// The Slurm allocation in which jobs become steps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepAllocation {
    /// The ID of the Slurm job.
    pub job_id: String,
    pub srun: String,
    /// Names of the runner's nodes, its own first; empty for an allocation of one node.
    pub nodes: Vec<String>,
}

/// The launch mode, after `auto` has been resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaunchMode {
    /// The runner starts jobs itself.
    Direct,
    /// Every job is a Slurm step.
    Slurm,
}

impl std::fmt::Display for LaunchMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Direct => "Direct",
            Self::Slurm => "Slurm",
        })
    }
}

/// Returns the launch mode of a workflow's jobs. Outside an allocation with `srun` only direct mode is possible. With
/// `auto`, a workflow without resource limits runs directly, because steps always have limits.
pub fn effective(config: &ExecutionConfig, is_in_allocation: bool) -> LaunchMode {
    match config.mode.unwrap_or_default() {
        ExecutionMode::Slurm if is_in_allocation => LaunchMode::Slurm,
        ExecutionMode::Auto if is_in_allocation && config.limit_resources != Some(false) => LaunchMode::Slurm,
        ExecutionMode::Direct | ExecutionMode::Slurm | ExecutionMode::Auto => LaunchMode::Direct,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // X01, S19
    #[test]
    fn auto_is_slurm_inside_an_allocation_only() {
        use ExecutionMode::{Auto, Direct, Slurm};
        let cases = [
            (None, None, true, LaunchMode::Slurm),
            (None, None, false, LaunchMode::Direct),
            (Some(Auto), None, true, LaunchMode::Slurm),
            (Some(Auto), Some(true), true, LaunchMode::Slurm),
            (Some(Auto), Some(false), true, LaunchMode::Direct),
            (Some(Auto), None, false, LaunchMode::Direct),
            (Some(Direct), None, true, LaunchMode::Direct),
            (Some(Direct), None, false, LaunchMode::Direct),
            (Some(Slurm), None, true, LaunchMode::Slurm),
            (Some(Slurm), None, false, LaunchMode::Direct),
        ];
        for (mode, limit_resources, is_in_allocation, expected) in cases {
            let config = ExecutionConfig { mode, limit_resources, ..ExecutionConfig::default() };
            assert_eq!(
                effective(&config, is_in_allocation),
                expected,
                "{mode:?} {limit_resources:?} {is_in_allocation}"
            );
        }
    }
}
