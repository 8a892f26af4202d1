//! The execution config: keys that belong to another mode, signals that do not exist.

use super::{Findings, is_template};
use crate::execution::{ExecutionConfig, ExecutionMode};
use crate::problem::Problem;
use crate::workflow::WorkflowSpec;

const SIGNALS: [&str; 6] = ["TERM", "INT", "USR1", "USR2", "HUP", "KILL"];

pub(super) fn check(spec: &WorkflowSpec, found: &mut Findings) {
    let Some(config) = &spec.execution_config else { return };
    match config.mode {
        Some(ExecutionMode::Direct) => foreign(&slurm_keys(config), "slurm", "direct", found),
        Some(ExecutionMode::Slurm) => {
            foreign(&direct_keys(config), "direct", "slurm", found);
            if config.limit_resources == Some(false) {
                found.add(
                    Problem::error(field("limitResources"), "false is not supported in slurm mode")
                        .hint("use mode direct to run jobs without limits inside an allocation"),
                );
            }
        }
        Some(ExecutionMode::Auto) | None => {}
    }
    signals(config, found);
}

fn field(name: &str) -> String {
    format!("spec.executionConfig.{name}")
}

/// Keys of slurm mode, and whether each is set.
fn slurm_keys(config: &ExecutionConfig) -> [(&'static str, bool); 2] {
    [
        ("srunTerminationSignal", config.srun_termination_signal.is_some()),
        ("enableCpuBind", config.enable_cpu_bind.is_some()),
    ]
}

/// Keys of direct mode, and whether each is set. `limitResources: true` is true of both modes.
fn direct_keys(config: &ExecutionConfig) -> [(&'static str, bool); 4] {
    [
        ("terminationSignal", config.termination_signal.is_some()),
        ("sigtermLeadSeconds", config.sigterm_lead_seconds.is_some()),
        ("oomExitCode", config.oom_exit_code.is_some()),
        ("srunMpi", config.srun_mpi.is_some()),
    ]
}

fn foreign(keys: &[(&'static str, bool)], theirs: &str, mode: &str, found: &mut Findings) {
    for (name, _) in keys.iter().filter(|(_, set)| *set) {
        found.add(
            Problem::error(field(name), format!("belongs to {theirs} mode, but the mode is {mode}"))
                .hint("remove it, or use mode auto, which takes the keys of both"),
        );
    }
}

fn signals(config: &ExecutionConfig, found: &mut Findings) {
    if let Some(signal) = config.termination_signal.as_deref().filter(|signal| !is_template(signal)) {
        let upper = signal.to_ascii_uppercase();
        if !SIGNALS.contains(&upper.strip_prefix("SIG").unwrap_or(&upper)) {
            found.tolerated(
                Problem::error(field("terminationSignal"), format!("'{signal}' is not one of {}", SIGNALS.join(", ")))
                    .hint("the prefix SIG is allowed"),
            );
        }
    }
    let words =
        [("srunTerminationSignal", config.srun_termination_signal.as_deref()), ("srunMpi", config.srun_mpi.as_deref())];
    for (name, value) in words {
        let allowed = |letter: char| letter.is_ascii_alphanumeric() || "+_.-@:".contains(letter);
        if let Some(value) = value.filter(|value| !is_template(value))
            && (value.is_empty() || !value.chars().all(allowed))
        {
            found.error(field(name), format!("'{value}' is not a single word"));
        }
    }
}
