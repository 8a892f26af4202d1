//! Generates the custom resource definitions from the types, with limits for every value and the rules of `rules`.

use kube::CustomResourceExt as _;
use serde_json::{Value, json};

use crate::bounds;
use crate::cluster::SlurmCluster;
use crate::rules::{CLUSTER, Rule, WORKFLOW};
use crate::workflow::Workflow;

/// The annotation with the version of Torc that generated a definition.
pub const VERSION_ANNOTATION: &str = "torc.dev/version";

const SCHEMA: &str = "/spec/versions/0/schema/openAPIV3Schema";

/// Returns all definitions in a form that an API server accepts.
pub fn definitions() -> Vec<Value> {
    vec![
        definition(&SlurmCluster::crd(), "A Slurm cluster and how to reach it.", CLUSTER),
        definition(&Workflow::crd(), "A workflow of shell commands, and its progress.", WORKFLOW),
    ]
}

fn definition(derived: &impl serde::Serialize, description: &str, rules: &[Rule]) -> Value {
    // All keys of the derived types are texts, so the conversion to JSON never fails.
    let mut definition = serde_json::to_value(derived).unwrap_or_default();
    definition["metadata"]["annotations"] = json!({ VERSION_ANNOTATION: env!("CARGO_PKG_VERSION") });
    if let Some(schema) = definition.pointer_mut(SCHEMA) {
        simplify_schema(schema);
        bounds::complete(schema);
        schema["description"] = description.into();
        for rule in rules {
            insert_rule(schema, rule.path, rule);
        }
    }
    definition
}

/// Removes `nullable` and generated titles, and writes whole numbers as integers.
fn simplify_schema(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            object.remove("nullable");
            if object.get("title").is_some_and(Value::is_string) {
                object.remove("title");
            }
            object.values_mut().for_each(simplify_schema);
        }
        Value::Array(list) => list.iter_mut().for_each(simplify_schema),
        Value::Number(number) => {
            if let Some(whole) = number.as_f64().and_then(whole) {
                *schema = whole.into();
            }
        }
        _ => {}
    }
}

#[allow(clippy::cast_possible_truncation, reason = "only numbers that are exact in both")]
fn whole(number: f64) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    (number.fract() == 0.0 && number.abs() < EXACT).then_some(number as i64)
}

/// Adds a rule to the schema of the field at `path`.
fn insert_rule(schema: &mut Value, path: &str, rule: &Rule) {
    let mut at = schema;
    for step in path.split('.').filter(|step| !step.is_empty()) {
        let (field, items) = step.strip_suffix("[]").map_or((step, false), |field| (field, true));
        at = &mut at["properties"][field];
        if items {
            at = &mut at["items"];
        }
    }
    match at["x-kubernetes-validations"].as_array_mut() {
        Some(rules) => rules.push(rule.to_json()),
        None => at["x-kubernetes-validations"] = json!([rule.to_json()]),
    }
}

#[cfg(test)]
mod tests;
