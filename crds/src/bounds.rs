//! Adds limits to every value of a schema.
//!
//! An API server requires the length of a text, a list or a map, and the range of a number. Limits of the types stay;
//! missing ones are added here, for documents and custom resources alike.

use serde_json::{Map, Value};

/// The default limit for texts in characters: the longest path of Linux.
const MAX_TEXT_CHARS: u64 = 4_096;
/// The default limit for lists: the largest number of jobs.
const MAX_LIST_ITEMS: u64 = 200_000;
/// The default limit for the keys of a map.
const MAX_MAP_KEYS: u64 = 10_000;
/// The default limit for numbers. It exceeds every time, memory and count, and every JSON parser reads it exactly.
const MAX_NUMBER: i64 = 1_000_000_000_000_000;

/// Adds the default limits to every value that has none.
pub fn complete(schema: &mut Value) {
    let Some(object) = schema.as_object_mut() else { return };
    match type_of(object).as_deref() {
        Some("string") if !object.contains_key("enum") && !object.contains_key("const") => {
            limit(object, "maxLength", MAX_TEXT_CHARS);
        }
        Some("integer") => integer(object),
        Some("array") => {
            limit(object, "maxItems", MAX_LIST_ITEMS);
            object.entry("x-kubernetes-list-type").or_insert_with(|| "atomic".into());
        }
        Some("object") if object.contains_key("additionalProperties") => limit(object, "maxProperties", MAX_MAP_KEYS),
        _ => {}
    }
    for (key, value) in object.iter_mut() {
        match (key.as_str(), value) {
            ("properties", Value::Object(fields)) => fields.values_mut().for_each(complete),
            ("items" | "additionalProperties", schema) => complete(schema),
            ("anyOf" | "oneOf" | "allOf", Value::Array(variants)) => variants.iter_mut().for_each(complete),
            _ => {}
        }
    }
}

fn limit(object: &mut Map<String, Value>, name: &str, most: u64) {
    object.entry(name).or_insert_with(|| most.into());
}

fn integer(object: &mut Map<String, Value>) {
    let (least, most) = match object.get("format").and_then(Value::as_str) {
        Some("int32") => (i64::from(i32::MIN), i64::from(i32::MAX)),
        _ => (-MAX_NUMBER, MAX_NUMBER),
    };
    object.entry("minimum").or_insert_with(|| least.into());
    object.entry("maximum").or_insert_with(|| most.into());
}

/// Returns the type of a schema that may also be null.
pub(crate) fn type_of(schema: &Map<String, Value>) -> Option<String> {
    match schema.get("type")? {
        Value::String(name) => Some(name.clone()),
        Value::Array(names) => names.iter().filter_map(Value::as_str).find(|name| *name != "null").map(str::to_owned),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_says_nothing_gets_a_limit_and_what_does_keeps_its_own() {
        let cases = [
            (json!({ "type": "string" }), json!({ "type": "string", "maxLength": 4_096 })),
            (json!({ "type": ["null", "string"] }), json!({ "type": ["null", "string"], "maxLength": 4_096 })),
            (json!({ "type": "string", "maxLength": 7 }), json!({ "type": "string", "maxLength": 7 })),
            (json!({ "type": "string", "enum": ["a"] }), json!({ "type": "string", "enum": ["a"] })),
            (json!({ "type": "string", "const": "a" }), json!({ "type": "string", "const": "a" })),
            (
                json!({ "type": "integer", "format": "int32", "minimum": 3 }),
                json!({ "type": "integer", "format": "int32", "minimum": 3, "maximum": 2_147_483_647 }),
            ),
            (
                json!({ "type": "integer", "maximum": 3 }),
                json!({ "type": "integer", "minimum": -1_000_000_000_000_000_i64, "maximum": 3 }),
            ),
            (
                json!({ "type": "array", "items": { "type": "string" } }),
                json!({
                    "type": "array", "maxItems": 200_000, "x-kubernetes-list-type": "atomic",
                    "items": { "type": "string", "maxLength": 4_096 },
                }),
            ),
            (
                json!({ "type": "object", "additionalProperties": { "type": "string" } }),
                json!({
                    "type": "object", "maxProperties": 10_000,
                    "additionalProperties": { "type": "string", "maxLength": 4_096 },
                }),
            ),
            (
                json!({ "type": "object", "properties": { "enum": { "type": "string" } } }),
                json!({ "type": "object", "properties": { "enum": { "type": "string", "maxLength": 4_096 } } }),
            ),
            (json!({ "type": "boolean" }), json!({ "type": "boolean" })),
        ];
        for (mut schema, expected) in cases {
            complete(&mut schema);
            assert_eq!(schema, expected);
        }
        for part in ["anyOf", "oneOf", "allOf"] {
            let mut schema = json!({ part: [{ "type": "string" }] });
            complete(&mut schema);
            assert_eq!(schema, json!({ part: [{ "type": "string", "maxLength": 4_096 }] }), "{part}");
        }
    }
}
