//! Checks parameters and variables: exclusive fields, and names that must exist.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Findings, is_template};
use crate::parameters::Parameterization;
use crate::problem::Problem;
use crate::quantity::count;
use crate::workflow::WorkflowSpec;

const EXCLUDES: &str = "use either a parameters file or inline parameters, not both";

pub(super) fn check(spec: &WorkflowSpec, found: &mut Findings) {
    let jobs = spec.jobs.iter().map(|job| &job.parameterization);
    let files = spec.files.iter().map(|file| &file.parameterization);
    let data = spec.user_data.iter().map(|data| &data.parameterization);
    if spec.parameters_file.is_some() && !spec.parameters.is_empty() {
        found.error("spec.parametersFile", EXCLUDES);
    }
    let mut names: BTreeSet<&str> = spec.parameters.keys().map(String::as_str).collect();
    each("spec.jobs", jobs, spec, &mut names, found);
    each("spec.files", files, spec, &mut names, found);
    each("spec.userData", data, spec, &mut names, found);
    variables(spec, &names, found);
    sources(spec, found);
}

fn each<'s>(
    list: &str,
    entries: impl Iterator<Item = &'s Parameterization>,
    spec: &WorkflowSpec,
    names: &mut BTreeSet<&'s str>,
    found: &mut Findings,
) {
    for (index, entry) in entries.enumerate() {
        names.extend(entry.parameters.keys().map(String::as_str));
        let field = |name: &str| format!("{list}[{index}].{name}");
        exclusive(entry, &field, found);
        if entry.use_parameters_file == Some(true) && spec.parameters_file.is_none() && spec.parameter_table.is_none() {
            found.add(
                Problem::error(field("useParametersFile"), "the workflow has no parameters file")
                    .hint("name one at the top of the document, or in this entry"),
            );
        }
        picked(entry, spec, &field, found);
        if let Some(table) = &entry.parameter_table {
            columns(&field("parameterTable"), table.columns.len(), table.rows.iter().map(Vec::len), found);
        }
    }
    if let Some(table) = &spec.parameter_table
        && list == "spec.jobs"
    {
        columns("spec.parameterTable", table.columns.len(), table.rows.iter().map(Vec::len), found);
    }
}

/// Reports tables together with inline parameters, which exclude each other.
fn exclusive(entry: &Parameterization, field: &impl Fn(&str) -> String, found: &mut Findings) {
    let inline = !entry.parameters.is_empty() || entry.use_parameters.as_ref().is_some_and(|names| !names.is_empty());
    let shared = entry.use_parameters_file == Some(true);
    if entry.parameters_file.is_some() {
        if inline {
            found.error(field("parametersFile"), EXCLUDES);
        }
    } else if shared && inline {
        found.error(field("useParametersFile"), EXCLUDES);
    }
}

fn picked(entry: &Parameterization, spec: &WorkflowSpec, field: &impl Fn(&str) -> String, found: &mut Findings) {
    for (at, name) in entry.use_parameters.iter().flatten().enumerate() {
        if spec.parameters.contains_key(name) || is_template(name) {
            continue;
        }
        let problem =
            Problem::error(field(&format!("useParameters[{at}]")), format!("the workflow has no parameter '{name}'"));
        let problem = found.with_nearest(problem, name, spec.parameters.keys().map(String::as_str));
        found.tolerated(problem);
    }
}

fn columns(field: &str, columns: usize, mut rows: impl Iterator<Item = usize>, found: &mut Findings) {
    if let Some(row) = rows.position(|values| values != columns) {
        let message = format!("the row must have {}, one for each column", count(columns, "value"));
        found.error(format!("{field}.rows[{row}]"), message);
    }
}

fn variables(spec: &WorkflowSpec, parameters: &BTreeSet<&str>, found: &mut Findings) {
    for (name, value) in &spec.variables {
        let field = format!("spec.variables.{name}");
        if !is_identifier(name) {
            found.add(
                Problem::error(field.as_str(), format!("'{name}' is not a valid name of a variable"))
                    .hint("use letters, digits and '_', and do not begin with a digit"),
            );
        }
        if parameters.contains(name.as_str()) {
            found.error(field.as_str(), format!("'{name}' is also the name of a parameter"));
        }
        match value {
            Value::Array(_) | Value::Object(_) | Value::Null => {
                found.error(field, "a variable must have a single value");
            }
            Value::String(text) => {
                if let Some(token) = first_token(text) {
                    found.add(
                        Problem::error(field, format!("a variable cannot refer to '{{{token}}}'"))
                            .hint("write both placeholders in the text that uses them"),
                    );
                }
            }
            _ => {}
        }
    }
}

fn is_identifier(name: &str) -> bool {
    let mut letters = name.bytes();
    letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == b'_')
}

/// Returns the first `{name}` or `{name:format}` of a text; `${…}` belongs to the shell.
fn first_token(text: &str) -> Option<&str> {
    let mut before = None;
    for (at, letter) in text.char_indices() {
        if letter == '{'
            && before != Some('$')
            && let Some((token, _)) = text.get(at + 1..)?.split_once('}')
            && is_identifier(token.split(':').next().unwrap_or_default())
        {
            return Some(token);
        }
        before = Some(letter);
    }
    None
}

/// Checks that every table in a ConfigMap is used.
fn sources(spec: &WorkflowSpec, found: &mut Findings) {
    let parameterizations = spec
        .jobs
        .iter()
        .map(|job| &job.parameterization)
        .chain(spec.files.iter().map(|file| &file.parameterization))
        .chain(spec.user_data.iter().map(|data| &data.parameterization));
    if spec.sources.is_empty() {
        return;
    }
    let used: BTreeSet<&str> = parameterizations
        .filter_map(|entry| entry.parameters_file.as_deref())
        .chain(spec.parameters_file.as_deref())
        .collect();
    for (index, source) in spec.sources.iter().enumerate() {
        if !used.contains(source.name.as_str()) {
            let message = format!("no parameters file refers to '{}'", source.name);
            found.add(Problem::warning(format!("spec.sources[{index}].name"), message));
        }
    }
}
