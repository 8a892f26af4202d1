//! Compares the rules with the parsers that replace them without an API server, and checks their form.

use kube_cel::Validator;
use proptest::prelude::*;
use serde_json::{Value, json};

mod pairs;

use super::evaluate::compile;
use super::*;
use crate::document::{Document, WorkflowDocument};
use crate::load::{Format, LoadOptions, load};
use crate::problem::Problem;
use crate::quantity::{QuantityError, parse_duration, parse_memory, parse_walltime};
use crate::schema::{cluster_json_schema, workflow_json_schema};

fn all() -> impl Iterator<Item = &'static Rule> {
    WORKFLOW.iter().chain(CLUSTER)
}

/// Returns the message of a rule for a value.
fn said(rule: &Rule, value: &Value) -> Option<String> {
    let errors = Validator::new().validate_compiled(&compile(rule), value, None).err()?;
    errors.into_iter().next().map(|error| error.message)
}

fn at(path: &str) -> &'static Rule {
    let mut found = all().filter(|rule| rule.path == path);
    let rule = found.next().unwrap_or_else(|| panic!("no rule at {path}"));
    assert_eq!(found.next(), None, "several rules at {path}");
    rule
}

/// Returns the parser's error, if it is about the form.
fn parse_error(parsed: Result<i64, QuantityError>) -> Option<String> {
    match parsed {
        Ok(_) | Err(QuantityError::TooLarge { .. }) => None,
        Err(error) => Some(error.to_string()),
    }
}

#[track_caller]
fn agree(text: &str) {
    let value = json!(text);
    assert_eq!(
        said(at("spec.resourceRequirements[].memory"), &value),
        parse_error(parse_memory(text)),
        "memory '{text}'"
    );
    assert_eq!(
        said(at("spec.resourceRequirements[].runtime"), &value),
        parse_error(parse_duration(text)),
        "runtime '{text}'"
    );
    assert_eq!(
        said(at("spec.slurmSchedulers[].walltime"), &value),
        parse_error(parse_walltime(text)),
        "walltime '{text}'"
    );
}

#[test]
fn expressions_and_parsers_agree() {
    let texts = [
        "",
        " ",
        "1",
        "30",
        " 30 ",
        "1g",
        "1.5G",
        "1.5 g",
        "200Gi",
        "512MB",
        "1.g",
        ".5g",
        "1.2.3g",
        "1i",
        "1b",
        "1kib",
        "g",
        "PT4H",
        "pt4h",
        "P1DT2H",
        "P",
        "PT",
        "P1DT",
        "P1Y2M3W4DT5H6M7S",
        "PT1H1H",
        "P1H",
        "PT5M4H",
        "P0DT1M",
        "4h30m",
        "4h 30m",
        "30m4h",
        "1w2d3h4m5s",
        "1.5h",
        "1.h",
        "h",
        "4h30",
        "1-02:00:00",
        "02:00:00",
        "30:00",
        "1-02",
        "1-02:30",
        "1-",
        "-1",
        "1:2:3:4",
        "1::2",
        "::",
        "a:b",
        "1 d 2 h",
        "never",
        "PT4H ",
        " PT4H",
        "4 h",
        "1 0h",
        "P 1D",
    ];
    texts.iter().for_each(|text| agree(text));
    assert_eq!(said(at("spec.orphanAfter"), &json!("never")), None);
    assert_eq!(said(at("spec.orphanAfter"), &json!("sometimes")).as_deref(), Some("'sometimes' is not a duration"));
    assert_eq!(said(at("spec.resourceRequirements[].memory"), &json!("{size}")), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn expressions_and_parsers_agree_on_anything(text in "[ 0-9.:pPtTyYmMwWdDhHsSgGkKiIbB-]{0,9}") {
        agree(&text);
    }
}

/// Returns the schema of a place; none if there is no such field.
fn schema_at(rule: &Rule, mut schema: Value) -> Option<Value> {
    for step in rule.path.split('.').filter(|step| !step.is_empty()) {
        let field = step.trim_end_matches("[]");
        schema = beside_null(schema["properties"].get(field)?);
        if step.ends_with("[]") {
            schema = beside_null(schema.get("items")?);
        }
    }
    Some(schema)
}

fn beside_null(schema: &Value) -> Value {
    let variants = schema.get("anyOf").and_then(Value::as_array);
    variants.and_then(|variants| variants.first()).unwrap_or(schema).clone()
}

#[test]
fn rules_speak_of_fields_that_exist() {
    let workflow = WORKFLOW.iter().map(|rule| (rule, workflow_json_schema()));
    for (rule, schema) in workflow.chain(CLUSTER.iter().map(|rule| (rule, cluster_json_schema()))) {
        let path = schema_at(rule, schema).unwrap_or_else(|| panic!("there is no {}", rule.path));
        if let Some(field) = rule.field {
            assert!(path["properties"].get(field).is_some(), "{} has no {field}", rule.path);
        }
        assert!(compile(rule).compilation_errors().is_empty(), "{}", rule.cel);
    }
}

fn workflow(spec: &str) -> WorkflowDocument {
    let text =
        format!("{{apiVersion: 'torc.dev/v1alpha1', kind: 'Workflow', metadata: {{name: 'a'}}, spec: {{{spec}}}}}");
    let mut loaded = load(text.as_bytes(), Some(Format::Json5), &LoadOptions::default());
    match loaded.documents.pop().map(|found| found.document) {
        Some(Document::Workflow(document)) => document,
        other => panic!("{other:?}: {:?}", loaded.problems),
    }
}

#[test]
fn immutable_fields_are_refused_with_the_same_message() {
    let cases = [
        ("", "", vec![]),
        ("", "runId: 2", vec![]),
        ("", "runId: 1", vec![]),
        ("runId: 1", "", vec![]),
        ("stopPolicy: 'Cancel'", "runId: 2", vec![]),
        (
            "stopPolicy: 'Cancel'",
            "runId: 1",
            vec!["spec.stopPolicy: a canceled workflow continues only with a higher `runId`"],
        ),
        ("runId: 2", "runId: 2", vec![]),
        ("runId: 2", "runId: 1", vec!["spec.runId: must not decrease"]),
        ("runId: 2", "", vec!["spec.runId: must not decrease"]),
        ("stopPolicy: 'Cancel'", "stopPolicy: 'Cancel'", vec![]),
        ("stopPolicy: 'Drain'", "", vec![]),
        ("stopPolicy: 'Cancel'", "", vec!["spec.stopPolicy: a canceled workflow continues only with a higher `runId`"]),
        (
            "stopPolicy: 'Cancel', runId: 2",
            "stopPolicy: 'Drain', runId: 2",
            vec!["spec.stopPolicy: a canceled workflow continues only with a higher `runId`"],
        ),
        ("stopPolicy: 'Cancel', runId: 2", "runId: 3", vec![]),
        ("stopPolicy: 'Cancel', runId: 2", "stopPolicy: 'Cancel', runId: 1", vec!["spec.runId: must not decrease"]),
        ("stopPolicy: 'None'", "stopPolicy: 'Cancel'", vec![]),
        ("stopPolicy: 'Cancel', runId: 3", "stopPolicy: 'None', runId: 4", vec![]),
        ("managedBy: 'x.org/y'", "managedBy: 'x.org/y'", vec![]),
        ("managedBy: 'x.org/y'", "", vec!["spec.managedBy: must not change"]),
        ("", "managedBy: 'x.org/y'", vec!["spec.managedBy: must not change"]),
        ("managedBy: 'x.org/y'", "managedBy: 'x.org/z'", vec!["spec.managedBy: must not change"]),
    ];
    for (old, new, expected) in cases {
        let problems = updated(&workflow(old).spec, &workflow(new).spec);
        let said: Vec<String> = problems.iter().map(|found| format!("{}: {}", found.field, found.message)).collect();
        assert_eq!(said, expected, "{old} -> {new}");
    }
    let lower = updated(&workflow("runId: 2").spec, &workflow("runId: 1").spec);
    let expected = Problem::error("spec.runId", "must not decrease").hint("a higher number runs the workflow again");
    assert_eq!(lower, [expected]);
}
