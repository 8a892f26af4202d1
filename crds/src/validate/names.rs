//! Checks that names in a workflow are not empty and are unique. Names of families are compared after expansion.

use std::collections::HashMap;

use super::{Findings, is_template};
use crate::parameters::Parameterization;
use crate::problem::{Problem, ProblemKind};
use crate::workflow::WorkflowSpec;

pub(super) fn check(spec: &WorkflowSpec, found: &mut Findings) {
    let single = |family: &Parameterization, name: &'_ str| !is_family(family) && !is_template(name);
    let jobs = spec.jobs.iter().map(|job| single(&job.parameterization, &job.name).then_some(job.name.as_str()));
    once("spec.jobs", jobs, found);
    let files = spec.files.iter().map(|file| single(&file.parameterization, &file.name).then_some(file.name.as_str()));
    once("spec.files", files, found);
    let data =
        spec.user_data.iter().map(|data| data.name.as_deref().filter(|name| single(&data.parameterization, name)));
    once("spec.userData", data, found);
    once("spec.resourceRequirements", spec.resource_requirements.iter().map(|entry| Some(entry.name.as_str())), found);
    once("spec.failureHandlers", spec.failure_handlers.iter().map(|entry| Some(entry.name.as_str())), found);
    once("spec.slurmSchedulers", spec.slurm_schedulers.iter().map(|entry| entry.name.as_deref()), found);
    once("spec.sources", spec.sources.iter().map(|entry| Some(entry.name.as_str())), found);
}

/// Returns whether parameters expand an entry to a family.
pub(super) fn is_family(parameterization: &Parameterization) -> bool {
    !parameterization.parameters.is_empty()
        || parameterization.use_parameters.is_some()
        || parameterization.parameters_file.is_some()
        || parameterization.use_parameters_file == Some(true)
        || parameterization.parameter_table.is_some()
}

/// Reports empty names and duplicates. `None` stands for a name that is not known before expansion.
pub(super) fn once<'n>(list: &str, names: impl Iterator<Item = Option<&'n str>>, found: &mut Findings) {
    let mut first: HashMap<&str, usize> = HashMap::new();
    for (index, name) in names.enumerate() {
        match name {
            None => {}
            Some("") => found.error(format!("{list}[{index}].name"), "must not be empty"),
            Some(name) => {
                let earlier = *first.entry(name).or_insert(index);
                if earlier != index {
                    found.add(
                        Problem::error(format!("{list}[{index}].name"), format!("the name '{name}' is used twice"))
                            .hint(format!("entry {earlier} of the list has it too"))
                            .kind(ProblemKind::Duplicate),
                    );
                }
            }
        }
    }
}
