//! The schema of documents as a structure for fast lookups.
//!
//! It is derived from the JSON schema of the Rust types, so it always has the same fields. `load` checks documents
//! against it.

use std::collections::HashMap;
use std::sync::LazyLock;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use crate::bounds::{self, type_of};
use crate::document::{SlurmClusterDocument, WorkflowDocument};

/// Returns the self-contained JSON schema of `kind: Workflow`.
pub fn workflow_json_schema() -> Value {
    json_schema::<WorkflowDocument>()
}

/// Returns the self-contained JSON schema of `kind: SlurmCluster`.
pub fn cluster_json_schema() -> Value {
    json_schema::<SlurmClusterDocument>()
}

fn json_schema<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    bounds::complete(&mut schema);
    schema
}

/// The shape of a value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ValueShape {
    /// Any value, of the author's choice.
    Any,
    /// A boolean: true or false.
    Bool,
    /// An integer between two bounds, inclusive.
    Integer { least: i64, most: i64 },
    /// A number, with or without a fraction.
    Number,
    /// A text with a number of characters between two bounds, inclusive.
    Text { least: usize, most: usize },
    /// One of a few words.
    OneOf(Vec<String>),
    /// A list of at most `most` items.
    List { items: Box<ValueShape>, most: usize },
    /// A mapping with at most `most` keys of the author's choice.
    Map { values: Box<ValueShape>, most: usize },
    /// A mapping with the keys of a type.
    RecordSchema(Box<RecordSchema>),
}

/// An object whose keys are known.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RecordSchema {
    fields: HashMap<String, FieldSchema>,
    by_snake_name: HashMap<String, String>,
    required: Vec<String>,
}

/// A key of a record.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FieldSchema {
    /// The shape of the field's value.
    pub shape: ValueShape,
    /// The record must have the field.
    pub required: bool,
}

impl RecordSchema {
    /// Returns the field of this name.
    pub fn field(&self, name: &str) -> Option<&FieldSchema> {
        self.fields.get(name)
    }

    /// Returns the name of the field with exactly this spelling.
    pub fn names_exactly(&self, name: &str) -> Option<&str> {
        self.fields.get_key_value(name).map(|(name, _)| name.as_str())
    }

    /// Returns the name of the field with this spelling in a bare file.
    pub fn named_in_snake_case(&self, name: &str) -> Option<&str> {
        self.by_snake_name.get(name).map(String::as_str)
    }

    /// Returns the shape of an existing field.
    pub fn shape_of(&self, name: &str) -> &ValueShape {
        self.field(name).map_or(&ValueShape::Any, |field| &field.shape)
    }

    /// Returns all names, in no order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.fields.keys().map(String::as_str)
    }

    /// Returns the names of the required fields, sorted.
    pub fn required(&self) -> impl Iterator<Item = &str> {
        self.required.iter().map(String::as_str)
    }

    fn insert(&mut self, name: &str, shape: ValueShape, required: bool) {
        self.by_snake_name.insert(snake_case(name), name.to_owned());
        if required {
            self.required.push(name.to_owned());
            self.required.sort_unstable();
        }
        self.fields.insert(name.to_owned(), FieldSchema { shape, required });
    }
}

/// The schema of `kind: Workflow`, compiled once.
pub(crate) static WORKFLOW: LazyLock<RecordSchema> = LazyLock::new(|| envelope(&workflow_json_schema()));

/// The schema of `kind: SlurmCluster`, compiled once.
pub(crate) static CLUSTER: LazyLock<RecordSchema> = LazyLock::new(|| envelope(&cluster_json_schema()));

/// A bare file: the specification without its envelope, and a name.
pub(crate) static BARE: LazyLock<RecordSchema> = LazyLock::new(|| {
    let ValueShape::RecordSchema(spec) = WORKFLOW.shape_of("spec") else { return RecordSchema::default() };
    let mut bare = (**spec).clone();
    bare.insert("name", ValueShape::Text { least: 1, most: usize::MAX }, true);
    bare
});

/// Metadata that an API server adds; `apply` ignores it.
const KUBERNETES_METADATA: [&str; 10] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "uid",
];

/// Returns the schema of a whole document, with the keys that `kubectl get -o yaml` adds.
fn envelope(schema: &Value) -> RecordSchema {
    let ValueShape::RecordSchema(mut record) = compile(schema) else { return RecordSchema::default() };
    record.insert("kind", ValueShape::Text { least: 1, most: usize::MAX }, true);
    record.insert("status", ValueShape::Any, false);
    if let Some(FieldSchema { shape: ValueShape::RecordSchema(metadata), .. }) = record.fields.get_mut("metadata") {
        for name in KUBERNETES_METADATA {
            metadata.insert(name, ValueShape::Any, false);
        }
    }
    *record
}

/// Converts a JSON schema to a shape. Only the types of this crate generate schemas, so other forms become `Any`.
fn compile(schema: &Value) -> ValueShape {
    let Some(schema) = schema.as_object() else { return ValueShape::Any };
    if let Some(variants) = schema.get("anyOf").and_then(Value::as_array) {
        return variants.iter().find(|variant| !is_null(variant)).map_or(ValueShape::Any, compile);
    }
    if let Some(words) = words(schema) {
        return ValueShape::OneOf(words);
    }
    match type_of(schema).as_deref() {
        Some("boolean") => ValueShape::Bool,
        Some("integer") => integer(schema),
        Some("number") => ValueShape::Number,
        Some("string") => ValueShape::Text {
            least: size(schema, "minLength").unwrap_or(0),
            most: size(schema, "maxLength").unwrap_or(usize::MAX),
        },
        Some("array") => ValueShape::List {
            items: Box::new(schema.get("items").map_or(ValueShape::Any, compile)),
            most: size(schema, "maxItems").unwrap_or(usize::MAX),
        },
        Some("object") => object(schema),
        _ => ValueShape::Any,
    }
}

fn object(schema: &Map<String, Value>) -> ValueShape {
    if let Some(values) = schema.get("additionalProperties") {
        let most = size(schema, "maxProperties").unwrap_or(usize::MAX);
        return ValueShape::Map { values: Box::new(compile(values)), most };
    }
    let required: Vec<&str> =
        schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let mut record = RecordSchema::default();
    for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        record.insert(name, compile(property), required.contains(&name.as_str()));
    }
    ValueShape::RecordSchema(Box::new(record))
}

fn integer(schema: &Map<String, Value>) -> ValueShape {
    let (least, most) = match schema.get("format").and_then(Value::as_str) {
        Some("int32") => (i64::from(i32::MIN), i64::from(i32::MAX)),
        _ => (i64::MIN, i64::MAX),
    };
    let bound = |name: &str| schema.get(name).and_then(Value::as_i64);
    ValueShape::Integer { least: bound("minimum").unwrap_or(least), most: bound("maximum").unwrap_or(most) }
}

fn words(schema: &Map<String, Value>) -> Option<Vec<String>> {
    let owned = |value: &Value| value.as_str().map(str::to_owned);
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        return Some(values.iter().filter_map(owned).collect());
    }
    let variants = schema.get("oneOf").and_then(Value::as_array)?;
    variants.iter().map(|variant| variant.get("const").and_then(owned)).collect()
}

fn is_null(schema: &Value) -> bool {
    schema.get("type").and_then(Value::as_str) == Some("null")
}

fn size(schema: &Map<String, Value>, name: &str) -> Option<usize> {
    schema.get(name).and_then(Value::as_u64).and_then(|size| usize::try_from(size).ok())
}

/// Returns the spelling of a bare file: `num_cpus` for `numCpus`.
pub fn snake_case(name: &str) -> String {
    let mut snake = String::with_capacity(name.len() + 4);
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

/// Returns the spelling of the envelope: `numCpus` for `num_cpus`.
pub(crate) fn camel_case(name: &str) -> String {
    let mut camel = String::with_capacity(name.len());
    let mut upper = false;
    for letter in name.chars() {
        if letter == '_' {
            upper = true;
        } else {
            camel.push(if upper { letter.to_ascii_uppercase() } else { letter });
            upper = false;
        }
    }
    camel
}

#[cfg(test)]
mod fields;

#[cfg(test)]
mod tests {
    use super::*;

    fn record(shape: &ValueShape) -> &RecordSchema {
        match shape {
            ValueShape::RecordSchema(record) => record,
            other => panic!("not a record: {other:?}"),
        }
    }

    fn item(shape: &ValueShape) -> &ValueShape {
        match shape {
            ValueShape::List { items, .. } => items,
            other => panic!("not a list: {other:?}"),
        }
    }

    #[test]
    fn types_become_shapes() {
        let spec = record(WORKFLOW.shape_of("spec"));
        let job = record(item(spec.shape_of("jobs")));
        let cases = [
            (job.shape_of("name"), ValueShape::Text { least: 1, most: 1_024 }),
            (job.shape_of("priority"), ValueShape::Integer { least: 0, most: 1_000_000_000 }),
            (job.shape_of("tasksPerNode"), ValueShape::Integer { least: 1, most: i64::from(i32::MAX) }),
            (
                job.shape_of("env"),
                ValueShape::Map { values: Box::new(ValueShape::Text { least: 0, most: 131_072 }), most: 10_000 },
            ),
            (job.shape_of("parameters"), ValueShape::Map { values: Box::new(ValueShape::Any), most: 10_000 }),
            (job.shape_of("parameterMode"), ValueShape::OneOf(vec!["product".to_owned(), "zip".to_owned()])),
            (job.shape_of("useParametersFile"), ValueShape::Bool),
            (record(item(spec.shape_of("files"))).shape_of("stMtime"), ValueShape::Number),
            (record(item(spec.shape_of("userData"))).shape_of("data"), ValueShape::Any),
        ];
        for (shape, expected) in cases {
            assert_eq!(*shape, expected);
        }
        assert_eq!(job.required().collect::<Vec<_>>(), ["command", "name"]);
        assert_eq!(WORKFLOW.required().collect::<Vec<_>>(), ["apiVersion", "kind", "metadata", "spec"]);
        assert!(CLUSTER.field("spec").is_some());
    }

    #[test]
    fn every_field_is_found_by_its_snake_name() {
        let spec = record(WORKFLOW.shape_of("spec"));
        assert_eq!(
            spec.named_in_snake_case("compute_node_wait_for_new_jobs_seconds"),
            Some("computeNodeWaitForNewJobsSeconds")
        );
        assert_eq!(spec.named_in_snake_case("jobs"), Some("jobs"));
        assert_eq!(spec.named_in_snake_case("userData"), None);
    }
}
