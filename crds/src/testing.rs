//! Helpers for the tests of this crate.
#![allow(clippy::unwrap_used)]

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::load::{Format, LoadOptions, Loaded, load};
use crate::problem::{Problem, Severity};
use crate::schema::snake_case;

/// Returns a problem as `torc validate` shows it: `line:column severity field: message (hint)`.
pub(crate) fn shown(problem: &Problem) -> String {
    let place = problem.position.map(|at| format!("{}:{} ", at.line, at.column)).unwrap_or_default();
    let severity = if problem.severity == Severity::Error { "error" } else { "warning" };
    let field = if problem.field.is_empty() { String::new() } else { format!(" {}", problem.field) };
    let hint = problem.hint.as_ref().map(|hint| format!(" ({hint})")).unwrap_or_default();
    format!("{place}{severity}{field}: {}{hint}", problem.message)
}

pub(crate) fn read(text: &str, format: Format) -> Loaded {
    load(text.as_bytes(), Some(format), &LoadOptions::default())
}

pub(crate) fn all_problems(text: &str, format: Format) -> Vec<String> {
    read(text, format).problems.iter().map(shown).collect()
}

/// Returns an envelope around lines of a workflow's specification, which begin on line 6.
pub(crate) fn envelope(spec: &str) -> String {
    document("Workflow", "test", spec)
}

/// Returns a document of a kind, with a name and lines of a specification, which begin on line 6.
pub(crate) fn document(kind: &str, name: &str, spec: &str) -> String {
    let indented: String = spec.lines().map(|line| format!("  {line}\n")).collect();
    format!("apiVersion: torc.dev/v1alpha1\nkind: {kind}\nmetadata:\n  name: {name}\nspec:\n{indented}")
}

/// Returns a specification as a bare file has it: keys of types in snake_case, keys of the author as they are.
pub(crate) fn bare(value: &Value, free: bool) -> Value {
    const FREE: [&str; 6] = ["env", "parameters", "variables", "metadata", "data", "slurmDefaults"];
    match value {
        Value::Object(map) => {
            let entry = |(key, value): (&String, &Value)| {
                let name = if free { key.clone() } else { snake_case(key) };
                (name, bare(value, free || FREE.contains(&key.as_str())))
            };
            Value::Object(map.iter().map(entry).collect::<Map<_, _>>())
        }
        Value::Array(items) => Value::Array(items.iter().map(|item| bare(item, free)).collect()),
        other => other.clone(),
    }
}

/// Checks that a value is written as this JSON, and that this JSON is read as the value.
#[track_caller]
pub(crate) fn is_written_as<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T, json: Value) {
    assert_eq!(serde_json::to_value(value).unwrap(), json, "what is written");
    assert_eq!(serde_json::from_value::<T>(json).unwrap(), *value, "what is read back");
}

/// Checks the text of every value of an enumeration, in both directions.
#[track_caller]
pub(crate) fn are_named<T: Serialize + DeserializeOwned + PartialEq + Debug>(names: &[(T, &str)]) {
    for (value, name) in names {
        is_written_as(value, Value::from(*name));
    }
}

/// Removes the mark `^` from a text, and returns its position as `line:column`.
#[track_caller]
pub(crate) fn unmarked(text: &str) -> (String, String) {
    let (before, after) = text.split_once('^').unwrap_or_else(|| panic!("no mark in {text}"));
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (format!("{before}{after}"), format!("{line}:{column}"))
}
