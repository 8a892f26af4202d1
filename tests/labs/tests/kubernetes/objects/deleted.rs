//! Objects that are deleted while no server runs: the next server ends their jobs.

use torc_tests::env::until;
use torc_tests::labs::kube::{Controller, expect_status};

use super::{Cluster, jobs};

#[test]
fn an_object_deleted_without_a_server_ends_its_jobs() {
    let cluster = Cluster::new("vanished");
    let (mut controller, namespace) = (cluster.controller(), &cluster.namespace);
    let _runner = controller.runner(&cluster.env, "runner");
    namespace.apply("done", &jobs(&[("a", "true")]));
    namespace.expect("done", "Finished", "True/Succeeded");
    for name in ["gone", "kept"] {
        namespace.apply(name, &jobs(&[("long", &format!("sh -c 'while true; do sleep 0.1; done' job-of-{name}"))]));
        expect_status(namespace, name, "it runs", |status| (status["jobs"]["running"] == 1).then_some(()));
    }
    controller.kill();
    for name in ["gone", "done"] {
        namespace.kubectl(&format!(r#"patch twf {name} --type=merge --patch={{"metadata":{{"finalizers":null}}}}"#));
        namespace.kubectl(&format!("delete twf {name} --timeout=30s"));
    }
    let call = Controller::call(&cluster.env, namespace, "alone", &controller.address);
    let again = Controller::with(call, &controller.address);
    again.expect_ready();
    let runs = |name: &str| cluster.env.processes().iter().any(|one| one.command.contains(&format!("job-of-{name}")));
    until(|| !runs("gone"), || again.process().stderr());
    let stored = cluster.items(&again, "get workflows");
    let state = |name: &str| {
        let found = stored.iter().find(|workflow| workflow["name"] == name).unwrap();
        (found["canceled"] == true, found["status"]["jobs"]["completed"].as_i64())
    };
    assert_eq!(state("gone"), (true, Some(0)));
    assert_eq!(state("done"), (false, Some(1)), "what has ended is an archive");
    assert!(runs("kept") && state("kept") == (false, Some(0)), "what has its object goes on");
    assert_eq!(again.log_lines("object is gone"), 1, "{}", again.process().stderr());
    // The name can be used again.
    namespace.apply("gone", &jobs(&[("a", "true")]));
    namespace.expect("gone", "Finished", "True/Succeeded");
    assert_eq!(cluster.attempts(&again, "gone"), ["a 1 1 completed"]);
    namespace.kubectl("delete twf --all --timeout=60s");
}
