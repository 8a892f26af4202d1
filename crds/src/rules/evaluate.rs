//! Evaluates the rules without an API server.

use std::sync::LazyLock;

use kube_cel::{CompiledSchema, ErrorKind, ValidationError, Validator, compile_schema};
use serde_json::{Value, json};

use super::{CLUSTER, Evaluator, Rule, WORKFLOW, view};
use crate::document::Document;
use crate::finding::Finding;
use crate::problem::Problem;
use crate::workflow::WorkflowSpec;

/// A rule with its compiled expression.
struct CompiledRule {
    rule: &'static Rule,
    compiled: CompiledSchema,
}

static WORKFLOW_RULES: LazyLock<Vec<CompiledRule>> = LazyLock::new(|| compiled_rules(WORKFLOW));
static CLUSTER_RULES: LazyLock<Vec<CompiledRule>> = LazyLock::new(|| compiled_rules(CLUSTER));

fn compiled_rules(rules: &'static [Rule]) -> Vec<CompiledRule> {
    let here = rules.iter().filter(|rule| rule.evaluator == Evaluator::Expression);
    here.map(|rule| CompiledRule { rule, compiled: compile(rule) }).collect()
}

/// Compiles a schema with only this rule.
pub(super) fn compile(rule: &Rule) -> CompiledSchema {
    compile_schema(&json!({ "x-kubernetes-validations": [rule.to_json()] }))
}

/// Returns the findings of the rules about a new document.
pub(crate) fn creation_findings(document: &Document) -> Vec<Finding> {
    let (rules, seen) = match document {
        Document::Workflow(_) => (&*WORKFLOW_RULES, view::of(document)),
        Document::SlurmCluster(_) => (&*CLUSTER_RULES, view::of(document)),
    };
    let validator = Validator::new();
    let mut findings = Vec::new();
    for CompiledRule { rule, compiled } in rules.iter().filter(|compiled_rules| !compiled_rules.rule.is_transition()) {
        visit_values(&seen, rule.path, String::new(), &mut |field, value| {
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
    for CompiledRule { rule, compiled } in WORKFLOW_RULES.iter().filter(|entry| entry.rule.is_transition()) {
        let errors = validator.validate_compiled(compiled, &new, Some(&old)).err();
        problems.extend(errors.into_iter().flatten().map(|error| finding(rule, "spec", &error).into_problem()));
    }
    problems
}

fn finding(rule: &Rule, path: &str, error: &ValidationError) -> Finding {
    let field = match (rule.field, path) {
        (Some(field), _) => format!("{path}.{field}"),
        (None, "") => "metadata.name".to_owned(),
        (None, path) => path.to_owned(),
    };
    debug_assert!(error.kind == ErrorKind::ValidationFailure, "{error}");
    let problem = Problem::error(field, error.message.as_str());
    Finding::new(Problem { hint: rule.hint.map(str::to_owned), ..problem }, rule.tolerated)
}

/// Visits every value at a path such as `spec.jobs[]`, with its field.
pub(super) fn visit_values(value: &Value, path: &str, field: String, visit: &mut dyn FnMut(&str, &Value)) {
    if let Some(rest) = path.strip_prefix("[]") {
        let items = value.as_array().into_iter().flatten().enumerate();
        for (index, item) in items.filter(|(_, item)| !item.is_null()) {
            visit_values(item, rest, format!("{field}[{index}]"), visit);
        }
        return;
    }
    let path = path.strip_prefix('.').unwrap_or(path);
    if path.is_empty() {
        return visit(&field, value);
    }
    let end = path.find(['.', '[']).unwrap_or(path.len());
    let (key, rest) = path.split_at(end);
    let name = if field.is_empty() { key.to_owned() } else { format!("{field}.{key}") };
    if let Some(value) = value.get(key).filter(|value| !value.is_null()) {
        visit_values(value, rest, name, visit);
    }
}
