//! Checks that the installed CRDs have all fields of this version: the API server silently drops unknown fields.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio_util::sync::CancellationToken;
use torc_api::definition::definitions;

use super::context::Context;
use super::log_once::LogOnce;

/// Interval between checks while fields are missing.
const DEFINITIONS_INTERVAL: Duration = Duration::from_secs(10);
/// The path of the API server's description of our group.
const DESCRIPTION: &str = "/openapi/v3/apis/torc.dev/v1alpha1";
/// Maximum number of missing fields that a message names.
const NAMED: usize = 5;

/// Checks until no field is missing, or `stop`.
pub(super) async fn run(context: Arc<Context>, stop: CancellationToken) {
    let mut log_once = LogOnce::default();
    loop {
        match problem(&context).await {
            None => return context.readiness.has("definitions"),
            Some(problem) => {
                if log_once.should_log(&problem) {
                    tracing::warn!(error = problem, "custom resource definitions are outdated");
                }
                context.readiness.add_missing("definitions", problem);
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(DEFINITIONS_INTERVAL) => {}
        }
    }
}

async fn problem(context: &Context) -> Option<String> {
    let request = match axum::http::Request::get(DESCRIPTION).body(Vec::new()) {
        Ok(request) => request,
        Err(error) => return Some(error.to_string()),
    };
    let text = match context.client.request_text(request).await {
        Ok(text) => text,
        Err(error) => {
            return Some(format!(
                "the API server does not describe the custom resources ({error}); install them with `torc crd install`"
            ));
        }
    };
    let Ok(served) = serde_json::from_str::<Value>(&text) else {
        return Some("the API server's description cannot be read".to_owned());
    };
    outdated(&served)
}

/// Returns a message about the fields that the API server's description lacks.
fn outdated(served: &Value) -> Option<String> {
    let mut missing = Vec::new();
    for ours in definitions() {
        let kind = ours["spec"]["names"]["kind"].as_str().unwrap_or_default();
        let schema = &ours["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let theirs = &served["components"]["schemas"][format!("dev.torc.v1alpha1.{kind}")];
        missing_fields(kind, schema, theirs, &mut missing);
    }
    (!missing.is_empty()).then(|| {
        let more = missing.len().saturating_sub(NAMED);
        let named = missing.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
        let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("the installed definitions lack {named}{rest}: update them with `torc crd install`")
    })
}

/// Collects the fields that our schema has and the installed one lacks.
fn missing_fields(path: &str, ours: &Value, theirs: &Value, missing: &mut Vec<String>) {
    if theirs.is_null() {
        missing.push(path.to_owned());
        return;
    }
    for (name, field) in ours["properties"].as_object().into_iter().flatten() {
        // Every object has these, and each server describes them differently.
        if !path.contains('.') && matches!(name.as_str(), "metadata" | "apiVersion" | "kind") {
            continue;
        }
        missing_fields(&format!("{path}.{name}"), field, &theirs["properties"][name], missing);
    }
    if ours["items"].is_object() {
        missing_fields(&format!("{path}[]"), &ours["items"], &theirs["items"], missing);
    }
    if ours["additionalProperties"].is_object() {
        missing_fields(&format!("{path}{{}}"), &ours["additionalProperties"], &theirs["additionalProperties"], missing);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns the description of an API server with these definitions.
    fn described(definitions: &[Value]) -> Value {
        let mut schemas = serde_json::Map::new();
        for one in definitions {
            let kind = one["spec"]["names"]["kind"].as_str().unwrap_or_default();
            let schema = one["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone();
            schemas.insert(format!("dev.torc.v1alpha1.{kind}"), schema);
        }
        json!({"components": {"schemas": schemas}})
    }

    #[test]
    fn every_field_of_both_kinds_is_compared() {
        let ours = definitions();
        assert_eq!(outdated(&described(&ours)), None);
        let properties = "/spec/versions/0/schema/openAPIV3Schema/properties";
        for (kind, path, said) in [
            (0, "/spec/properties", "SlurmCluster.spec.commandPrefix"),
            (1, "/spec/properties/jobs/items/properties", "Workflow.spec.jobs[].command"),
            (1, "/status/properties", "Workflow.status.conditions"),
        ] {
            let mut older = ours.clone();
            let fields = older[kind].pointer_mut(&format!("{properties}{path}")).and_then(Value::as_object_mut);
            assert!(fields.and_then(|fields| fields.remove(said.rsplit('.').next()?)).is_some(), "{said}");
            let problem = outdated(&described(&older)).unwrap_or_default();
            assert!(problem.contains(&format!("definitions lack {said}: update")), "{problem}");
        }
        let nothing = outdated(&json!({})).unwrap_or_default();
        assert!(nothing.contains("lack SlurmCluster, Workflow: ") && nothing.contains("`torc crd install`"));
        let empty = json!({"components": {"schemas": {"dev.torc.v1alpha1.Workflow": {}}}});
        let many = outdated(&empty).unwrap_or_default();
        assert_eq!(many.matches(", ").count(), 2, "{many}");
    }

    fn missing(ours: &Value, theirs: &Value) -> Vec<String> {
        let mut missing = Vec::new();
        missing_fields("Workflow", ours, theirs, &mut missing);
        missing
    }

    #[test]
    fn an_older_definition_is_noticed() {
        let schema = |fields: Value| json!({"properties": {"metadata": {}, "spec": {"properties": fields}}});
        let item = |fields: Value| json!({"items": {"properties": fields}});
        let ours = schema(json!({"suspend": {}, "jobs": item(json!({"name": {}, "command": {}}))}));
        assert_eq!(missing(&ours, &ours), Vec::<String>::new());
        let newer = schema(json!({"suspend": {}, "further": {}, "jobs": item(json!({"name": {}, "command": {}}))}));
        assert_eq!(missing(&ours, &newer), Vec::<String>::new(), "a newer one does no harm");
        let older = schema(json!({"jobs": item(json!({"name": {}}))}));
        assert_eq!(missing(&ours, &older), ["Workflow.spec.jobs[].command", "Workflow.spec.suspend"]);
        assert_eq!(missing(&ours, &Value::Null), ["Workflow"]);
        let map = |fields: Value| schema(json!({"map": {"additionalProperties": {"properties": fields}}}));
        assert_eq!(missing(&map(json!({"a": {}, "b": {}})), &map(json!({"a": {}}))), ["Workflow.spec.map{}.b"]);
    }

    #[test]
    fn five_fields_are_named_and_the_others_are_counted() {
        let mut older = definitions();
        let path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/jobs/items/properties";
        let fields = older[1].pointer_mut(path).and_then(Value::as_object_mut).map(std::mem::take).unwrap_or_default();
        let problem = outdated(&described(&older)).unwrap_or_default();
        let named = problem.matches("Workflow.spec.jobs[].").count();
        assert!(named == 5 && problem.contains(&format!(" and {} more:", fields.len() - 5)), "{problem}");
    }
}
