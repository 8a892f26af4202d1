//! Replaces variables, the constants of a document, in all its texts before any other expansion.
//!
//! In a document with variables, a `{token}` that is neither a variable nor a parameter is an error. `${…}` belongs to
//! the shell and to file tokens, so it does not change. The content of tables does not change either.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use torc_api::nearest::nearest;
use torc_api::parameters::Parameterization;
use torc_api::problem::Problem;
use torc_api::workflow::WorkflowSpec;

/// Returns the specification with every variable replaced, or the given one if it has none.
pub fn resolved(spec: &WorkflowSpec) -> Result<Cow<'_, WorkflowSpec>, Vec<Problem>> {
    if spec.variables.is_empty() {
        return Ok(Cow::Borrowed(spec));
    }
    let mut walker =
        SubstitutionWalker { variables: literals(spec)?, known: parameter_names(spec), problems: Vec::new() };
    walker.reject_collisions();
    walker.known.extend(walker.variables.keys().cloned());
    let mut document = serde_json::to_value(spec).map_err(|error| unreadable(&error))?;
    walker.value("spec", &mut document);
    if !walker.problems.is_empty() {
        return Err(walker.problems);
    }
    serde_json::from_value(document).map(Cow::Owned).map_err(|error| unreadable(&error))
}

/// Returns a text with the document's variables replaced; unchanged if a variable is invalid.
pub fn in_text(spec: &WorkflowSpec, text: &str) -> String {
    literals(spec).map_or_else(|_| text.to_owned(), |variables| replace(text, &variables))
}

fn unreadable(error: &serde_json::Error) -> Vec<Problem> {
    vec![Problem::error("spec", format!("cannot replace variables: {error}"))]
}

fn literals(spec: &WorkflowSpec) -> Result<BTreeMap<String, String>, Vec<Problem>> {
    let mut literals = BTreeMap::new();
    let mut problems = Vec::new();
    for (name, value) in &spec.variables {
        let field = format!("spec.variables.{name}");
        if !is_identifier(name) {
            let message = format!("`{name}` is not a valid name of a variable");
            problems.push(
                Problem::error(&field, message).hint("use letters, digits and '_', and do not begin with a digit"),
            );
            continue;
        }
        let literal = match value {
            Value::String(text) => text.clone(),
            Value::Number(_) | Value::Bool(_) => value.to_string(),
            _ => {
                problems.push(Problem::error(field, "a variable must be a text, a number or a boolean"));
                continue;
            }
        };
        if let Some(token) = tokens(&literal).find(|token| is_identifier(token.name)) {
            let message = format!("a variable cannot refer to `{{{}}}`", token.name);
            problems.push(Problem::error(field, message).hint("write both placeholders in the text that uses them"));
            continue;
        }
        literals.insert(name.clone(), literal);
    }
    if problems.is_empty() { Ok(literals) } else { Err(problems) }
}

fn parameter_names(spec: &WorkflowSpec) -> BTreeSet<String> {
    let mut names: BTreeSet<String> = spec.parameters.keys().cloned().collect();
    names.extend(spec.parameter_table.iter().flat_map(|table| table.columns.iter().cloned()));
    let mut add = |entry: &Parameterization| {
        names.extend(entry.parameters.keys().cloned());
        names.extend(entry.parameter_table.iter().flat_map(|table| table.columns.iter().cloned()));
    };
    spec.jobs.iter().for_each(|job| add(&job.parameterization));
    spec.files.iter().for_each(|file| add(&file.parameterization));
    spec.user_data.iter().for_each(|data| add(&data.parameterization));
    names
}

struct SubstitutionWalker {
    variables: BTreeMap<String, String>,
    known: BTreeSet<String>,
    problems: Vec<Problem>,
}

impl SubstitutionWalker {
    fn reject_collisions(&mut self) {
        for name in self.variables.keys().filter(|name| self.known.contains(*name)) {
            let message = format!("`{name}` is both a variable and a parameter");
            self.problems.push(Problem::error(format!("spec.variables.{name}"), message).hint("rename one of them"));
        }
    }

    fn value(&mut self, field: &str, value: &mut Value) {
        match value {
            Value::String(text) => self.text(field, text),
            Value::Array(items) => {
                for (at, item) in items.iter_mut().enumerate() {
                    self.value(&format!("{field}[{at}]"), item);
                }
            }
            Value::Object(map) => {
                for (key, item) in map.iter_mut().filter(|(key, _)| !is_exempt(key)) {
                    self.value(&format!("{field}.{key}"), item);
                }
            }
            _ => {}
        }
    }

    fn text(&mut self, field: &str, text: &mut String) {
        if !text.contains('{') {
            return;
        }
        for token in tokens(text).filter(|token| is_identifier(token.name) && !self.known.contains(token.name)) {
            let message = format!("`{{{}}}` is neither a variable nor a parameter", token.name);
            let problem = Problem::error(field, message);
            let near = nearest(token.name, self.known.iter().map(String::as_str));
            self.problems.push(match near {
                Some(near) => problem.hint(format!("did you mean `{{{near}}}`?")),
                None => problem,
            });
        }
        *text = replace(text, &self.variables);
    }
}

/// Returns whether a field has names or data instead of texts.
fn is_exempt(key: &str) -> bool {
    matches!(key, "variables" | "useParameters" | "parameterTable")
}

struct Token<'a> {
    name: &'a str,
    start: usize,
    end: usize,
}

/// Returns the tokens in single braces that are not `${…}` of the shell.
fn tokens(text: &str) -> impl Iterator<Item = Token<'_>> {
    let mut position = 0;
    std::iter::from_fn(move || {
        loop {
            let start = position + text[position..].find('{')?;
            position = start + 1;
            if text[..start].ends_with('$') {
                continue;
            }
            let inner = &text[position..];
            let Some(length) = inner.find(['{', '}']).filter(|&at| inner[at..].starts_with('}')) else { continue };
            let name = inner[..length].split(':').next().unwrap_or_default();
            position += length + 1;
            return Some(Token { name, start, end: position });
        }
    })
}

fn replace(text: &str, variables: &BTreeMap<String, String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut copied = 0;
    for token in tokens(text) {
        if let Some(value) = variables.get(token.name) {
            out.push_str(&text[copied..token.start]);
            out.push_str(value);
            copied = token.end;
        }
    }
    out.push_str(&text[copied..]);
    out
}

fn is_identifier(name: &str) -> bool {
    let mut characters = name.chars();
    characters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && characters.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn spec(value: Value) -> WorkflowSpec {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn variables_reach_every_text() {
        let spec = spec(json!({
            "description": "run of {project}",
            "variables": {"root": "/scratch", "project": "p42", "n": 3, "home": "${HOME}/x"},
            "env": {"PROJECT": "{project}"},
            "parameters": {"i": "1:{n}"},
            "jobs": [{
                "name": "a_{i:02d}",
                "command": "run {root}/{i} ${root} {home} {} {\"json\": 1} \\d{3}",
                "useParameters": ["i"],
            }],
            "slurmSchedulers": [{"name": "s", "account": "{project}"}],
        }));
        let resolved = resolved(&spec).unwrap();
        assert_eq!(resolved.description.as_deref(), Some("run of p42"));
        assert_eq!(resolved.env["PROJECT"], "p42");
        assert_eq!(resolved.parameters["i"], json!("1:3"));
        assert_eq!(resolved.jobs[0].name, "a_{i:02d}");
        assert_eq!(resolved.jobs[0].command, "run /scratch/{i} ${root} ${HOME}/x {} {\"json\": 1} \\d{3}");
        assert_eq!(resolved.slurm_schedulers[0].account, "p42");
    }

    #[test]
    fn mistakes_are_named_with_their_field() {
        let jobs = json!([{"name": "a", "command": "echo {rot} {other}", "parameters": {"p": "1:2"}}]);
        let table = [
            (json!({"root": "/x"}), "spec.jobs[0].command", "`{rot}` is neither"),
            (json!({"root": "/x"}), "spec.jobs[0].command", "`{other}` is neither"),
            (json!({"p": "/x"}), "spec.variables.p", "both a variable and a parameter"),
            (json!({"1a": "/x"}), "spec.variables.1a", "is not a valid name"),
            (json!({"a": ["/x"]}), "spec.variables.a", "a variable must be a text"),
            (json!({"a": "{b}/x", "b": "y"}), "spec.variables.a", "cannot refer to `{b}`"),
        ];
        for (variables, field, message) in table {
            let problems = resolved(&spec(json!({"variables": variables, "jobs": jobs.clone()}))).unwrap_err();
            let found = problems.iter().any(|p| p.field == field && p.message.contains(message));
            assert!(found, "{field}: {message} in {problems:?}");
        }
    }

    #[test]
    fn tokens_stay_unchanged_without_variables() {
        let spec = spec(json!({"jobs": [{"name": "a", "command": "echo {whatever}"}]}));
        assert!(matches!(resolved(&spec).unwrap(), Cow::Borrowed(_)));
    }

    #[test]
    fn parameters_of_all_entries_are_known_names() {
        let table = json!({"columns": ["t"], "rows": [[1]]});
        let document = |token: &str| {
            spec(json!({
                "variables": {"v": "x"},
                "description": format!("{{{token}}}"),
                "parameters": {"shared": 1},
                "parameterTable": {"columns": ["column"], "rows": [[1]]},
                "jobs": [{"name": "a", "command": "x", "parameters": {"of_job": 1}}],
                "files": [{"name": "f", "path": "f", "parameters": {"of_file": 1}}],
                "userData": [{"name": "d", "parameterTable": table.clone()}],
            }))
        };
        for token in ["v", "shared", "column", "of_job", "of_file", "t", "v:03d", "1x", "a b", ""] {
            assert!(resolved(&document(token)).is_ok(), "{token}");
        }
        for token in ["x", "of_jo", "_x", "x1"] {
            assert!(resolved(&document(token)).is_err(), "{token}");
        }
        let hint = |token: &str| resolved(&document(token)).unwrap_err().remove(0).hint;
        assert_eq!((hint("of_jo").as_deref(), hint("nothing_alike")), (Some("did you mean `{of_job}`?"), None));
    }

    #[test]
    fn tables_and_names_of_parameters_are_left_alone() {
        let document = spec(json!({
            "variables": {"v": "x", "n": 3, "flag": true},
            "parameterTable": {"columns": ["c"], "rows": [["{v} {unknown}"]]},
            "description": "{n} {flag} {v:>3} {{v}} ${v}",
            "jobs": [{"name": "a", "command": "x", "useParameters": ["{v}"]}],
        }));
        let resolved = resolved(&document).unwrap();
        assert_eq!(resolved.description.as_deref(), Some("3 true x {x} ${v}"));
        assert_eq!(resolved.parameter_table.as_ref().unwrap().rows[0][0], json!("{v} {unknown}"));
        assert_eq!(resolved.jobs[0].parameterization.use_parameters, Some(vec!["{v}".to_owned()]));
        assert_eq!(resolved.variables, document.variables);
    }

    #[test]
    fn one_text_is_replaced_only_with_usable_variables() {
        let good = spec(json!({"variables": {"dir": "/d", "_x1": "y"}}));
        assert_eq!(in_text(&good, "{dir}/{_x1}/{z}"), "/d/y/{z}");
        let bad = spec(json!({"variables": {"dir": "/d", "a": "{dir}"}}));
        assert_eq!(in_text(&bad, "{dir}/z"), "{dir}/z");
    }
}
