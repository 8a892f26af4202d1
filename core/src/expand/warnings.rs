//! What is legal but probably not meant.

use std::collections::BTreeSet;

use torc_api::parameters::Parameterization;
use torc_api::problem::Problem;
use torc_api::workflow::WorkflowSpec;

use crate::expanded::Expanded;
use crate::graph::Adjacency;

use super::actions::with_suggestion;
use super::names::nearest;

/// Remarks on a document that expands.
pub fn warnings(spec: &WorkflowSpec, expanded: &Expanded) -> Vec<Problem> {
    let mut warnings = Vec::new();
    for (at, job) in spec.jobs.iter().enumerate() {
        unused_parameters(&format!("spec.jobs[{at}]"), &job.parameterization, spec, &mut warnings);
    }
    for (at, file) in spec.files.iter().enumerate() {
        unused_parameters(&format!("spec.files[{at}]"), &file.parameterization, spec, &mut warnings);
    }
    for (at, data) in spec.user_data.iter().enumerate() {
        unused_parameters(&format!("spec.userData[{at}]"), &data.parameterization, spec, &mut warnings);
    }
    replaced_lists(spec, &mut warnings);
    several_writers(expanded, &mut warnings);
    warnings
}

fn unused_parameters(field: &str, entry: &Parameterization, spec: &WorkflowSpec, warnings: &mut Vec<Problem>) {
    let Some(names) = &entry.use_parameters else { return };
    if !entry.parameters.is_empty() {
        let message = "the entry has `parameters` of its own, so `useParameters` does nothing";
        warnings.push(Problem::warning(format!("{field}.useParameters"), message));
        return;
    }
    for (at, name) in names.iter().enumerate().filter(|(_, name)| !spec.parameters.contains_key(*name)) {
        let message = format!("the workflow has no parameter `{name}`");
        let problem = Problem::warning(format!("{field}.useParameters[{at}]"), message);
        warnings.push(with_suggestion(problem, nearest(name, spec.parameters.keys().map(String::as_str))));
    }
}

/// A token in the command replaces the whole list of its kind, also what the command does not mention.
fn replaced_lists(spec: &WorkflowSpec, warnings: &mut Vec<Problem>) {
    for (at, job) in spec.jobs.iter().enumerate() {
        let kinds = [
            ("inputFiles", "files.input.", &job.input_files),
            ("outputFiles", "files.output.", &job.output_files),
            ("inputUserData", "user_data.input.", &job.input_user_data),
            ("outputUserData", "user_data.output.", &job.output_user_data),
        ];
        for (field, prefix, list) in kinds {
            let token = format!("${{{prefix}");
            let named: BTreeSet<&str> =
                job.command.split(token.as_str()).skip(1).filter_map(|rest| rest.split('}').next()).collect();
            let lost = list.iter().flatten().find(|name| !named.is_empty() && !named.contains(name.as_str()));
            if let Some(name) = lost.filter(|name| !name.contains('{')) {
                let message = format!("the command names `{token}…}}`, which replaces this list, and `{name}` is lost");
                warnings.push(Problem::warning(format!("spec.jobs[{at}].{field}"), message));
            }
        }
    }
}

fn several_writers(expanded: &Expanded, warnings: &mut Vec<Problem>) {
    let writers = Adjacency::inverted(expanded.files.len(), expanded.jobs.iter().map(|job| &job.output_files[..]));
    let name = |number: &u32| expanded.jobs.get(*number as usize).map_or("", |job| job.name.as_str());
    for (number, file) in (0u32..).zip(&expanded.files) {
        if let [first, second, ..] = writers.of(number) {
            let message = format!("file `{}` is written by `{}` and by `{}`", file.name, name(first), name(second));
            warnings.push(Problem::warning("spec.files", message));
        }
    }
}
