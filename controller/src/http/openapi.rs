//! The OpenAPI document, made from the route table.

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::routes;

pub fn document() -> Value {
    let mut types = SchemaSettings::openapi3().into_generator();
    let mut paths = Map::new();
    for route in routes() {
        if let Some(operation) = route.operation(&mut types) {
            let methods = paths.entry(route.rule().path).or_insert_with(|| json!({}));
            methods[route.rule().method.as_str().to_lowercase()] = operation;
        }
    }
    let schemas = types.take_definitions(true);
    json!({
        "openapi": "3.0.3",
        "info": {
            "title": "Torc",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Runs workflows that are described in declarative documents. Every route except the health checks requires a bearer token.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
        "security": [{ "token": [] }],
    })
}
