//! Pins every field of the documents with its type, limits and default, line by line in `fields.txt`.

use serde_json::Value;

use super::*;
use crate::execution::{MonitorPlan, SIGKILL_HEADROOM_SECONDS};
use crate::wire::{LEASE_SECONDS, RunnerPolicy};

const PINNED: &str = include_str!("fields.txt");

/// Adds one line for each field, e.g. `spec.jobs[].priority: integer 0..1000000000, 0 when absent`.
fn fields(path: &str, schema: &Value, required: bool, lines: &mut Vec<String>) {
    let schema = match schema.get("anyOf").and_then(Value::as_array) {
        Some(variants) => &with_parent(schema, &variants[0]),
        None => schema,
    };
    let object = schema.as_object().expect("a schema");
    let bound = |name: &str| object.get(name).map_or_else(|| "-".to_owned(), Value::to_string);
    let kind = match (words(object), type_of(object).as_deref()) {
        (Some(words), _) => format!("one of {}", words.join(" ")),
        (_, Some("integer")) => format!("integer {}..{}", bound("minimum"), bound("maximum")),
        (_, Some("string")) => format!("text {}..{}", bound("minLength"), bound("maxLength")),
        (_, Some("array")) => format!("list of {} {}", bound("maxItems"), bound("x-kubernetes-list-type")),
        (_, Some("object")) if object.contains_key("additionalProperties") => {
            format!("map of {}", bound("maxProperties"))
        }
        (_, Some("object")) => "record".to_owned(),
        (_, Some(other)) => other.to_owned(),
        (_, None) => "any".to_owned(),
    };
    let required = if required { ", required" } else { "" };
    let default = object.get("default").map(|value| format!(", default {value}")).unwrap_or_default();
    let said = object.get("description").and_then(Value::as_str).unwrap_or_default();
    let absent = absent(said).map(|value| format!(", {value} when absent")).unwrap_or_default();
    if !path.is_empty() {
        lines.push(format!("{path}: {kind}{required}{default}{absent}"));
    }
    let names: Vec<&str> =
        object.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, field) in object.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let dot = if path.is_empty() { "" } else { "." };
        fields(&format!("{path}{dot}{name}"), field, names.contains(&name.as_str()), lines);
    }
    for (part, mark) in [("items", "[]"), ("additionalProperties", "{}")] {
        if let Some(inner) = object.get(part) {
            fields(&format!("{path}{mark}"), inner, false, lines);
        }
    }
}

/// Returns the non-null variant of a field with the field's description and default.
fn with_parent(field: &Value, variant: &Value) -> Value {
    let mut merged = variant.clone();
    for key in ["description", "default"] {
        if let Some(value) = field.get(key) {
            merged[key] = value.clone();
        }
    }
    merged
}

/// Returns the default in a description: the text between the nearest bracket or comma and `when absent`.
fn absent(description: &str) -> Option<&str> {
    let before = description.split(" when absent").next().filter(|before| before.len() < description.len())?;
    before.rsplit(['(', ',']).next().map(|value| value.trim().trim_end_matches('('))
}

fn all_fields() -> Vec<String> {
    let sorted = |schema: &Value| {
        let mut lines = Vec::new();
        fields("", schema, false, &mut lines);
        lines.sort();
        lines
    };
    let mut lines = vec!["# kind: Workflow".to_owned()];
    lines.extend(sorted(&workflow_json_schema()));
    lines.push("# kind: SlurmCluster".to_owned());
    lines.extend(sorted(&cluster_json_schema()));
    lines
}

// X06, X08, P05, J20, J25, J31
#[test]
fn every_field_has_its_pinned_limits_and_default() {
    let found = all_fields();
    let pinned: Vec<&str> = PINNED.lines().collect();
    for (found, pinned) in found.iter().zip(&pinned) {
        assert_eq!(found, pinned, "schema/fields.txt differs from the types");
    }
    assert_eq!(found.len(), pinned.len(), "fields in the types and in schema/fields.txt:\n{}", found.join("\n"));
}

// X06, X08, P05, J20, J25, J31
#[test]
fn documented_defaults_are_the_ones_in_the_code() {
    let terms = RunnerPolicy::default();
    let monitor = MonitorPlan::default();
    let cases = [
        ("spec.executionConfig.sigkillHeadroomSeconds", SIGKILL_HEADROOM_SECONDS.to_string(), "60"),
        ("spec.resourceMonitor.sampleIntervalSeconds", monitor.interval_seconds.to_string(), "10"),
        ("spec.resourceMonitor.flushIntervalSeconds", monitor.flush_interval_seconds.to_string(), "300"),
        ("spec.prefetch.leaseSeconds", LEASE_SECONDS.to_string(), "120"),
        ("spec.computeNodeWaitForNewJobsSeconds", terms.wait_for_new_jobs_seconds.to_string(), "90"),
        ("spec.computeNodeMinTimeForNewJobsSeconds", terms.min_time_for_new_jobs_seconds.to_string(), "300"),
        ("spec.computeNodeWaitForHealthyDatabaseMinutes", terms.wait_for_healthy_database_minutes.to_string(), "20"),
    ];
    let lines = all_fields();
    for (field, coded, pinned) in cases {
        assert_eq!(coded, pinned, "{field}");
        let line = lines.iter().find(|line| line.starts_with(&format!("{field}: "))).expect("a field");
        assert!(line.ends_with(&format!(", {pinned} when absent")), "{line}");
    }
}
