//! Resource requirements, Slurm schedulers and defaults: their texts must mean something.

use serde_json::Value;

use super::{Findings, is_template};
use crate::problem::Problem;
use crate::quantity::{QuantityError, parse_duration, parse_memory, parse_walltime};
use crate::workflow::WorkflowSpec;

/// What Torc itself gives sbatch.
const OURS: [&str; 8] = ["partition", "nodes", "walltime", "time", "mem", "gres", "name", "job-name"];

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

fn defaults(spec: &WorkflowSpec, found: &mut Findings) {
    for (name, value) in &spec.slurm_defaults {
        let field = format!("spec.slurmDefaults.{name}");
        if OURS.iter().any(|ours| name.eq_ignore_ascii_case(ours)) {
            found.add(
                Problem::error(field, format!("`{name}` cannot be a default"))
                    .hint("it follows from the jobs, or is set in a Slurm scheduler"),
            );
        } else if matches!(value, Value::Array(_) | Value::Object(_) | Value::Null) {
            found.tolerated(Problem::error(field, format!("`{name}` must have a single value")));
        }
    }
}
