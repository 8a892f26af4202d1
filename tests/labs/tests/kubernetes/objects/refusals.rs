//! Refused documents: their reasons, and no effect on others.

use serde_json::{Value, json};
use torc_tests::env::until;

use super::{Cluster, jobs};

#[test]
fn invalid_documents_have_a_reason() {
    let cluster = Cluster::new("refused");
    let (_controller, namespace) = (cluster.controller(), &cluster.namespace);
    let job = |name: &str, after: &[&str]| json!({"name": name, "command": "true", "dependsOn": after});
    let tables = json!([{"name": "t.csv", "configMapName": "tables", "key": "t"}]);
    let cases: [(&str, Value, &str); 5] = [
        ("cycle", json!({"jobs": [job("a", &["b"]), job("b", &["a"])]}), "False/CycleFound"),
        ("double", json!({"jobs": [job("a", &[]), job("a", &[])]}), "False/DuplicateName"),
        ("unknown", json!({"jobs": [job("a", &["missing"])]}), "False/InvalidSpec"),
        ("cluster", json!({"slurmCluster": "nowhere", "jobs": [job("a", &[])]}), "False/ClusterNotFound"),
        (
            "source",
            json!({"sources": tables, "jobs": [{"name": "j{x}", "command": "true", "parametersFile": "t.csv"}]}),
            "False/SourceMissing",
        ),
    ];
    for (name, spec, condition) in &cases {
        namespace.apply(name, spec);
        namespace.expect(name, "Accepted", condition);
        assert_eq!(namespace.condition(name, "Succeeded"), "False/InvalidSpec", "{name}");
        assert_eq!(namespace.condition(name, "Finished"), "False/NotStarted", "{name}");
    }
    let printed = namespace.kubectl("get twf cycle -o wide");
    assert!(printed.contains("InvalidSpec") && printed.contains("a -> b -> a"), "{printed}");
    until(
        || cases.iter().all(|(name, ..)| namespace.events(name) == ["PlanRejected"]),
        || format!("{:?}", cases.iter().map(|(name, ..)| namespace.events(name)).collect::<Vec<_>>()),
    );
    // The object is accepted once the missing cluster exists, or after an edit.
    cluster.namespace.lab.pipe(
        &["apply", "--namespace", &namespace.name, "-f", "-"],
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "tables"}, "data": {"t": "x\n1\n2\n"}})
            .to_string()
            .as_bytes(),
    );
    namespace.expect("source", "Accepted", "True/Planned");
    assert_eq!(namespace.status("source")["plan"]["jobCount"], 2);
    namespace.apply("cycle", &json!({"jobs": [job("a", &[]), job("b", &["a"])]}));
    namespace.expect("cycle", "Accepted", "True/Planned");
    // An object that was never accepted has no finalizer.
    namespace.kubectl("delete twf --all --timeout=60s");
}

#[test]
fn a_refused_edit_does_not_disturb_running_jobs() {
    let cluster = Cluster::new("refused-edit");
    let (controller, namespace) = (cluster.controller(), &cluster.namespace);
    namespace.apply("w", &jobs(&[("a", "true")]));
    namespace.expect("w", "Accepted", "True/Planned");
    namespace.apply("w", &json!({"jobs": [{"name": "a", "command": "true", "dependsOn": ["missing"]}]}));
    namespace.expect("w", "Accepted", "False/InvalidSpec");
    // Another invalid edit is reported again.
    namespace.apply("w", &json!({"jobs": [{"name": "a", "command": "true", "dependsOn": ["a"]}]}));
    namespace.expect("w", "Accepted", "False/CycleFound");
    namespace.apply("w", &json!({"jobs": [{"name": "a", "command": "echo", "dependsOn": ["a"]}]}));
    let refusals = || namespace.events("w").iter().filter(|reason| *reason == "PlanRejected").count();
    until(|| refusals() == 3, || format!("{:?}", namespace.events("w")));
    let _runner = controller.runner(&cluster.env, "runner");
    // The older generation runs on, and the condition names it.
    until(
        || namespace.status("w")["jobs"]["completed"] == 1,
        || format!("{:#}", namespace.workflow("w").unwrap_or_default()),
    );
    let conditions = namespace.status("w")["conditions"].as_array().unwrap().clone();
    let finished = conditions.iter().find(|one| one["type"] == "Finished").unwrap();
    assert_eq!((&finished["status"], &finished["observedGeneration"]), (&json!("True"), &json!(1)));
}

#[test]
fn an_object_that_is_too_large_has_a_hint() {
    let cluster = Cluster::new("too-large");
    let (_controller, namespace) = (cluster.controller(), &cluster.namespace);
    let command = format!("echo {}", "x".repeat(1_000));
    let many: Vec<Value> = (0..950).map(|number| json!({"name": format!("j{number}"), "command": command})).collect();
    let document = json!({
        "apiVersion": "torc.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "w"}, "spec": {"jobs": many},
    });
    let server_side = ["apply", "--server-side", "--namespace", &namespace.name, "-f", "-"];
    namespace.lab.pipe(&server_side, document.to_string().as_bytes());
    namespace.expect("w", "Accepted", "False/TooLarge");
    let printed = namespace.kubectl("get twf w -o wide");
    assert!(printed.contains("`parameters`") && printed.contains("ConfigMaps"), "{printed}");
}
