//! Parameters: how one entry of a document becomes many.

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The five fields that turn one job, file or value into a family.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Parameterization {
    /// Values of each parameter: `1:100`, `0:1:0.1`, `[a, b]`, `@file` or a single value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "free_form_map")]
    pub parameters: BTreeMap<String, Value>,
    /// `product` for every combination, or `zip` for the n-th value of each (product when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameter_mode: Option<ParameterMode>,
    /// Names of the workflow's `parameters` to use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub use_parameters: Option<Vec<String>>,
    /// A parameter table (.csv, .json, .jsonl, .ndjson): one instance per row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters_file: Option<String>,
    /// Use the workflow's `parametersFile` (false when absent).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub use_parameters_file: Option<bool>,
    /// The rows of `parametersFile`. The command line embeds them before it sends the document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameter_table: Option<ParameterTable>,
}

/// The way in which several parameters combine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ParameterMode {
    /// Every combination of the values.
    #[default]
    Product,
    /// The n-th value of each; all must have the same length.
    Zip,
}

/// A parameter table as data: column names once, then rows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ParameterTable {
    /// The parameter names, one for each column.
    pub columns: Vec<String>,
    /// One list of values per row, in the order of `columns`.
    #[schemars(schema_with = "free_form_rows")]
    pub rows: Vec<Vec<Value>>,
}

/// The schema of any JSON value.
pub fn free_form(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "x-kubernetes-preserve-unknown-fields": true })
}

/// The schema of a map from free names to any JSON value.
pub fn free_form_map(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "additionalProperties": { "x-kubernetes-preserve-unknown-fields": true },
    })
}

/// The schema of environment variables, whose values may be as long as the kernel allows.
pub fn environment(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "additionalProperties": { "type": "string", "maxLength": 131_072 } })
}

fn free_form_rows(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": { "type": "array", "items": { "x-kubernetes-preserve-unknown-fields": true } },
    })
}
