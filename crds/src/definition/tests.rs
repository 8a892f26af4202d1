//! Tests of the required fields of every definition.

use super::*;

/// Visits every property of the schemas, with its path.
fn properties(visit: &mut dyn FnMut(&str, &Value)) {
    fn walk(path: &str, schema: &Value, visit: &mut dyn FnMut(&str, &Value)) {
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            visit(&path, property);
            walk(&path, property, visit);
            nested(&path, property, visit);
        }
    }
    fn nested(path: &str, schema: &Value, visit: &mut dyn FnMut(&str, &Value)) {
        for part in ["items", "additionalProperties"] {
            if let Some(inner) = schema.get(part) {
                walk(path, inner, visit);
                nested(path, inner, visit);
            }
        }
    }
    for definition in definitions() {
        let kind = definition["spec"]["names"]["kind"].as_str().expect("a kind").to_owned();
        walk(&kind, definition.pointer(SCHEMA).expect("a schema"), visit);
    }
}

/// Visits every schema below a property, itself included.
fn schemas(path: &str, schema: &Value, visit: &mut dyn FnMut(&str, &Value)) {
    visit(path, schema);
    for part in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get(part) {
            schemas(&format!("{path}.{part}"), inner, visit);
        }
    }
}

#[test]
fn every_field_has_a_sentence() {
    let mut seen = 0;
    properties(&mut |path, property| {
        let sentence = property["description"].as_str().unwrap_or_default();
        assert!(sentence.ends_with('.'), "{path}: '{sentence}'");
        seen += 1;
    });
    assert!(seen > 200, "{seen} fields");
}

#[test]
fn every_value_has_its_limits() {
    properties(&mut |path, property| {
        schemas(path, property, &mut |path, schema| {
            let has = |name: &str| assert!(schema.get(name).is_some(), "{path} has no {name}");
            match schema["type"].as_str() {
                Some("string") if schema.get("enum").is_none() => has("maxLength"),
                Some("integer") => ["format", "minimum", "maximum"].into_iter().for_each(has),
                Some("array") => ["maxItems", "x-kubernetes-list-type"].into_iter().for_each(has),
                Some("object") if schema.get("additionalProperties").is_some() => has("maxProperties"),
                _ => {}
            }
            assert!(schema.get("nullable").is_none(), "{path} may be null");
        });
    });
}

#[test]
fn what_is_free_is_so_on_purpose() {
    let mut free = Vec::new();
    properties(&mut |path, property| {
        schemas(path, property, &mut |path, schema| {
            if schema.get("x-kubernetes-preserve-unknown-fields").is_some() {
                free.push(path.trim_end_matches(".additionalProperties").to_owned());
            }
            if schema["type"] == "number" {
                free.push(path.to_owned());
            }
        });
    });
    let tables = |list: &str| format!("Workflow.spec.{list}.parameterTable.rows.items.items");
    let parameters = |list: &str| format!("Workflow.spec.{list}.parameters");
    let mut expected: Vec<String> =
        ["metadata", "parameters", "variables", "slurmDefaults", "userData.data", "parameterTable.rows.items.items"]
            .iter()
            .map(|field| format!("Workflow.spec.{field}"))
            .collect();
    for list in ["jobs", "files", "userData"] {
        expected.extend([tables(list), parameters(list)]);
    }
    // The modification time of a file in Torc 1.0, the only number with a fraction.
    expected.push("Workflow.spec.files.stMtime".to_owned());
    expected.sort();
    free.sort();
    assert_eq!(free, expected);
}

#[test]
fn names_columns_and_subresources() {
    let [cluster, workflow] = &definitions()[..] else { panic!("two definitions") };
    let names = |definition: &Value, field: &str| definition["spec"]["names"][field].clone();
    assert_eq!(names(workflow, "shortNames"), json!(["twf", "wf"]));
    assert_eq!(names(cluster, "shortNames"), json!(["slc"]));
    assert_eq!((names(workflow, "categories"), names(cluster, "categories")), (json!(["torc"]), json!(["torc"])));
    assert_eq!((&workflow["spec"]["scope"], &cluster["spec"]["scope"]), (&json!("Namespaced"), &json!("Cluster")));
    let columns = |definition: &Value, priority: i64| -> Vec<String> {
        let columns =
            definition["spec"]["versions"][0]["additionalPrinterColumns"].as_array().expect("columns").clone();
        let of_priority = columns.iter().filter(|column| column["priority"].as_i64().unwrap_or(0) == priority);
        of_priority.filter_map(|column| column["name"].as_str()).map(str::to_uppercase).collect()
    };
    assert_eq!(columns(workflow, 0), ["STATUS", "PROGRESS", "RUNNING", "FAILED", "ALLOCS", "AGE"]);
    assert_eq!(columns(workflow, 1), ["PROJECT", "CLUSTER", "RUN", "READY", "BLOCKED", "MESSAGE"]);
    assert_eq!(columns(cluster, 0), ["READY", "PARTITIONS", "LAST-CONTACT", "AGE"]);
    let version = &workflow["spec"]["versions"][0];
    assert_eq!(
        version["selectableFields"],
        json!([{ "jsonPath": ".spec.project" }, { "jsonPath": ".spec.slurmCluster" }])
    );
    assert_eq!(
        version["subresources"],
        json!({ "status": {}, "scale": { "specReplicasPath": ".spec.maxAllocations", "statusReplicasPath": ".status.allocations.active" } })
    );
    let spec = &version["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let defaults =
        ["suspend", "runId", "rerunPolicy", "maxAllocations"].map(|field| spec["properties"][field]["default"].clone());
    assert_eq!(defaults, [json!(false), json!(1), json!("Incomplete"), json!(4)]);
    assert_eq!(spec["properties"]["jobs"]["x-kubernetes-list-type"], "atomic");
}

/// A default that a document does not have would be a key of the wrong mode.
#[test]
fn nothing_below_the_execution_config_has_a_default() {
    let mut seen = 0;
    properties(&mut |path, property| {
        if path.starts_with("Workflow.spec.executionConfig") {
            assert!(property.get("default").is_none(), "{path} has a default");
            seen += 1;
        }
    });
    assert!(seen > 10);
}

#[test]
fn every_rule_is_in_its_place() {
    let text = serde_json::to_string(&definitions()).expect("JSON");
    for rule in WORKFLOW.iter().chain(CLUSTER) {
        let json = serde_json::to_string(&rule.to_json()).expect("JSON");
        assert!(text.contains(&json), "{} is missing", rule.cel);
    }
    // Helm would interpret these braces.
    assert!(!text.contains("{{") || !serde_json::to_string_pretty(&definitions()).expect("JSON").contains("{{"));
}
