//! Expands parameters and templates to concrete jobs.
//!
//! The order is fixed: variables, parameters, tokens in commands, references by name and by expression, then the
//! dependencies that files and user data imply. The same document always gives the same result. Jobs are in the order
//! of the document, and tables keep their own order. Families are sorted by parameter name, and the last parameter
//! varies fastest.
//!
//! Deliberately absent: reading files (see [`embed()`]), numbers of the store, anything that depends on a machine.

mod actions;
mod embed;
mod filter;
mod identifiers;
mod jobs;
mod names;
mod parameter_space;
mod pattern;
mod report;
mod requirements;
mod table;
mod template;
mod tokens;
mod value;
mod variables;
mod warnings;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};

use serde_json::Value;
use torc_api::action::Action;
use torc_api::parameters::Parameterization;
use torc_api::problem::{Problem, ProblemKind};
use torc_api::workflow::WorkflowSpec;

pub use embed::embed;
pub use tokens::fill_data;
pub use variables::resolved;
pub use warnings::warnings;

use crate::expanded::{Expanded, ExpandedFile, ExpandedJob, ExpandedUserData};
use crate::graph::{self, Cycle};
use filter::ProblemFilter;
use jobs::Symbols;
use names::{Duplicate, Names};
use parameter_space::{ParameterSpace, SharedParameters};
use report::ProblemCollector;
use template::Template;

/// Limits of an expanded document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpansionLimits {
    /// The largest number of jobs.
    pub max_jobs: usize,
    /// The largest number of files, and that of user data.
    pub max_files: usize,
    /// The largest number of dependencies, explicit and implied.
    pub max_dependencies: usize,
}

impl Default for ExpansionLimits {
    fn default() -> Self {
        Self { max_jobs: 1_000_000, max_files: 2_000_000, max_dependencies: 50_000_000 }
    }
}

/// Returns the expanded document, or all problems of the document.
pub fn expand(spec: &WorkflowSpec, limits: &ExpansionLimits) -> Result<Expanded, Vec<Problem>> {
    let (spec, mut problems) = match resolved(spec) {
        Ok(spec) => (spec, Vec::new()),
        Err(problems) => (Cow::Borrowed(spec), problems),
    };
    let rows = ParameterSpaces::of(&spec, limits, &mut problems);
    if rows.exceed(limits) {
        return Err(problems);
    }
    let filter = ProblemFilter::new(&spec, problems.iter().map(|problem| problem.field.clone()).collect());
    match expand_rows(&spec, &rows, limits) {
        Ok(expanded) if problems.is_empty() => Ok(expanded),
        Ok(_) => Err(problems),
        Err(found) => {
            problems.extend(found.into_iter().filter(|problem| filter.is_known(problem)));
            Err(problems)
        }
    }
}

/// Returns further problems of a document in which a placeholder replaces every field with a known problem.
///
/// Problems that only follow from the known ones are omitted.
pub fn further_problems(spec: &WorkflowSpec, limits: &ExpansionLimits, wrong: &[String]) -> Vec<Problem> {
    let filter = ProblemFilter::new(spec, wrong.to_vec());
    let mut problems = expand(spec, limits).err().unwrap_or_default();
    problems.retain(|problem| filter.is_known(problem));
    problems
}

fn expand_rows(
    spec: &WorkflowSpec,
    rows: &ParameterSpaces,
    limits: &ExpansionLimits,
) -> Result<Expanded, Vec<Problem>> {
    let (files, user_data) = (rows.files(spec), rows.user_data(spec));
    let mut report = ProblemCollector::default();
    let requirements = requirements::expand(&spec.resource_requirements, &mut report);
    let job_names = rows.job_names(spec);
    let mut ambiguous = false;
    let jobs = {
        let file_names: Vec<String> = files.iter().map(|file| file.name.clone()).collect();
        let data_names: Vec<String> = user_data.iter().map(|data| data.name.clone()).collect();
        let (jobs, same_jobs) = Names::new(&job_names);
        let (file_index, same_files) = Names::new(&file_names);
        let (data_index, same_data) = Names::new(&data_names);
        report_duplicates("jobs", &job_names, &rows.jobs, &same_jobs, &mut report);
        report_duplicates("files", &file_names, &rows.files, &same_files, &mut report);
        report_duplicates("userData", &data_names, &rows.user_data, &same_data, &mut report);
        ambiguous |= [&same_jobs, &same_files, &same_data].iter().any(|same| !same.is_empty());
        let mut symbols = Symbols {
            jobs,
            file_names: file_index,
            data_names: data_index,
            files: &files,
            user_data: &user_data,
            requirements: Symbols::by_name(&requirements),
            failure_handlers: spec.failure_handlers.iter().map(|handler| handler.name.as_str()).collect(),
            schedulers: spec.slurm_schedulers.iter().filter_map(|scheduler| scheduler.name.as_deref()).collect(),
            env: shared_env(spec, limits.max_jobs),
        };
        let jobs = jobs::expand(spec, &rows.jobs, &mut symbols, limits.max_dependencies, &mut report);
        actions::check(spec, &mut symbols.jobs, &mut report);
        jobs
    };
    let complete = jobs.len() == job_names.len();
    let mut expanded = Expanded { jobs, files, user_data, requirements };
    name_jobs(&mut expanded.jobs, job_names);
    identifiers::check(spec, &expanded, &entries(&rows.files), &mut report);
    // With duplicate names, dependencies are ambiguous.
    if complete && !ambiguous && imply_dependencies(&mut expanded, limits, &mut report) {
        report_cycles(&expanded, &entries(&rows.jobs), &mut report);
    }
    report.finish(expanded)
}

/// Reports jobs that wait for each other. Cycles among rows of the same entries are reported once.
fn report_cycles(expanded: &Expanded, entries: &[u32], report: &mut ProblemCollector) {
    let mut kinds: Vec<(Vec<u32>, &Cycle, usize)> = Vec::new();
    let mut places: HashMap<Vec<u32>, usize> = HashMap::new();
    let cycles = graph::find_cycles(expanded);
    for cycle in &cycles {
        let jobs = cycle.ring.iter().chain(&cycle.others);
        let mut kind: Vec<u32> = jobs.filter_map(|job| entries.get(*job as usize).copied()).collect();
        kind.sort_unstable();
        kind.dedup();
        match places.get(&kind).and_then(|place| kinds.get_mut(*place)) {
            Some((_, _, more)) => *more += 1,
            None => {
                places.insert(kind.clone(), kinds.len());
                kinds.push((kind, cycle, 0));
            }
        }
    }
    for (kind, cycle, more) in kinds {
        let mut message = format!("jobs wait for each other: {}", graph::describe_cycle(expanded, cycle));
        if more > 0 {
            message.push_str(&format!(" (and {more} more cycles of jobs of the same entries)"));
        }
        let field = kind.first().map_or_else(|| "spec.jobs".to_owned(), |entry| format!("spec.jobs[{entry}]"));
        report.add_another(Problem::error(field, message).kind(ProblemKind::Cycle));
    }
}

/// Returns the expanded files of a document.
pub fn expand_files(spec: &WorkflowSpec, limits: &ExpansionLimits) -> Result<Vec<ExpandedFile>, Vec<Problem>> {
    let spec = resolved(spec)?;
    let mut problems = Vec::new();
    let rows = ParameterSpaces::of(&spec, limits, &mut problems);
    if problems.is_empty() { Ok(rows.files(&spec)) } else { Err(problems) }
}

/// Returns for each job the index of its entry in the document.
pub fn entries_of_jobs(spec: &WorkflowSpec, limits: &ExpansionLimits) -> Result<Vec<u32>, Vec<Problem>> {
    let spec = resolved(spec)?;
    let mut problems = Vec::new();
    let rows = ParameterSpaces::of(&spec, limits, &mut problems);
    if problems.is_empty() { Ok(entries(&rows.jobs)) } else { Err(problems) }
}

/// Returns for each action the numbers of the jobs that trigger it, in order; empty if the action selects no jobs.
pub fn jobs_of_actions(actions: &[Action], names: &[String]) -> Vec<Vec<u32>> {
    let mut names = Names::new(names).0;
    actions.iter().map(|action| actions::chosen_jobs(action, &mut names)).collect()
}

/// The parameter spaces of all entries.
struct ParameterSpaces {
    jobs: Vec<ParameterSpace>,
    files: Vec<ParameterSpace>,
    user_data: Vec<ParameterSpace>,
}

impl ParameterSpaces {
    /// Expands the parameters of all entries. An entry with wrong parameters gets one row.
    fn of(spec: &WorkflowSpec, limits: &ExpansionLimits, problems: &mut Vec<Problem>) -> Self {
        let mut report = ProblemCollector::default();
        let has_table = spec.parameters_file.is_some() || spec.parameter_table.is_some();
        if has_table && !spec.parameters.is_empty() {
            let message = "a workflow has either `parameters` or a table, not both";
            report.add(Problem::error("spec.parametersFile", message));
        }
        let table = spec.parameter_table.as_ref();
        let shared = SharedParameters { parameters: &spec.parameters, has_table, table, most: limits.max_jobs };
        let entries = spec.jobs.iter().map(|job| &job.parameterization);
        let jobs = families("jobs", entries, &shared, limits.max_jobs, &mut report);
        let shared = SharedParameters { most: limits.max_files, ..shared };
        let entries = spec.files.iter().map(|file| &file.parameterization);
        let files = families("files", entries, &shared, limits.max_files, &mut report);
        let entries = spec.user_data.iter().map(|data| &data.parameterization);
        let mut user_data = families("userData", entries, &shared, limits.max_files, &mut report);
        for (family, _) in user_data.iter_mut().zip(&spec.user_data).filter(|(_, data)| data.name.is_none()) {
            // Nothing can refer to user data without a name, so it has no rows.
            *family = ParameterSpace::empty();
        }
        problems.extend(report.finish(()).err().unwrap_or_default());
        Self { jobs, files, user_data }
    }

    fn exceed(&self, limits: &ExpansionLimits) -> bool {
        let rows = |families: &[ParameterSpace]| {
            families.iter().fold(0, |sum: usize, family| sum.saturating_add(family.rows()))
        };
        rows(&self.jobs) > limits.max_jobs
            || rows(&self.files) > limits.max_files
            || rows(&self.user_data) > limits.max_files
    }

    fn job_names(&self, spec: &WorkflowSpec) -> Vec<String> {
        let mut names = Vec::with_capacity(self.jobs.iter().map(ParameterSpace::rows).sum());
        for (job, family) in spec.jobs.iter().zip(&self.jobs) {
            let name = Template::compile(&job.name, family);
            names.extend((0..family.rows()).map(|row| name.text(family, row)));
        }
        names
    }

    fn files(&self, spec: &WorkflowSpec) -> Vec<ExpandedFile> {
        let mut files = Vec::new();
        for (file, family) in spec.files.iter().zip(&self.files) {
            let name = Template::compile(&file.name, family);
            let path = Template::compile(&file.path, family);
            let identifier = file.identifier.as_deref().map(|text| Template::compile(text, family));
            files.extend((0..family.rows()).map(|row| ExpandedFile {
                name: name.text(family, row),
                path: path.text(family, row),
                identifier: identifier.as_ref().map(|text| text.text(family, row)),
            }));
        }
        files
    }

    fn user_data(&self, spec: &WorkflowSpec) -> Vec<ExpandedUserData> {
        let mut all = Vec::new();
        for (data, family) in spec.user_data.iter().zip(&self.user_data) {
            let name = Template::compile(data.name.as_deref().unwrap_or_default(), family);
            all.extend((0..family.rows()).map(|row| ExpandedUserData {
                name: name.text(family, row),
                data: data.data.as_ref().map(|value| print_data(value, family, row)),
                is_ephemeral: data.is_ephemeral.unwrap_or(false),
            }));
        }
        all
    }
}

fn families<'a>(
    list: &str,
    entries: impl Iterator<Item = &'a Parameterization>,
    shared: &SharedParameters<'_>,
    most: usize,
    report: &mut ProblemCollector,
) -> Vec<ParameterSpace> {
    let mut families = Vec::with_capacity(entries.size_hint().0);
    let mut rows: usize = 0;
    for (at, entry) in entries.enumerate() {
        match ParameterSpace::of(entry, shared) {
            Ok(family) => {
                rows = rows.saturating_add(family.rows());
                families.push(family);
            }
            Err(error) => {
                let field = format!("spec.{list}[{at}].{}", error.field());
                report.add(Problem::error(field, error.to_string()));
                families.push(ParameterSpace::single());
            }
        }
    }
    if rows > most {
        let message = format!("{rows} after expansion; the limit is {most}");
        report.add(Problem::error(format!("spec.{list}"), message).kind(ProblemKind::TooLarge));
    }
    families
}

/// Replaces parameters in every text inside a value. Keys and numbers do not change.
fn print_data(value: &Value, family: &ParameterSpace, row: usize) -> Value {
    match value {
        Value::String(text) => Value::String(Template::compile(text, family).text(family, row)),
        Value::Array(items) => items.iter().map(|item| print_data(item, family, row)).collect(),
        Value::Object(map) => map
            .iter()
            .map(|(key, item)| (key.clone(), print_data(item, family, row)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        other => other.clone(),
    }
}

/// Returns the workflow's environment. Shared parameters with one value are replaced; tokens of others stay as written.
fn shared_env(spec: &WorkflowSpec, most: usize) -> BTreeMap<String, String> {
    let single = |(name, written): (&String, &Value)| {
        let mut values = value::parse(written, most).ok()?;
        let one = if values.len() == 1 { values.pop()? } else { value::Scalar::Text(written.as_str()?.to_owned()) };
        Some((name.clone(), vec![one]))
    };
    let constants = ParameterSpace::zip(spec.parameters.iter().filter_map(single).collect())
        .unwrap_or_else(|_| ParameterSpace::single());
    let print = |text: &str| Template::compile(text, &constants).text(&constants, 0);
    spec.env.iter().map(|(key, text)| (key.clone(), print(text))).collect()
}

/// Returns for each row of all families the index of its entry.
fn entries(families: &[ParameterSpace]) -> Vec<u32> {
    (0u32..).zip(families).flat_map(|(entry, family)| std::iter::repeat_n(entry, family.rows())).collect()
}

fn report_duplicates(
    list: &str,
    names: &[String],
    families: &[ParameterSpace],
    same: &[Duplicate],
    report: &mut ProblemCollector,
) {
    if same.is_empty() {
        return;
    }
    let entries = entries(families);
    for Duplicate { first, second } in same {
        let (Some(name), Some(first), Some(second)) = (names.get(*second), entries.get(*first), entries.get(*second))
        else {
            continue;
        };
        let field = format!("spec.{list}[{second}].name");
        let problem = if first == second {
            Problem::error(field, format!("several rows of this entry have the name `{name}`"))
                .hint("use every parameter in the name; to depend on all jobs of an entry, use a regular expression")
        } else {
            Problem::error(field, format!("the name `{name}` is already used by spec.{list}[{first}]"))
        };
        report.add(problem.kind(ProblemKind::Duplicate));
    }
}

fn name_jobs(jobs: &mut [ExpandedJob], names: Vec<String>) {
    for (job, name) in jobs.iter_mut().zip(names) {
        job.name = name;
    }
}

/// Makes readers of a file or of user data depend on its writers. Returns false if there are too many dependencies.
fn imply_dependencies(expanded: &mut Expanded, limits: &ExpansionLimits, report: &mut ProblemCollector) -> bool {
    let file_writers =
        graph::Adjacency::inverted(expanded.files.len(), expanded.jobs.iter().map(|job| &job.output_files[..]));
    let data_writers =
        graph::Adjacency::inverted(expanded.user_data.len(), expanded.jobs.iter().map(|job| &job.output_user_data[..]));
    let mut edges: usize = 0;
    for (number, job) in (0u32..).zip(&mut expanded.jobs) {
        let files = job.input_files.iter().map(|file| file_writers.of(*file));
        let data = job.input_user_data.iter().map(|data| data_writers.of(*data));
        for writers in files.chain(data) {
            job.depends_on.extend(writers.iter().filter(|writer| **writer != number));
        }
        job.depends_on.sort_unstable();
        job.depends_on.dedup();
        edges += job.depends_on.len();
        if edges > limits.max_dependencies {
            report.add(jobs::too_many_edges(limits.max_dependencies));
            return false;
        }
    }
    true
}
