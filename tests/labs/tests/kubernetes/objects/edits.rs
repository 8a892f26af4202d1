//! Edits of objects: suspend, stop, run again, scale, delete, and time limits.

use serde_json::json;
use torc_tests::env::until;
use torc_tests::labs::kube::expect_status;

use super::{Cluster, jobs};

#[test]
fn a_suspended_workflow_starts_nothing_until_resumed() {
    let cluster = Cluster::new("suspend");
    let (controller, namespace) = (cluster.controller(), &cluster.namespace);
    let _runner = controller.runner(&cluster.env, "runner");
    let mut spec = jobs(&[("a", "true")]);
    spec["suspend"] = json!(true);
    namespace.apply("w", &spec);
    namespace.expect("w", "Suspended", "True/UserRequest");
    assert_eq!(namespace.condition("w", "Succeeded"), "Unknown/Suspended");
    assert_eq!(namespace.status("w")["jobs"]["ready"], 1);
    namespace.kubectl(r#"patch twf w --type=merge --patch={"spec":{"suspend":false}}"#);
    namespace.expect("w", "Finished", "True/Succeeded");
    assert_eq!(namespace.condition("w", "Suspended"), "False/NotSuspended");
}

#[test]
fn a_stopped_workflow_runs_again_with_a_higher_run() {
    let cluster = Cluster::new("stop");
    let (controller, namespace) = (cluster.controller(), &cluster.namespace);
    let _runner = controller.runner(&cluster.env, "runner");
    namespace.apply("w", &jobs(&[("done", "true"), ("long", "sleep 600")]));
    expect_status(namespace, "w", "one has ended, one runs", |status| {
        (status["jobs"]["running"] == 1 && status["jobs"]["completed"] == 1).then_some(())
    });
    namespace.kubectl(r#"patch twf w --type=merge --patch={"spec":{"stopPolicy":"Cancel"}}"#);
    namespace.expect("w", "Finished", "True/Canceled");
    assert_eq!(namespace.condition("w", "Succeeded"), "False/Canceled");
    until(|| namespace.events("w").contains(&"WorkflowFailed".to_owned()), || format!("{:?}", namespace.events("w")));
    let again = json!({"spec": {"stopPolicy": "None", "runId": 2, "jobs": [
        {"name": "done", "command": "true"}, {"name": "long", "command": "true"},
    ]}});
    namespace.kubectl(&format!("patch twf w --type=merge --patch={}", again.to_string().replace(' ', "")));
    namespace.expect("w", "Finished", "True/Succeeded");
    assert_eq!(namespace.status("w")["runId"], 2);
    // The default policy is Incomplete: completed jobs do not run again.
    let attempts = cluster.attempts(&controller, "w");
    assert_eq!(attempts, ["done 1 1 completed", "long 1 1 canceled", "long 2 1 completed"]);
}

#[test]
fn a_drained_workflow_ends_its_jobs_and_starts_no_others() {
    let cluster = Cluster::new("drain");
    let (controller, namespace) = (cluster.controller(), &cluster.namespace);
    let _runner = controller.runner(&cluster.env, "runner");
    let gate = cluster.env.text_path("gate");
    namespace.apply(
        "w",
        &json!({"jobs": [
            {"name": "first", "command": format!("until [ -e {gate} ]; do sleep 0.1; done")},
            {"name": "second", "command": "true", "dependsOn": ["first"]},
        ]}),
    );
    expect_status(namespace, "w", "one runs", |status| (status["jobs"]["running"] == 1).then_some(()));
    namespace.kubectl(r#"patch twf w --type=merge --patch={"spec":{"stopPolicy":"Drain"}}"#);
    namespace.expect("w", "Suspended", "True/UserRequest");
    assert_eq!(namespace.status("w")["jobs"]["running"], 1, "what runs goes on");
    cluster.env.write("gate", "");
    expect_status(namespace, "w", "it has ended by itself", |status| {
        (status["jobs"]["completed"] == 1 && status["jobs"]["ready"] == 1).then_some(())
    });
    assert_eq!(namespace.condition("w", "Succeeded"), "Unknown/Suspended");
    namespace.kubectl(r#"patch twf w --type=merge --patch={"spec":{"stopPolicy":"None"}}"#);
    namespace.expect("w", "Finished", "True/Succeeded");
    assert_eq!(cluster.attempts(&controller, "w"), ["first 1 1 completed", "second 1 1 completed"]);
}

#[test]
fn a_higher_run_reruns_jobs_by_its_policy() {
    let cluster = Cluster::new("rerun");
    let (controller, namespace) = (cluster.controller(), &cluster.namespace);
    let _runner = controller.runner(&cluster.env, "runner");
    let gate = cluster.env.text_path("gate");
    let spec = |run: i64, policy: &str| {
        json!({"runId": run, "rerunPolicy": policy, "jobs": [
            {"name": "good", "command": "true"},
            {"name": "bad", "command": format!("[ -e {gate} ]")},
            {"name": "child", "command": "true", "dependsOn": ["bad"]},
        ]})
    };
    let policies = ["Failed", "Incomplete", "All"];
    for policy in policies {
        namespace.apply(&policy.to_lowercase(), &spec(1, policy));
    }
    for policy in policies {
        namespace.expect(&policy.to_lowercase(), "Finished", "True/Failed");
    }
    cluster.env.write("gate", "");
    let first = ["bad 1 1 failed", "good 1 1 completed"];
    for policy in policies {
        let name = policy.to_lowercase();
        namespace.apply(&name, &spec(2, policy));
        namespace.expect(&name, "Finished", "True/Succeeded");
        let again = ["bad 2 1 completed", "child 2 1 completed"].into_iter();
        let again = again.chain((policy == "All").then_some("good 2 1 completed"));
        let mut expected: Vec<&str> = first.into_iter().chain(again).collect();
        expected.sort_unstable();
        assert_eq!(cluster.attempts(&controller, &name), expected, "{policy}");
    }
}

#[test]
fn scale_limits_the_number_of_allocations() {
    let cluster = Cluster::new("scale");
    let (_controller, namespace) = (cluster.controller(), &cluster.namespace);
    namespace.apply("w", &jobs(&[("a", "true")]));
    namespace.expect("w", "Accepted", "True/Planned");
    namespace.kubectl("scale twf/w --replicas=8");
    let object = namespace.workflow("w").unwrap();
    assert_eq!((&object["spec"]["maxAllocations"], &object["metadata"]["generation"]), (&json!(8), &json!(2)));
    namespace.expect("w", "Accepted", "True/Planned");
    assert_eq!(namespace.status("w")["observedGeneration"], 2);
}

#[test]
fn a_deleted_workflow_disappears_after_its_jobs() {
    let cluster = Cluster::new("delete");
    let (controller, namespace) = (cluster.controller(), &cluster.namespace);
    let _runner = controller.runner(&cluster.env, "runner");
    // The job ignores SIGTERM for a while.
    let stubborn = "sh -c 'trap \"sleep 2; exit 0\" TERM; while true; do sleep 0.1; done' stubborn-job";
    namespace.apply("w", &jobs(&[("long", stubborn)]));
    expect_status(namespace, "w", "it runs", |status| (status["jobs"]["running"] == 1).then_some(()));
    assert_eq!(namespace.workflow("w").unwrap()["metadata"]["finalizers"], json!(["torc.dev/cleanup"]));
    namespace.kubectl("delete twf w --wait --timeout=90s");
    assert!(namespace.workflow("w").is_none());
    assert!(!cluster.env.processes().iter().any(|process| process.command.contains("stubborn-job")));
    assert_eq!(cluster.items(&controller, "get workflows"), Vec::<serde_json::Value>::new());
    // The server removes only its own finalizer.
    namespace.apply("held", &jobs(&[("a", "true")]));
    namespace.expect("held", "Finished", "True/Succeeded");
    let hold = r#"[{"op":"add","path":"/metadata/finalizers/0","value":"example.com/hold"}]"#;
    namespace.kubectl(&format!("patch twf held --type=json --patch={hold}"));
    namespace.kubectl("delete twf held --wait=false");
    let finalizers = || namespace.workflow("held").unwrap()["metadata"]["finalizers"].clone();
    until(|| finalizers() == json!(["example.com/hold"]), || finalizers().to_string());
    namespace.kubectl(r#"patch twf held --type=merge --patch={"metadata":{"finalizers":null}}"#);
    // The next object of this name is a new workflow.
    namespace.apply("w", &jobs(&[("long", "true")]));
    namespace.expect("w", "Finished", "True/Succeeded");
    assert_eq!(cluster.attempts(&controller, "w"), ["long 1 1 completed"]);
}

#[test]
fn a_workflow_over_its_deadline_is_stopped() {
    let cluster = Cluster::new("deadline");
    let (controller, namespace) = (cluster.controller(), &cluster.namespace);
    let _runner = controller.runner(&cluster.env, "runner");
    let mut spec = jobs(&[("long", "sleep 600")]);
    spec["activeDeadlineSeconds"] = json!(1);
    namespace.apply("w", &spec);
    namespace.expect("w", "Finished", "True/DeadlineExceeded");
    assert_eq!(namespace.condition("w", "Succeeded"), "False/DeadlineExceeded");
}

#[test]
fn a_finished_object_is_deleted_after_its_ttl() {
    let cluster = Cluster::new("ttl");
    let (controller, namespace) = (cluster.controller(), &cluster.namespace);
    let _runner = controller.runner(&cluster.env, "runner");
    let mut spec = jobs(&[("a", "true")]);
    spec["ttlSecondsAfterFinished"] = json!(1);
    namespace.apply("w", &spec);
    until(
        || namespace.workflow("w").is_none() && !cluster.items(&controller, "get workflows").is_empty(),
        || format!("{:#}", namespace.workflow("w").unwrap_or_default()),
    );
    assert_eq!(cluster.attempts(&controller, "w"), ["a 1 1 completed"], "the store keeps it");
    // A new object of the same name shows no status of the earlier one.
    let mut elsewhere = jobs(&[("b", "true")]);
    elsewhere["slurmCluster"] = json!("nowhere");
    namespace.apply("w", &elsewhere);
    namespace.expect("w", "Accepted", "False/ClusterNotFound");
    assert!(namespace.status("w").get("plan").is_none(), "{:#}", namespace.status("w"));
    namespace.apply("w", &jobs(&[("b", "true")]));
    namespace.expect("w", "Finished", "True/Succeeded");
    assert_eq!(cluster.attempts(&controller, "w"), ["b 1 1 completed"]);
}

#[test]
fn objects_of_another_controller_are_ignored() {
    let cluster = Cluster::new("managed");
    let (controller, namespace) = (cluster.controller(), &cluster.namespace);
    let mut spec = jobs(&[("a", "true")]);
    spec["managedBy"] = json!("example.com/other");
    namespace.apply("w", &spec);
    namespace.expect("w", "Suspended", "True/ManagedByOther");
    let object = namespace.workflow("w").unwrap();
    assert!(object["metadata"].get("finalizers").is_none(), "{object:#}");
    assert_eq!(object["status"]["conditions"].as_array().unwrap().len(), 1, "the rest is the other's");
    assert_eq!(cluster.items(&controller, "get workflows"), Vec::<serde_json::Value>::new());
    namespace.kubectl("delete twf w --timeout=30s");
}
