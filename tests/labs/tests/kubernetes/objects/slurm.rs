//! Slurm from a cluster: SlurmClusters as objects, reached over a real ssh with the key of a Secret; allocations as Events, and a
//! finalizer that cancels them.

use serde_json::json;
use torc_tests::labs::kube::{Controller, condition, expect_status, free_address};
use torc_tests::labs::slurm::{SlurmLab, wait_for};
use torc_tests::labs::sshd::Machine;

use super::Cluster;

#[test]
fn allocations_end_with_the_object_of_their_workflow() {
    let slurm = SlurmLab::shared("kubernetes");
    let cluster = Cluster::new("slurm");
    let namespace = &cluster.namespace;
    let address = free_address();
    let login = Machine::start(&cluster.env, "login");
    login.write_secret(&cluster.env, &cluster.env.path("secrets/login"));
    let folder = cluster.env.path("jobs");
    std::fs::create_dir_all(&folder).unwrap();
    let call = Controller::call(&cluster.env, namespace, "alone", &address)
        .env("TORC_SERVER_SLURM_POLL_INTERVAL", "1")
        .env("TORC_KUBERNETES_SSH_SECRETS", cluster.env.path("secrets"))
        .env("TORC_KUBERNETES_WORKING_DIR", &folder);
    let mut controller = Controller::with(call, &address);
    controller.expect_ready();

    // The workflow names a cluster that does not exist yet.
    let spec = |command: &str| {
        json!({
            "slurmCluster": "lab", "jobs": [{"name": "a", "command": command}],
            "resourceRequirements": [{"name": "small", "numCpus": 1, "memory": "64m", "runtime": "PT5M"}],
        })
    };
    namespace.apply("w", &spec("true"));
    namespace.expect("w", "Accepted", "False/ClusterNotFound");
    let prefix = [login.prefix(), slurm.prefix()].concat();
    let described = json!({
        "apiVersion": "torc.dev/v1alpha1", "kind": "SlurmCluster", "metadata": {"name": "lab"},
        "spec": {"secretName": "login", "commandPrefix": prefix},
    });
    namespace.lab.pipe(&["apply", "-f", "-"], described.to_string().as_bytes());
    namespace.expect("w", "Accepted", "True/Planned");
    let found = wait_for("the cluster answers", || {
        let object = namespace.lab.object("slurmcluster", "default", "lab")?;
        (condition(&object, "Ready") == "True/Answered").then_some(object)
    });
    assert!(found["status"]["partitionCount"].as_i64().unwrap() > 0, "{found:#}");
    let table = namespace.lab.kubectl(&["get", "slc", "lab"]);
    assert_eq!(
        table.lines().next().unwrap().split_whitespace().collect::<Vec<_>>(),
        ["NAME", "READY", "PARTITIONS", "LAST-CONTACT", "AGE"]
    );

    wait_for("it has run", || (namespace.condition("w", "Finished") == "True/Succeeded").then_some(()));
    let ended = |name: &str| namespace.events(name).contains(&"AllocationEnded".to_owned());
    wait_for("its allocation has ended", || ended("w").then_some(()));
    let printed = namespace.events("w");
    for reason in ["AllocationStarted", "AllocationSubmitted", "PlanAccepted", "PlanRejected", "WorkflowFinished"] {
        assert!(printed.iter().filter(|one| *one == reason).count() == 1, "{reason} in {printed:?}");
    }

    // The object of a running workflow disappears after its allocation has ended.
    namespace.apply("long", &spec("sleep 600"));
    wait_for("it runs", || (namespace.status("long")["jobs"]["running"] == 1).then_some(()));
    expect_status(namespace, "long", "the allocation counts", |status| {
        (status["allocations"]["active"] == 1).then_some(())
    });
    namespace.kubectl("delete twf long --wait --timeout=240s");
    let queue = slurm.command("squeue", &["--noheader", "--states=PENDING,RUNNING", "--format=%j"]);
    assert!(!queue.contains("torc-wf"), "{queue}");

    // An unreachable Slurm delays the deletion of an object only for a limited time.
    namespace.apply("stuck", &spec("sleep 600"));
    wait_for("it runs", || (namespace.status("stuck")["allocations"]["active"] == 1).then_some(()));
    controller.kill();
    let call = Controller::call(&cluster.env, namespace, "alone", &address)
        .env("TORC_KUBERNETES_CLEANUP_SECONDS", "3")
        .env("TORC_SERVER_SLURM_POLL_INTERVAL", "1");
    let controller = Controller::with(call, &address);
    controller.expect_ready();
    let lost = r#"--patch={"spec":{"commandPrefix":["/nowhere/ssh"]}}"#;
    namespace.lab.kubectl(&["patch", "slurmcluster", "lab", "--type=merge", lost]);
    wait_for("the cluster does not answer", || {
        let object = namespace.lab.object("slurmcluster", "default", "lab")?;
        (condition(&object, "Ready") == "False/Unreachable").then_some(())
    });
    namespace.kubectl("delete twf stuck --wait --timeout=240s");
    assert!(namespace.events("stuck").contains(&"CleanupGivenUp".to_owned()), "{:?}", namespace.events("stuck"));
    slurm.command("scancel", &["--user", "root"]);
    namespace.lab.kubectl(&["delete", "slurmcluster", "lab"]);
}
