//! Runners that show the token of their service account, and pools of them that grow with the work.

use std::fs;

use serde_json::{Value, json};
use torc_tests::lab::kube::{Controller, free_address};
use torc_tests::lab::until;

use super::{Cluster, jobs, shared};

/// A controller that knows the service account `runner` of its namespace.
fn reviewing(cluster: &Cluster) -> Controller {
    let address = free_address();
    let namespace = &cluster.namespace;
    let call = Controller::call(&cluster.lab, namespace, "alone", &address)
        .env("TORC_KUBERNETES_AUDIENCE", "torc")
        .env("TORC_KUBERNETES_RUNNER_ACCOUNTS", format!("{}/runner", namespace.name))
        .env("TORC_KUBERNETES_ADMIN_ACCOUNTS", format!("{}/boss", namespace.name));
    let controller = Controller::with(call, &address);
    controller.expect_ready();
    controller
}

#[test]
fn service_accounts_are_runners_and_administrators() {
    let _shared = shared();
    let cluster = Cluster::new("accounts");
    let (controller, namespace) = (reviewing(&cluster), &cluster.namespace);
    let token = |account: &str, audience: &str| {
        let file = cluster.lab.path(&format!("{account}.{}.token", audience.len()));
        let token = namespace.kubectl(&format!("create token {account} --audience {audience}"));
        fs::write(&file, token).unwrap();
        file
    };
    for account in ["runner", "boss", "nobody"] {
        namespace.kubectl(&format!("create serviceaccount {account}"));
    }
    let torc = |line: &str, token: &std::path::Path| {
        let call = cluster.lab.call(line).arg("-n").arg(&namespace.name).env("TORC_TOKEN_FILE", token);
        call.env("TORC_API_URL", format!("http://{}", controller.address)).run()
    };
    namespace.apply("w", &jobs(&[("a", "true")]));
    namespace.expect("w", "Accepted", "True/Planned");

    let runner = token("runner", "torc");
    let folder = cluster.lab.path("runner");
    fs::create_dir_all(&folder).unwrap();
    let call = cluster.lab.call("runner --persistent --num-cpus 2").folder(&folder);
    let call = call.env("TORC_API_URL", format!("http://{}", controller.address)).env("TORC_TOKEN_FILE", &runner);
    let running = call.start();
    namespace.expect("w", "Finished", "True/Succeeded");
    running.kill();

    // A runner's account runs jobs, and does nothing else.
    torc("get jobs w", &runner).exits(0);
    torc("cancel w", &runner).exits(7);
    torc("get workflows", &token("boss", "torc")).exits(0);
    torc("cancel w", &token("boss", "torc")).exits(0);
    // Not on a list, or meant for somebody else.
    torc("get workflows", &token("nobody", "torc")).exits(7);
    torc("get workflows", &token("runner", "https://kubernetes.default.svc")).exits(7);
}

#[test]
fn a_pool_grows_with_the_work() {
    let _shared = shared();
    let cluster = Cluster::new("pools");
    let namespace = &cluster.namespace;
    let replicas =
        || -> Option<i64> { namespace.lab.object("deployment", "torc", "torc-cpu")?["spec"]["replicas"].as_i64() };
    namespace.lab.kubectl(&["create", "deployment", "torc-cpu", "--image=none", "--replicas=0", "--namespace=torc"]);
    let pools = json!([{"deployment": "torc-cpu", "idle": 0, "max": 3, "limits": {"cpu": "2", "memory": "4Gi"}}]);
    let address = free_address();
    let call = Controller::call(&cluster.lab, namespace, "alone", &address);
    let controller = Controller::with(call.env("TORC_KUBERNETES_POOLS", pools.to_string()), &address);
    controller.expect_ready();
    let spec = |count: i64| -> Value {
        json!({"jobs": [{"name": "j{i}", "command": "true", "parameters": {"i": format!("1:{count}")}}]})
    };
    namespace.apply("w", &spec(4));
    until(|| replicas() == Some(2), || format!("{:?}: {}", replicas(), controller.process().stderr()));
    namespace.apply("w", &spec(1_000));
    until(|| replicas() == Some(3), || format!("{:?}: {}", replicas(), controller.process().stderr()));
}
