//! Leaders that are killed or frozen, and outages of the API server: no result is lost, and no job runs twice.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use serde_json::json;
use torc_tests::env::until;
use torc_tests::labs::kube::{Controller, Service, expect_status, free_address, runner};

use super::{Cluster, fragile, jobs};

/// Two servers on one store, one of which is the leader.
struct Pair {
    controllers: Vec<Controller>,
    service: Service,
}

impl Pair {
    fn start(cluster: &Cluster) -> Self {
        let mut controllers = Vec::new();
        for name in ["one", "two"] {
            let address = free_address();
            let call =
                Controller::call(&cluster.env, &cluster.namespace, name, &address).env("TORC_KUBERNETES_LEASE", "torc");
            let controller = Controller::with(call, &address);
            if controllers.is_empty() {
                controller.expect_ready();
            }
            controllers.push(controller);
        }
        let service = Service::start(controllers.iter().map(|one| one.address.clone()).collect());
        controllers[1].process().prints("one_");
        Self { controllers, service }
    }
}

/// Returns jobs that append their names to a file, so that a job that ran twice is visible.
fn marked(cluster: &Cluster, count: usize) -> serde_json::Value {
    let file = cluster.env.text_path("ran");
    json!({"jobs": [{
        "name": "j{i}", "command": format!("sleep 0.5; echo {{i}} >> {file}"), "parameters": {"i": format!("1:{count}")},
    }]})
}

/// Returns whether a client is connected to an address.
fn has_connection(address: &str) -> bool {
    let port: u16 = address.rsplit(':').next().unwrap().parse().unwrap();
    let peer = format!(":{port:04X} 01");
    fs::read_to_string("/proc/net/tcp").unwrap().lines().any(|line| line.contains(&peer))
}

fn expect_each_once(cluster: &Cluster, count: usize) {
    let mut ran: Vec<usize> = cluster.env.lines("ran").iter().map(|line| line.parse().unwrap()).collect();
    ran.sort_unstable();
    assert_eq!(ran, (1..=count).collect::<Vec<_>>(), "each job ran once");
}

#[test]
fn another_server_takes_over_when_the_leader_is_killed() {
    let cluster = Cluster::new("killed");
    let mut pair = Pair::start(&cluster);
    assert!(!pair.controllers[1].is_ready(), "the standby is not ready");
    let _runner = runner(&cluster.env, "runner", &pair.service.address);
    let namespace = &cluster.namespace;
    namespace.apply("w", &marked(&cluster, 40));
    expect_status(namespace, "w", "some have ended", |status| {
        (status["jobs"]["completed"].as_i64()? > 3).then_some(())
    });
    pair.controllers[0].kill();
    namespace.expect("w", "Finished", "True/Succeeded");
    until(|| pair.controllers[1].is_ready(), || pair.controllers[1].process().stderr());
    expect_each_once(&cluster, 40);
    assert_eq!(namespace.events("w").iter().filter(|reason| *reason == "PlanAccepted").count(), 1);
    // A new container of the same Pod does not wait for the lease.
    let before = namespace.lab.object("lease", "torc", "torc").unwrap();
    pair.controllers[1].kill();
    let address = &pair.controllers[1].address;
    let call = Controller::call(&cluster.env, namespace, "two", address).env("TORC_KUBERNETES_LEASE", "torc");
    pair.controllers[1].process = Some(call.start());
    pair.controllers[1].expect_ready();
    assert_eq!(pair.controllers[1].log_lines("standing by"), 0, "{}", pair.controllers[1].process().stderr());
    let after = namespace.lab.object("lease", "torc", "torc").unwrap();
    let transitions = |lease: &serde_json::Value| lease["spec"]["leaseTransitions"].as_i64().unwrap();
    assert_eq!(transitions(&after), transitions(&before) + 1, "under a number of its own");
    // After an orderly stop, the other server does not wait for the expiry of the lease.
    let process = pair.controllers[1].process.take().unwrap();
    process.signal(Signal::SIGTERM);
    process.finish().exits(0);
    let lease = namespace.lab.object("lease", "torc", "torc").unwrap();
    assert_eq!(lease["spec"].get("holderIdentity"), None, "{lease:#}");

    // The leader is frozen during a write: the next one cannot write, and logs the process that it waits for.
    let mut frozen =
        Command::new("sqlite3").arg(cluster.env.path("data/lab.db")).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = frozen.stdin.take().unwrap();
    input.write_all(b"begin immediate;\n").unwrap();
    let address = free_address();
    let call = Controller::call(&cluster.env, namespace, "three", &address).env("TORC_KUBERNETES_LEASE", "torc");
    let third = Controller::with(call, &address);
    let waits = "holds an unfinished write transaction of the store";
    until(|| third.readiness().contains(waits), || format!("{} {}", third.readiness(), third.process().stderr()));
    assert!(third.readiness().contains("leadership: two_"), "{}", third.readiness());
    drop(input);
    frozen.wait().unwrap();
    third.expect_ready();
    assert_eq!(third.log_lines(waits), 1, "{}", third.process().stderr());
}

#[test]
fn a_leader_frozen_past_its_lease_writes_nothing_and_exits() {
    let (_turn, kube) = fragile();
    let cluster = Cluster::of(&kube, "frozen");
    let mut pair = Pair::start(&cluster);
    let namespace = &cluster.namespace;
    namespace.apply("w", &marked(&cluster, 40));
    namespace.expect("w", "Accepted", "True/Planned");
    let frozen = pair.controllers[0].process.take().unwrap();
    frozen.freeze();
    until(|| pair.controllers[1].is_ready(), || pair.controllers[1].process().stderr());
    let _runner = runner(&cluster.env, "runner", &pair.controllers[1].address);
    expect_status(namespace, "w", "some have ended", |status| {
        (status["jobs"]["completed"].as_i64()? > 3).then_some(())
    });
    // The old leader still has the store open and gets a write request. It cannot reach the API server, so only the store can
    // refuse the write.
    let call = cluster.env.call("cancel w").arg("-n").arg(&namespace.name);
    let call = call.env("TORC_API_URL", format!("http://{}", pair.controllers[0].address));
    let asked = call.env("TORC_TOKEN_FILE", cluster.env.path("data/lab.db.token")).start();
    until(|| has_connection(&pair.controllers[0].address), || "no request is pending".to_owned());
    namespace.lab.run("freeze", &["kube-apiserver"]);
    frozen.signal(Signal::SIGCONT);
    let asked = asked.finish();
    let outcome = frozen.finish();
    namespace.lab.run("thaw", &["kube-apiserver"]);
    assert_ne!(asked.code, Some(0), "the cancellation was acknowledged");
    assert_eq!(outcome.code, Some(7), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("another server leads"), "{}", outcome.stderr);
    namespace.expect("w", "Finished", "True/Succeeded");
    expect_each_once(&cluster, 40);
    until(|| namespace.events("w").len() == 2, || format!("{:?}", namespace.events("w")));
    assert_eq!(namespace.events("w"), ["PlanAccepted", "WorkflowFinished"]);
    drop(pair.controllers.remove(1));
}

#[test]
fn runs_continue_while_api_server_and_etcd_are_down() {
    let (_turn, kube) = fragile();
    let cluster = Cluster::of(&kube, "away");
    let namespace = &cluster.namespace;
    let address = free_address();
    let call = Controller::call(&cluster.env, namespace, "one", &address).env("TORC_KUBERNETES_LEASE", "torc");
    let controller = Controller::with(call, &address);
    controller.expect_ready();
    let _runner = controller.runner(&cluster.env, "runner");
    namespace.apply("w", &marked(&cluster, 30));
    expect_status(namespace, "w", "some have ended", |status| {
        (status["jobs"]["completed"].as_i64()? > 1).then_some(())
    });
    namespace.lab.run("compact", &[]);
    namespace.lab.run("kill", &["kube-apiserver"]);
    namespace.lab.run("kill", &["etcd"]);
    // The server still serves runners.
    let done = || fs::read_to_string(cluster.env.path("ran")).unwrap_or_default().lines().count();
    until(|| done() == 30, || format!("{} have ended", done()));
    namespace.lab.run("start", &["etcd"]);
    namespace.lab.run("start", &["kube-apiserver"]);
    namespace.lab.run("compact", &[]);
    namespace.expect("w", "Finished", "True/Succeeded");
    expect_each_once(&cluster, 30);
    // The watches are restored and see new objects.
    namespace.apply("next", &jobs(&[("a", "true")]));
    namespace.expect("next", "Finished", "True/Succeeded");
    // The API server had forgotten their resource version.
    assert!(controller.log_lines("too old resource version") > 0, "{}", controller.process().stderr());
    namespace.lab.run("compact", &[]);
    namespace.kubectl("delete twf --all --timeout=60s");
    until(|| controller.is_ready(), || controller.process().stderr());
}
