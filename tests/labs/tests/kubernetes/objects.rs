//! Workflows as custom resources on a real API server: `kubectl` alone, `torc server --kubernetes` as a process with the roles of the
//! chart, and runners as processes.

mod chaos;
mod command_line;
mod deleted;
mod edits;
mod refusals;
mod rights;
mod size;
mod slurm;
mod sources;
mod trust;

use serde_json::{Value, json};
use torc_tests::env::{TestEnv, until};
use torc_tests::labs::kube::{Controller, KubeLab, Namespace};
use torc_tests::labs::shared::Turn;

/// Returns the API server of this suite.
fn kube() -> KubeLab {
    KubeLab::shared("objects")
}

/// Returns the API server of tests that stop it, for one test at a time.
fn fragile() -> (Turn, KubeLab) {
    let turn = Turn::alone("kube-fragile");
    (turn, KubeLab::shared("fragile"))
}

/// A namespace of a test, and a folder with a store.
struct Cluster {
    env: TestEnv,
    namespace: Namespace,
}

impl Cluster {
    fn new(name: &str) -> Self {
        Self::of(&kube(), name)
    }

    fn of(kube: &KubeLab, name: &str) -> Self {
        Self { env: TestEnv::new(), namespace: kube.namespace(name) }
    }

    /// Starts the only controller.
    fn controller(&self) -> Controller {
        Controller::start(&self.env, &self.namespace)
    }

    /// Returns the items of a list that `torc` gets from a controller.
    fn items(&self, controller: &Controller, line: &str) -> Vec<Value> {
        let call = self.env.call(line).arg("-o").arg("json").arg("-n").arg(&self.namespace.name);
        let call = call.env("TORC_API_URL", format!("http://{}", controller.address));
        let printed = call.env("TORC_TOKEN_FILE", self.env.path("data/lab.db.token")).run().exits(0).json();
        printed["items"].as_array().unwrap().clone()
    }

    /// Returns every attempt that has ended, as "job run attempt status".
    fn attempts(&self, controller: &Controller, workflow: &str) -> Vec<String> {
        let word = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let one = |result: &Value| ["job", "runId", "attempt", "status"].map(|field| word(&result[field])).join(" ");
        let mut attempts: Vec<String> =
            self.items(controller, &format!("get results {workflow}")).iter().map(one).collect();
        attempts.sort();
        attempts
    }
}

fn jobs(jobs: &[(&str, &str)]) -> Value {
    let one = |(name, command): &(&str, &str)| json!({"name": name, "command": command});
    json!({"jobs": jobs.iter().map(one).collect::<Vec<_>>()})
}

#[test]
fn kubectl_alone_runs_a_workflow_and_shows_its_status() {
    let cluster = Cluster::new("alone");
    let (controller, namespace) = (cluster.controller(), &cluster.namespace);
    let spec = json!({"project": "p", "jobs": [
        {"name": "a", "command": "echo hello"},
        {"name": "b{i}", "command": "true", "parameters": {"i": "1:3"}, "dependsOn": ["a"]},
    ]});
    namespace.apply("demo", &spec);
    namespace.expect("demo", "Accepted", "True/Planned");
    let runner = controller.runner(&cluster.env, "runner");
    namespace.kubectl("wait --for=condition=Finished twf/demo --timeout=90s");
    namespace.kubectl("wait --for=jsonpath={.status.completionTime} twf/demo --timeout=1s");

    let status = namespace.status("demo");
    let types: Vec<&str> =
        status["conditions"].as_array().unwrap().iter().map(|one| one["type"].as_str().unwrap()).collect();
    let known = ["Accepted", "AllocationsReady", "Suspended", "Recovering", "Stalled", "Finished", "Succeeded"];
    assert_eq!(types, known);
    assert_eq!(status["progress"], "4/4");
    assert_eq!(
        (&status["jobs"]["completed"], &status["plan"]["jobCount"], &status["runId"]),
        (&json!(4), &json!(4), &json!(1))
    );
    assert_eq!(status["apiURL"], format!("http://{}", controller.address));
    assert_eq!(namespace.condition("demo", "Succeeded"), "True/Completed");

    assert!(namespace.kubectl("get torc").contains("workflow.torc.dev/demo"), "the category has it");
    let table = namespace.kubectl("get twf --field-selector spec.project=p");
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["NAME", "STATUS", "PROGRESS", "RUNNING", "FAILED", "ALLOCS", "AGE"]);
    assert_eq!(lines[1][..6], ["demo", "Completed", "4/4", "0", "0", "0"][..]);
    let wide = namespace.kubectl("get twf -o wide");
    assert!(wide.contains("4 jobs completed"), "{wide}");

    // Each event is published once.
    until(|| namespace.events("demo").len() == 2, || format!("{:?}", namespace.events("demo")));
    assert_eq!(namespace.events("demo"), ["PlanAccepted", "WorkflowFinished"]);
    let described = namespace.kubectl("describe twf demo");
    assert!(described.contains("PlanAccepted") && described.contains("WorkflowFinished"), "{described}");
    let managers =
        namespace.kubectl("get twf demo --show-managed-fields -o jsonpath={.metadata.managedFields[*].manager}");
    assert!(managers.contains("torc-controller"), "{managers}");
    runner.kill();
}

#[test]
fn an_edit_runs_only_what_changed() {
    let cluster = Cluster::new("edit");
    let (controller, namespace) = (cluster.controller(), &cluster.namespace);
    let _runner = controller.runner(&cluster.env, "runner");
    namespace.apply("w", &jobs(&[("a", "true"), ("b", "true")]));
    namespace.expect("w", "Finished", "True/Succeeded");
    namespace.apply("w", &jobs(&[("a", "true"), ("b", "echo other"), ("c", "true")]));
    namespace.expect("w", "Finished", "True/Succeeded");
    let expected = ["a 1 1 completed", "b 1 1 completed", "b 1 2 completed", "c 1 1 completed"];
    assert_eq!(cluster.attempts(&controller, "w"), expected);
    // A label does not change the document.
    namespace.kubectl("label twf w colour=blue");
    let generation = namespace.workflow("w").unwrap()["metadata"]["generation"].clone();
    namespace.expect("w", "Finished", "True/Succeeded");
    assert_eq!(namespace.status("w")["observedGeneration"], generation);
    assert_eq!(cluster.attempts(&controller, "w"), expected);
}

#[test]
fn a_restarted_server_repeats_no_event() {
    let cluster = Cluster::new("restart");
    let (mut controller, namespace) = (cluster.controller(), &cluster.namespace);
    let _runner = controller.runner(&cluster.env, "runner");
    namespace.apply("done", &jobs(&[("a", "true")]));
    namespace.expect("done", "Finished", "True/Succeeded");
    until(|| namespace.events("done").len() == 2, || format!("{:?}", namespace.events("done")));
    let before = namespace.workflow("done").unwrap()["metadata"]["resourceVersion"].clone();
    // An API server keeps Events for an hour.
    namespace.kubectl("delete events.events.k8s.io --all");
    controller.kill();
    let address = controller.address.clone();
    let call = Controller::call(&cluster.env, namespace, "alone", &address);
    let again = Controller::with(call, &address);
    again.expect_ready();
    namespace.apply("next", &jobs(&[("a", "true")]));
    namespace.expect("next", "Finished", "True/Succeeded");
    let after = namespace.workflow("done").unwrap()["metadata"]["resourceVersion"].clone();
    assert_eq!(before, after, "the status was written again");
    until(|| namespace.events("next").len() == 2, || format!("{:?}", namespace.events("next")));
    assert_eq!(namespace.events("done"), Vec::<String>::new(), "an event was repeated");
}

#[test]
fn an_object_names_its_owner_and_its_cluster() {
    let cluster = Cluster::new("place");
    let (controller, namespace) = (cluster.controller(), &cluster.namespace);
    let _runner = controller.runner(&cluster.env, "runner");
    std::fs::create_dir(cluster.env.path("here")).unwrap();
    let document = json!({
        "apiVersion": "torc.dev/v1alpha1", "kind": "Workflow",
        "metadata": {"name": "w", "annotations": {"torc.dev/working-dir": cluster.env.path("here")}},
        "spec": {"user": "ada", "jobs": [{"name": "a", "command": "echo ran > note"}]},
    });
    namespace.lab.pipe(&["apply", "--namespace", &namespace.name, "-f", "-"], document.to_string().as_bytes());
    namespace.apply("other", &jobs(&[("a", "true")]));
    for name in ["w", "other"] {
        namespace.expect(name, "Finished", "True/Succeeded");
    }
    assert_eq!(cluster.env.lines("here/note"), ["ran"]);
    // A cluster `local` needs no object: the server calls Slurm on its own machine.
    let mut spec = jobs(&[("a", "true")]);
    spec["slurmCluster"] = json!("local");
    namespace.apply("slurm", &spec);
    namespace.expect("slurm", "Accepted", "True/Planned");
    let stored = cluster.items(&controller, "get workflows");
    let owner = |name: &str| stored.iter().find(|one| one["name"] == name).unwrap()["owner"].clone();
    assert_eq!((owner("w"), owner("other")), (json!("ada"), json!(namespace.name)));
}
