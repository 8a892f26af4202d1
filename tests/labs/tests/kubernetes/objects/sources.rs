//! Parameter tables in ConfigMaps: changes are followed, and errors reported.

use serde_json::{Value, json};
use torc_tests::labs::kube::expect_status;

use super::Cluster;

/// Returns a workflow with a job for each row of a table.
fn of_table(config_map: &str, key: &str) -> Value {
    json!({
        "sources": [{"name": "t.csv", "configMapName": config_map, "key": key}],
        "jobs": [{"name": "j{x}", "command": "echo {x}", "parametersFile": "t.csv"}],
    })
}

#[test]
fn a_workflow_follows_its_config_maps() {
    let cluster = Cluster::new("tables");
    let (controller, namespace) = (cluster.controller(), &cluster.namespace);
    let _runner = controller.runner(&cluster.env, "runner");
    namespace.config_map("tables", &json!({"t": "x\n1\n2\n"}));
    namespace.apply("w", &of_table("tables", "t"));
    namespace.expect("w", "Finished", "True/Succeeded");
    namespace.config_map("tables", &json!({"t": "x\n1\n2\n3\n"}));
    namespace.touch("w");
    expect_status(namespace, "w", "the new row has run", |status| (status["progress"] == "3/3").then_some(()));
    assert_eq!(cluster.attempts(&controller, "w"), ["j1 1 1 completed", "j2 1 1 completed", "j3 1 1 completed"]);
    // Without its table the workflow is not accepted. Its results stay.
    namespace.kubectl("delete configmap tables");
    namespace.touch("w");
    namespace.expect("w", "Accepted", "False/SourceMissing");
    assert_eq!(namespace.message("w", "Accepted"), "source 't.csv': there is no ConfigMap 'tables'");
    assert_eq!(namespace.status("w")["progress"], "3/3");
    namespace.config_map("tables", &json!({"t": "x\n1\n2\n3\n"}));
    namespace.expect("w", "Accepted", "True/Planned");
    assert_eq!(cluster.attempts(&controller, "w").len(), 3, "the same rows run once");
}

#[test]
fn errors_of_a_table_are_reported() {
    let cluster = Cluster::new("no-tables");
    let (_controller, namespace) = (cluster.controller(), &cluster.namespace);
    let rows: String = (0..20_000).map(|number| format!("\n{number:>040}")).collect();
    namespace.config_map("tables", &json!({"broken": "x,y\n1\n", "large": format!("x{rows}")}));
    let mut file = of_table("tables", "large");
    file["jobs"][0]["parametersFile"] = json!("other.csv");
    for (name, spec, condition, message) in [
        ("key", of_table("tables", "t"), "False/SourceMissing", "ConfigMap 'tables' has no key 't'"),
        ("map", of_table("nowhere", "t"), "False/SourceMissing", "there is no ConfigMap 'nowhere'"),
        ("broken", of_table("tables", "broken"), "False/InvalidSpec", "is not a table"),
        ("file", file, "False/InvalidSpec", "there is no source 'other.csv'"),
    ] {
        namespace.apply(name, &spec);
        namespace.expect(name, "Accepted", condition);
        let printed = namespace.message(name, "Accepted");
        assert!(printed.contains(message), "{name}: {printed}");
    }
    // The object stays small even with the largest possible ConfigMap.
    namespace.apply("large", &of_table("tables", "large"));
    namespace.expect("large", "Accepted", "True/Planned");
    let object = namespace.workflow("large").unwrap();
    assert_eq!(object["status"]["plan"]["jobCount"], 20_000);
    assert!(object.to_string().len() < 64 << 10, "{} bytes", object.to_string().len());
    namespace.kubectl("delete twf --all --timeout=60s");
}
