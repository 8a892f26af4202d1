//! Checks the quantities and options of resource requirements, Slurm schedulers and defaults.

use serde_json::Value;

use super::{Findings, is_template};
use crate::execution::{ExecutionMode, SIGKILL_HEADROOM_SECONDS};
use crate::problem::Problem;
use crate::quantity::{QuantityError, parse_duration, parse_memory, parse_walltime};
use crate::workflow::WorkflowSpec;

/// The shortest time limit of a step in seconds: Slurm counts it in minutes.
const MIN_STEP_SECONDS: i64 = 60;
/// The options of sbatch that Torc sets itself.
const RESERVED_OPTIONS: [&str; 8] = ["partition", "nodes", "walltime", "time", "mem", "gres", "name", "job-name"];

pub(super) fn check(spec: &WorkflowSpec, found: &mut Findings) {
    for (index, entry) in spec.resource_requirements.iter().enumerate() {
        let field = |name: &str| format!("spec.resourceRequirements[{index}].{name}");
        quantity(&entry.memory, parse_memory, || field("memory"), found);
        if let Some(runtime) = &entry.runtime {
            quantity(runtime, parse_duration, || field("runtime"), found);
        }
    }
    for (index, scheduler) in spec.slurm_schedulers.iter().enumerate() {
        let field = |name: &str| format!("spec.slurmSchedulers[{index}].{name}");
        if let Some(walltime) = &scheduler.walltime {
            quantity(walltime, parse_walltime, || field("walltime"), found);
            room_for_a_step(walltime, spec, || field("walltime"), found);
        }
        if let Some(memory) = &scheduler.mem {
            quantity(memory, parse_memory, || field("mem"), found);
        }
        if let Some(disk) = &scheduler.tmp {
            quantity(disk, parse_memory, || field("tmp"), found);
        }
    }
    defaults(spec, found);
}

/// Reports a text that is not the quantity it should be.
pub(super) fn quantity(
    text: &str,
    parse: fn(&str) -> Result<i64, QuantityError>,
    field: impl Fn() -> String,
    found: &mut Findings,
) {
    if is_template(text) {
        return;
    }
    if let Err(error) = parse(text) {
        found.add(Problem::error(field(), error.to_string()).hint(error.hint()));
    }
}

/// Checks that a step can start in the allocation.
fn room_for_a_step(walltime: &str, spec: &WorkflowSpec, field: impl Fn() -> String, found: &mut Findings) {
    let config = spec.execution_config.clone().unwrap_or_default();
    let headroom = config.sigkill_headroom_seconds.unwrap_or(SIGKILL_HEADROOM_SECONDS);
    let is_too_short =
        parse_walltime(walltime).is_ok_and(|seconds| seconds.saturating_sub(headroom) <= MIN_STEP_SECONDS);
    if is_too_short && config.mode != Some(ExecutionMode::Direct) {
        let message =
            format!("no step can start in '{walltime}': {headroom} s of it are headroom, and a step needs 60 s");
        let hint = "use a longer `walltime`, a smaller `sigkillHeadroomSeconds`, or `mode: direct`";
        found.add(Problem::warning(field(), message).hint(hint));
    }
}

fn defaults(spec: &WorkflowSpec, found: &mut Findings) {
    for (name, value) in &spec.slurm_defaults {
        let field = format!("spec.slurmDefaults.{name}");
        if RESERVED_OPTIONS.iter().any(|ours| name.eq_ignore_ascii_case(ours)) {
            found.add(
                Problem::error(field, format!("`{name}` cannot be a default"))
                    .hint("it follows from the jobs, or is set in a Slurm scheduler"),
            );
        } else if matches!(value, Value::Array(_) | Value::Object(_) | Value::Null) {
            found.tolerated(Problem::error(field, format!("`{name}` must have a single value")));
        }
    }
}
