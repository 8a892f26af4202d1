//! Watched namespaces, and missing rights.

use serde_json::json;
use torc_tests::env::until;
use torc_tests::labs::kube::{Controller, free_address, runner};

use super::{Cluster, jobs, kube};

#[test]
fn only_configured_namespaces_are_watched() {
    let cluster = Cluster::new("named-a");
    let (lab, first) = (kube(), &cluster.namespace);
    let (second, other) = (lab.namespace("named-b"), lab.namespace("named-c"));
    for namespace in [&other, first, &second] {
        namespace.apply("w", &jobs(&[("a", "true")]));
    }
    let address = free_address();
    let call = Controller::call(&cluster.env, first, "alone", &address);
    let controller = Controller::with(call.env("TORC_KUBERNETES_NAMESPACES", "named-a, named-b"), &address);
    controller.expect_ready();
    let _runner = runner(&cluster.env, "runner", &address);
    for namespace in [first, &second] {
        namespace.expect("w", "Finished", "True/Succeeded");
        namespace.apply("later", &jobs(&[("a", "true")]));
        namespace.expect("later", "Finished", "True/Succeeded");
        until(|| namespace.events("w").len() == 2, || format!("{:?}", namespace.events("w")));
        namespace.kubectl("delete twf --all --timeout=60s");
    }
    // All other workflows have ended, and this one has no status.
    let object = other.workflow("w").unwrap();
    assert!(object.get("status").is_none() && object["metadata"].get("finalizers").is_none(), "{object:#}");
    assert_eq!(other.events("w"), Vec::<String>::new());
}

#[test]
fn a_missing_right_is_logged_once_and_can_be_granted_later() {
    let cluster = Cluster::new("rightless");
    let (lab, namespace) = (kube(), &cluster.namespace);
    lab.kubectl(&["create", "serviceaccount", "rightless", "--namespace", "torc"]);
    let address = free_address();
    let call = Controller::call(&cluster.env, namespace, "alone", &address)
        .env("KUBECONFIG", lab.kubeconfig_of("torc", "rightless"))
        .env("TORC_KUBERNETES_AUDIENCE", "torc")
        .env("TORC_KUBERNETES_RUNNER_ACCOUNTS", "rightless/runner");
    let controller = Controller::with(call, &address);
    let unlisted = "workflows: are not listed: workflows.torc.dev is forbidden";
    until(|| controller.readiness().contains(unlisted), || controller.readiness());
    assert!(
        controller.readiness().contains("lacks a right that the chart's `rbac` gives"),
        "{}",
        controller.readiness()
    );

    // Only the rights for workflows: no Slurm clusters, no Events, no token reviews.
    let grant = |name: &str, resource: &str, verbs: &str| {
        let (resource, verbs) = (format!("--resource={resource}"), format!("--verb={verbs}"));
        namespace.kubectl(&format!("create role {name} {resource} {verbs}"));
        namespace.kubectl(&format!("create rolebinding {name} --role={name} --serviceaccount=torc:rightless"));
    };
    grant("status", "workflows.torc.dev/status", "get,patch");
    grant("objects", "workflows.torc.dev", "get,list,watch,patch,delete");
    controller.expect_ready();
    assert_eq!(controller.log_lines("workflows cannot be watched"), 1, "{}", controller.process().stderr());
    let _runner = controller.runner(&cluster.env, "runner");
    namespace.apply("w", &jobs(&[("a", "true")]));
    namespace.expect("w", "Finished", "True/Succeeded");
    namespace.apply("cycle", &json!({"jobs": [{"name": "a", "command": "true", "dependsOn": ["a"]}]}));
    namespace.expect("cycle", "Accepted", "False/CycleFound");
    assert_eq!(controller.log_lines("event was not published"), 1, "{}", controller.process().stderr());
    assert_eq!(controller.log_lines("Slurm clusters cannot be watched"), 1);
    for _ in 0..3 {
        let call = cluster.env.call("get workflows").env("TORC_API_URL", format!("http://{address}"));
        call.env("TORC_TOKEN", "no.real.token").run().exits(7);
    }
    assert_eq!(
        controller.log_lines("tokens of service accounts cannot be reviewed"),
        1,
        "{}",
        controller.process().stderr()
    );
    until(|| controller.log_lines("events were not published") == 1, || controller.process().stderr());
    grant("events", "events.events.k8s.io", "create,patch");
    until(|| namespace.events("w").len() == 2, || controller.process().stderr());
    assert_eq!(controller.log_lines("events were not published"), 1, "{}", controller.process().stderr());
    // No other warning is repeated.
    assert!(controller.log_lines("WARN") < 9, "{}", controller.process().stderr());
    namespace.kubectl("delete twf --all --timeout=60s");
}
