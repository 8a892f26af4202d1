//! KnownNames that must exist elsewhere in the same workflow.

use std::collections::HashSet;

use super::{Findings, is_template};
use crate::action::ActionType;
use crate::problem::{Problem, ProblemKind};
use crate::resources::DEFAULT_REQUIREMENTS;
use crate::workflow::WorkflowSpec;

pub(super) fn check(spec: &WorkflowSpec, found: &mut Findings) {
    let requirements = spec.resource_requirements.iter().map(|entry| entry.name.as_str());
    let requirements = KnownNames::new("set of resource requirements", requirements.chain([DEFAULT_REQUIREMENTS]));
    let handlers = KnownNames::new("failure handler", spec.failure_handlers.iter().map(|entry| entry.name.as_str()));
    let schedulers =
        KnownNames::new("Slurm scheduler", spec.slurm_schedulers.iter().filter_map(|entry| entry.name.as_deref()));
    for (index, job) in spec.jobs.iter().enumerate() {
        let field = |name: &str| format!("spec.jobs[{index}].{name}");
        requirements.check(job.resource_requirements.as_deref(), || field("resourceRequirements"), found);
        handlers.check(job.failure_handler.as_deref(), || field("failureHandler"), found);
        schedulers.check(job.scheduler.as_deref(), || field("scheduler"), found);
    }
    for (index, action) in spec.actions.iter().enumerate() {
        let of_slurm = action.scheduler_type.as_deref().is_none_or(|kind| kind == "slurm");
        if action.action_type == ActionType::ScheduleNodes && of_slurm {
            schedulers.check(action.scheduler.as_deref(), || format!("spec.actions[{index}].scheduler"), found);
        }
    }
}

/// The names of one kind.
struct KnownNames<'s> {
    kind: &'static str,
    known: HashSet<&'s str>,
    /// Names may be missing: an entry has no name, which is reported elsewhere, or a template as its name.
    uncertain: bool,
}

impl<'s> KnownNames<'s> {
    fn new(kind: &'static str, names: impl Iterator<Item = &'s str>) -> Self {
        let known: HashSet<&str> = names.collect();
        let uncertain = known.iter().any(|name| name.is_empty() || is_template(name));
        Self { kind, known, uncertain }
    }

    fn check(&self, name: Option<&str>, field: impl Fn() -> String, found: &mut Findings) {
        let Some(name) = name else { return };
        if self.uncertain || is_template(name) || self.known.contains(name) {
            return;
        }
        let problem = Problem::error(field(), format!("there is no {} named '{name}'", self.kind))
            .kind(ProblemKind::UnknownReference);
        let problem = found.with_nearest(problem, name, self.known.iter().copied());
        found.add(problem);
    }
}
