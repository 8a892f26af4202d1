//! Warns about legal settings that are probably mistakes.

use std::collections::BTreeSet;

use torc_api::parameters::Parameterization;
use torc_api::problem::Problem;
use torc_api::quantity::{format_duration, parse_walltime};
use torc_api::workflow::WorkflowSpec;

use crate::expanded::{Expanded, ExpandedJob};
use crate::graph::Adjacency;
use crate::planning::fit::WalltimeMargin;

/// Returns warnings about a document without errors.
pub fn warnings(spec: &WorkflowSpec, expanded: &Expanded) -> Vec<Problem> {
    let mut warnings = Vec::new();
    for (at, job) in spec.jobs.iter().enumerate() {
        overridden_parameters(&format!("spec.jobs[{at}]"), &job.parameterization, &mut warnings);
    }
    for (at, file) in spec.files.iter().enumerate() {
        overridden_parameters(&format!("spec.files[{at}]"), &file.parameterization, &mut warnings);
    }
    for (at, data) in spec.user_data.iter().enumerate() {
        overridden_parameters(&format!("spec.userData[{at}]"), &data.parameterization, &mut warnings);
    }
    replaced_lists(spec, &mut warnings);
    short_walltimes(spec, expanded, &mut warnings);
    warn_of_several_writers(expanded, &mut warnings);
    warnings
}

/// Warns about a scheduler whose allocations end before its longest job.
fn short_walltimes(spec: &WorkflowSpec, expanded: &Expanded, warnings: &mut Vec<Problem>) {
    let margin = WalltimeMargin::of(spec.execution_config.as_ref());
    for (at, scheduler) in spec.slurm_schedulers.iter().enumerate() {
        let walltime = scheduler.walltime.as_deref().and_then(|text| parse_walltime(text).ok());
        let jobs = expanded.jobs.iter().filter(|job| job.scheduler.is_some() && job.scheduler == scheduler.name);
        let runtime =
            |job: &ExpandedJob| expanded.requirements.get(job.requirements as usize).map(|it| it.runtime_seconds);
        let longest = jobs.filter_map(|job| Some((runtime(job)?, job))).max_by_key(|(runtime, _)| *runtime);
        let (Some(walltime), Some((runtime, job))) = (walltime, longest) else { continue };
        if margin.end.seconds_for(runtime) <= walltime {
            continue;
        }
        let message = format!(
            "job `{}` declares a runtime of {}, but in a walltime of {} it gets its first signal after {}",
            job.name,
            format_duration(runtime),
            format_duration(walltime),
            format_duration(margin.end.usable_seconds(walltime).max(0)),
        );
        let least = format_duration(margin.walltime_for(runtime));
        let hint = format!("a walltime of at least {least}, or less `sigkillHeadroomSeconds` and warning time");
        warnings.push(Problem::warning(format!("spec.slurmSchedulers[{at}].walltime"), message).hint(hint));
    }
}

/// Warns about entries whose own parameters make `useParameters` ineffective.
fn overridden_parameters(field: &str, entry: &Parameterization, warnings: &mut Vec<Problem>) {
    if entry.use_parameters.is_some() && !entry.parameters.is_empty() {
        let message = "the entry has its own `parameters`, so `useParameters` has no effect";
        warnings.push(Problem::warning(format!("{field}.useParameters"), message));
    }
}

/// Warns about entries of a list that a token in the command replaces.
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
                let message = format!("the command names `{token}…}}`, which replaces this list; `{name}` is ignored");
                warnings.push(Problem::warning(format!("spec.jobs[{at}].{field}"), message));
            }
        }
    }
}

fn warn_of_several_writers(expanded: &Expanded, warnings: &mut Vec<Problem>) {
    let writers = Adjacency::inverted(expanded.files.len(), expanded.jobs.iter().map(|job| &job.output_files[..]));
    let name = |number: &u32| expanded.jobs.get(*number as usize).map_or("", |job| job.name.as_str());
    for (number, file) in (0u32..).zip(&expanded.files) {
        if let [first, second, ..] = writers.of(number) {
            let message = format!("file `{}` is written by `{}` and by `{}`", file.name, name(first), name(second));
            warnings.push(Problem::warning("spec.files", message));
        }
    }
}
