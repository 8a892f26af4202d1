//! `torc` with a context of kubectl: commands that write objects go through the API server, and need no server of Torc.

use serde_json::{Value, json};
use torc_tests::env::Outcome;
use torc_tests::labs::kube::condition;

use super::{Cluster, jobs};

fn document(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "torc.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

impl Cluster {
    /// Runs `torc` as an administrator of the cluster.
    fn torc(&self, line: &str) -> Outcome {
        let call = self.env.call(line).arg("--context").arg("lab").arg("-n").arg(&self.namespace.name);
        call.env("KUBECONFIG", self.namespace.lab.administrator()).run()
    }

    fn spec(&self, name: &str) -> Value {
        self.namespace.workflow(name).unwrap()["spec"].clone()
    }
}

#[test]
fn commands_on_objects_need_only_an_api_server() {
    let cluster = Cluster::new("objects");
    let (lab, namespace) = (&cluster.env, &cluster.namespace);
    let write = |file: &str, documents: &[Value]| {
        let texts: Vec<String> = documents.iter().map(Value::to_string).collect();
        lab.write(file, texts.join("\n---\n"));
    };
    // Clusters are applied before workflows, which may name them.
    let unreached = document("SlurmCluster", "unreached", &json!({"commandPrefix": ["/bin/false"]}));
    write("w.yaml", &[document("Workflow", "w", &jobs(&[("a", "true")])), unreached]);
    cluster.torc("apply -f w.yaml --dry-run").exits(0).prints("workflow/w created (dry run)");
    assert!(namespace.workflow("w").is_none(), "it was only asked");
    let printed = cluster.torc("apply -f w.yaml").exits(0).stdout;
    assert_eq!(printed, "slurmcluster/unreached created\nworkflow/w created\n");
    cluster.torc("apply -f w.yaml").exits(0).prints("workflow/w unchanged");
    cluster.torc("diff -f w.yaml").exits(0).prints("workflow/w unchanged");
    write("w.yaml", &[document("Workflow", "w", &jobs(&[("a", "echo other")]))]);
    cluster.torc("diff -f w.yaml").exits(9).prints("echo other").prints("workflow/w configured (dry run)");
    assert_eq!(cluster.spec("w")["jobs"][0]["command"], "true", "a difference changes nothing");
    cluster.torc("apply -f w.yaml").exits(0).prints("workflow/w configured");
    cluster.torc("delete slurmclusters unreached").exits(0).prints("slurmcluster/unreached deleted");

    // Another field manager owns a field now.
    let theirs = document("Workflow", "w", &jobs(&[("a", "echo theirs")])).to_string();
    let words = ["apply", "--server-side", "--force-conflicts", "--namespace", &namespace.name, "-f", "-"];
    namespace.lab.pipe(&words, theirs.as_bytes());
    let refused = cluster.torc("apply -f w.yaml").exits(7).prints("take over these fields with --force-conflicts");
    refused.prints("spec.jobs").prints("kubectl");
    cluster.torc("apply -f w.yaml --force-conflicts").exits(0).prints("workflow/w configured");
    assert_eq!(cluster.spec("w")["jobs"][0]["command"], "echo other");

    cluster.torc("suspend").exits(0).prints("workflow/w suspended");
    assert_eq!(cluster.spec("w")["suspend"], true);
    cluster.torc("resume w").exits(0).prints("workflow/w resumed");
    assert_eq!(cluster.spec("w")["suspend"], false);
    cluster.torc("cancel workflow/w").exits(0).prints("workflow/w canceled");
    assert_eq!(cluster.spec("w")["stopPolicy"], "Cancel");
    cluster.torc("retry w").exits(0).prints("workflow/w restarted as run 2");
    let spec = cluster.spec("w");
    assert_eq!((&spec["runId"], &spec["stopPolicy"]), (&json!(2), &json!("None")));

    write("v.yaml", &[document("Workflow", "v", &jobs(&[("a", "true")]))]);
    cluster.torc("apply -f v.yaml").exits(0);
    cluster.torc("suspend").exits(2).prints(&format!("there are several workflows in {}: name one", namespace.name));
    // The output of a write has the shape that the server gives to workflows.
    assert_eq!(cluster.torc("resume w -o json").exits(0).json()["items"][0]["name"], "w");

    // No controller runs here, so no condition is ever met.
    cluster.torc("wait w --timeout 1s").exits(8).prints("timed out waiting for `condition=Finished` of workflow/w");
    cluster.torc("wait w --for delete --timeout 1s").exits(8);
    cluster.torc("wait missing").exits(5);
    cluster.torc("wait missing --for delete").exits(0);
    cluster.torc("delete missing").exits(5).prints(&format!("there is no workflow/missing in {}", namespace.name));
    cluster.torc("delete missing --ignore-not-found").exits(0);
    cluster.torc("delete v w").exits(0).prints("workflow/v deleted").prints("workflow/w deleted");
    cluster.torc("suspend").exits(5).prints(&format!("there is no workflow in {}", namespace.name));
    cluster.torc("apply -f v.yaml --no-run").exits(2).prints("`suspend: true` in the document");
    cluster.torc("run v").exits(2).prints("runs on this machine");
    let many: Vec<Value> = (0..950).map(|i| json!({"name": format!("j{i}"), "command": "x".repeat(1_000)})).collect();
    write("large.yaml", &[document("Workflow", "large", &json!({"jobs": many}))]);
    cluster.torc("apply -f large.yaml").exits(4).prints("the limit is 900 KiB").prints("ConfigMaps");
    assert!(namespace.workflow("large").is_none());
}

#[test]
fn a_waiting_apply_prints_the_outcome() {
    let cluster = Cluster::new("waited");
    let (controller, namespace) = (cluster.controller(), &cluster.namespace);
    let _runner = controller.runner(&cluster.env, "runner");
    for (name, command, code, word) in [("good", "true", 0, "succeeded"), ("bad", "false", 3, "did not succeed")] {
        cluster.env.write("w.json", document("Workflow", name, &jobs(&[("a", command)])).to_string());
        cluster.torc("apply -f w.json --wait").exits(code).prints(&format!("workflow/{name}: {word}"));
        assert!(condition(&namespace.workflow(name).unwrap(), "Finished").starts_with("True/"));
        cluster.torc(&format!("wait {name}")).exits(0).prints(&format!("workflow/{name} condition met"));
    }
    cluster.torc("wait bad --for condition=Succeeded").exits(3).prints("`condition=Succeeded` can no longer be met");
    cluster.torc("delete good bad").exits(0);
    cluster.torc("wait good --for delete --timeout 60s").exits(0);
}
