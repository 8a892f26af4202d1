//! Evaluates the rules without an API server.

use std::sync::LazyLock;

use kube_cel::{CompiledSchema, ErrorKind, ValidationError, Validator, compile_schema};
use serde_json::{Value, json};

use super::{CLUSTER, Judge, Rule, WORKFLOW, view};
use crate::document::Document;
use crate::finding::Finding;
use crate::problem::Problem;
use crate::workflow::WorkflowSpec;

/// A rule with its compiled expression.
struct Ready {
    rule: &'static Rule,
    compiled: CompiledSchema,
}

static OF_WORKFLOWS: LazyLock<Vec<Ready>> = LazyLock::new(|| ready(WORKFLOW));
static OF_CLUSTERS: LazyLock<Vec<Ready>> = LazyLock::new(|| ready(CLUSTER));

fn ready(rules: &'static [Rule]) -> Vec<Ready> {
    let here = rules.iter().filter(|rule| rule.judge == Judge::Expression);
    here.map(|rule| Ready { rule, compiled: compile(rule) }).collect()
}

/// Compiles a schema with only this rule.
pub(super) fn compile(rule: &Rule) -> CompiledSchema {
    compile_schema(&json!({ "x-kubernetes-validations": [rule.to_json()] }))
}

/// Returns the findings of the rules about a new document.
pub(crate) fn created(document: &Document) -> Vec<Finding> {
    let (rules, seen) = match document {
        Document::Workflow(_) => (&*OF_WORKFLOWS, view::of(document)),
        Document::SlurmCluster(_) => (&*OF_CLUSTERS, view::of(document)),
    };
    let validator = Validator::new();
    let mut findings = Vec::new();
    for Ready { rule, compiled } in rules.iter().filter(|ready| !ready.rule.is_transition()) {
        each(&seen, rule.place, String::new(), &mut |field, value| {
            let errors = validator.validate_compiled(compiled, value, None).err();
            findings.extend(errors.into_iter().flatten().map(|error| finding(rule, field, &error)));
        });
    }
    findings
}

/// Returns the problems of the rules that compare a workflow with its predecessor.
pub fn updated(old: &WorkflowSpec, new: &WorkflowSpec) -> Vec<Problem> {
    let (old, new) = (view::of_settings(old), view::of_settings(new));
    let validator = Validator::new();
    let mut problems = Vec::new();
    for Ready { rule, compiled } in OF_WORKFLOWS.iter().filter(|ready| ready.rule.is_transition()) {
        let errors = validator.validate_compiled(compiled, &new, Some(&old)).err();
        problems.extend(errors.into_iter().flatten().map(|error| finding(rule, "spec", &error).into_problem()));
    }
    problems
}

fn finding(rule: &Rule, place: &str, error: &ValidationError) -> Finding {
    let field = match (rule.field, place) {
        (Some(field), _) => format!("{place}.{field}"),
        (None, "") => "metadata.name".to_owned(),
        (None, place) => place.to_owned(),
    };
    debug_assert!(error.kind == ErrorKind::ValidationFailure, "{error}");
    let problem = Problem::error(field, error.message.as_str());
    Finding::new(Problem { hint: rule.hint.map(str::to_owned), ..problem }, rule.tolerated)
}

/// Visits every value at a path such as `spec.jobs[]`, with its field.
pub(super) fn each(value: &Value, place: &str, field: String, visit: &mut dyn FnMut(&str, &Value)) {
    if let Some(rest) = place.strip_prefix("[]") {
        let items = value.as_array().into_iter().flatten().enumerate();
        for (index, item) in items.filter(|(_, item)| !item.is_null()) {
            each(item, rest, format!("{field}[{index}]"), visit);
        }
        return;
    }
    let place = place.strip_prefix('.').unwrap_or(place);
    if place.is_empty() {
        return visit(&field, value);
    }
    let end = place.find(['.', '[']).unwrap_or(place.len());
    let (key, rest) = place.split_at(end);
    let name = if field.is_empty() { key.to_owned() } else { format!("{field}.{key}") };
    if let Some(value) = value.get(key).filter(|value| !value.is_null()) {
        each(value, rest, name, visit);
    }
}
