//! Descriptions of operations in the OpenAPI document, made from the types that handlers take and return.

use std::convert::Infallible;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Sse;
use axum::response::sse::Event as SseEvent;
use futures::stream::Stream;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Value, json};
use torc_api::api::{ErrorBody, Event};

use super::App;
use super::error::ApiError;
use super::extract::{Body, Param, Query, TargetWorkflow};
use crate::caller::Caller;

/// An operation of the OpenAPI document.
pub(super) struct Operation {
    summary: &'static str,
    parameters: Vec<Value>,
    request: Option<Value>,
    success: Value,
    error: Value,
}

impl Operation {
    /// Creates an operation that takes the parameters of its path and returns nothing.
    pub fn new(path: &str, summary: &'static str, types: &mut SchemaGenerator) -> Self {
        let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        let parameter =
            |name: &str| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } });
        Self {
            summary,
            parameters: names.map(parameter).collect(),
            request: None,
            success: json!({ "204": { "description": "done" } }),
            error: schema_of::<ErrorBody>(types),
        }
    }

    pub fn into_json(self) -> Value {
        let Self { summary, parameters, request, success, error } = self;
        let mut operation = json!({ "summary": summary, "parameters": parameters, "responses": success });
        operation["responses"]["default"] = json!({ "description": "refused", "content": content(JSON, error) });
        if let Some(schema) = request {
            operation["requestBody"] = json!({ "required": true, "content": content(JSON, schema) });
        }
        operation
    }

    fn returns(&mut self, media_type: &str, schema: Value) {
        self.success = json!({ "200": { "description": "done", "content": content(media_type, schema) } });
    }

    /// Adds a parameter of the query, unless it is there.
    fn query(&mut self, name: &str, mut schema: Value, required: bool) {
        if self.parameters.iter().any(|known| known["name"] == name) {
            return;
        }
        let mut parameter = json!({ "name": name, "in": "query" });
        if let Some(fields) = schema.as_object_mut() {
            // An absent parameter is left out and never `null`.
            fields.remove("nullable");
            if let Some(description) = fields.remove("description") {
                parameter["description"] = description;
            }
        }
        parameter["schema"] = schema;
        if required {
            parameter["required"] = json!(true);
        }
        self.parameters.push(parameter);
    }
}

const JSON: &str = "application/json";
const EVENT_STREAM: &str = "text/event-stream";

fn content(media_type: &str, schema: Value) -> Value {
    json!({ media_type: { "schema": schema } })
}

fn schema_of<T: JsonSchema>(types: &mut SchemaGenerator) -> Value {
    // OpenAPI 3.0 has no boolean schemas.
    match types.subschema_for::<T>().to_value() {
        Value::Bool(true) => json!({}),
        schema => schema,
    }
}

/// A handler that describes itself. axum infers `T` from its arguments.
pub(super) trait DescribedHandler<T> {
    fn describe(operation: &mut Operation, types: &mut SchemaGenerator);
}

/// An argument of a handler.
pub(super) trait RequestPart {
    fn describe(operation: &mut Operation, types: &mut SchemaGenerator);
}

/// A return value of a handler.
pub(super) trait ResponseType {
    fn describe(operation: &mut Operation, types: &mut SchemaGenerator);
}

impl<F, Fut> DescribedHandler<((),)> for F
where
    F: Fn() -> Fut,
    Fut: Future<Output: ResponseType>,
{
    fn describe(operation: &mut Operation, types: &mut SchemaGenerator) {
        Fut::Output::describe(operation, types);
    }
}

macro_rules! documented {
    ($($argument:ident),+) => {
        impl<F, Fut, M, $($argument),+> DescribedHandler<(M, $($argument),+)> for F
        where
            F: Fn($($argument),+) -> Fut,
            Fut: Future<Output: ResponseType>,
            $($argument: RequestPart),+
        {
            fn describe(operation: &mut Operation, types: &mut SchemaGenerator) {
                $($argument::describe(operation, types);)+
                Fut::Output::describe(operation, types);
            }
        }
    };
}

documented!(A);
documented!(A, B);
documented!(A, B, C);
documented!(A, B, C, D);

macro_rules! not_described {
    ($($input:ty),+) => {$(
        impl RequestPart for $input {
            fn describe(_: &mut Operation, _: &mut SchemaGenerator) {}
        }
    )+};
}

not_described!(State<App>, Caller, HeaderMap);

impl<T> RequestPart for Param<T> {
    /// Describes nothing: the path describes its parameters.
    fn describe(_: &mut Operation, _: &mut SchemaGenerator) {}
}

impl RequestPart for TargetWorkflow {
    fn describe(operation: &mut Operation, types: &mut SchemaGenerator) {
        Query::<super::Namespace>::describe(operation, types);
    }
}

impl<T: JsonSchema> RequestPart for Query<T> {
    fn describe(operation: &mut Operation, _: &mut SchemaGenerator) {
        let settings = SchemaSettings::openapi3().with(|settings| settings.inline_subschemas = true);
        let schema = settings.into_generator().into_root_schema_for::<T>().to_value();
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            operation.query(name, property.clone(), required.iter().any(|required| required == name));
        }
    }
}

impl<T: JsonSchema> RequestPart for Body<T> {
    fn describe(operation: &mut Operation, types: &mut SchemaGenerator) {
        operation.request = Some(schema_of::<T>(types));
    }
}

impl<T: JsonSchema> ResponseType for Json<T> {
    fn describe(operation: &mut Operation, types: &mut SchemaGenerator) {
        operation.returns(JSON, schema_of::<T>(types));
    }
}

impl ResponseType for StatusCode {
    fn describe(_: &mut Operation, _: &mut SchemaGenerator) {}
}

impl<S: Stream<Item = Result<SseEvent, Infallible>>> ResponseType for Sse<S> {
    fn describe(operation: &mut Operation, types: &mut SchemaGenerator) {
        operation.returns(EVENT_STREAM, schema_of::<Event>(types));
    }
}

impl<T: ResponseType> ResponseType for Result<T, ApiError> {
    fn describe(operation: &mut Operation, types: &mut SchemaGenerator) {
        T::describe(operation, types);
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use torc_api::api::{BackupRequest, Version};

    use super::*;

    #[derive(Deserialize, JsonSchema)]
    #[allow(dead_code)]
    struct Filter {
        /// The page size.
        limit: Option<u32>,
        /// The file to read.
        path: String,
        namespace: Option<String>,
    }

    fn described<H: DescribedHandler<T>, T>(path: &str, _: H) -> Value {
        let mut types = SchemaSettings::openapi3().into_generator();
        let mut operation = Operation::new(path, "Do it", &mut types);
        H::describe(&mut operation, &mut types);
        operation.into_json()
    }

    #[test]
    fn an_operation_is_described_by_its_handler() {
        async fn handler(_: State<App>, _: TargetWorkflow, _: Query<Filter>, _: Body<BackupRequest>) -> Json<Version> {
            Json(Version::default())
        }
        let whole = described::<_, ((), _, _, _, _)>("/v1/a/{one}/b/{two}", handler);
        let in_path =
            |name: &str| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } });
        let namespace = json!({
            "name": "namespace", "in": "query", "description": "`default` when absent.", "schema": { "type": "string" },
        });
        let limit = json!({
            "name": "limit", "in": "query", "description": "The page size.",
            "schema": { "type": "integer", "format": "uint32", "minimum": 0 },
        });
        let path = json!({
            "name": "path", "in": "query", "description": "The file to read.", "required": true, "schema": { "type": "string" },
        });
        let content = |name: &str| json!({ "application/json": { "schema": { "$ref": format!("#/components/schemas/{name}") } } });
        let expected = json!({
            "summary": "Do it",
            "parameters": [in_path("one"), in_path("two"), namespace, limit, path],
            "requestBody": { "required": true, "content": content("BackupRequest") },
            "responses": {
                "200": { "description": "done", "content": content("Version") },
                "default": { "description": "refused", "content": content("ErrorBody") },
            },
        });
        assert_eq!(whole, expected);
    }

    #[test]
    fn an_operation_without_an_answer_is_204() {
        async fn handler() -> Result<StatusCode, ApiError> {
            Ok(StatusCode::NO_CONTENT)
        }
        let bare = described::<_, ((),)>("/v1/a", handler);
        assert_eq!(bare["responses"]["204"], json!({ "description": "done" }));
        assert!(bare.get("requestBody").is_none() && bare["responses"].get("200").is_none());
    }
}
