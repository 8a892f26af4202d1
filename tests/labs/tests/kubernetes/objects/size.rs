//! The size of objects of large sweeps, and the rate of status writes.

use std::time::Instant;

use serde_json::{Value, json};
use torc_tests::env::until;
use torc_tests::labs::kube::Controller;

use super::Cluster;

#[test]
fn a_sweep_of_a_hundred_thousand_jobs_is_a_small_object() {
    let cluster = Cluster::new("sweep");
    let (controller, namespace) = (cluster.controller(), &cluster.namespace);
    let start = Instant::now();
    let spec = json!({"jobs": [{"name": "j{i}", "command": "true {i}", "parameters": {"i": "1:100000"}}]});
    namespace.apply("sweep", &spec);
    namespace.expect("sweep", "Accepted", "True/Planned");
    let object = namespace.workflow("sweep").unwrap();
    assert_eq!(object["status"]["plan"]["jobCount"], 100_000);
    assert_eq!(object["status"]["progress"], "0/100000");
    let size = |value: &Value| value.to_string().len();
    let (whole, status) = (size(&object), size(&object["status"]));
    assert!(whole < 64 << 10 && status < 8 << 10, "{whole} and {status} bytes");
    measured(&format!(
        "100,000 jobs: accepted in {:?}, {whole} bytes, {} in memory",
        start.elapsed(),
        memory(&controller)
    ));
    namespace.kubectl("delete twf sweep --timeout=90s");
}

/// Returns the time of the last status write in seconds, by the clock of the API server.
fn written(object: &Value) -> i64 {
    let fields = object["metadata"]["managedFields"].as_array().unwrap();
    let ours = fields.iter().find(|one| one["manager"] == "torc-controller" && one["subresource"] == "status").unwrap();
    let time = ours["time"].as_str().unwrap();
    let parts: Vec<i64> = time[11..19].split(':').map(|part| part.parse().unwrap()).collect();
    parts.iter().fold(0, |seconds, part| seconds * 60 + part)
}

/// Returns the conditions as `type=status/reason`.
fn stated(object: &Value) -> Vec<String> {
    let conditions = object["status"]["conditions"].as_array().unwrap();
    conditions.iter().map(|one| ["type", "status", "reason"].map(|field| one[field].to_string()).join(" ")).collect()
}

#[test]
fn progress_is_written_at_most_every_five_seconds() {
    let cluster = Cluster::new("progress");
    let (controller, namespace) = (cluster.controller(), &cluster.namespace);
    let _runner = controller.runner(&cluster.env, "runner");
    namespace.apply("w", &json!({"jobs": [{"name": "j{i}", "command": "sleep 0.2", "parameters": {"i": "1:240"}}]}));
    let watch = namespace.watch("w", &cluster.env.path("seen.json"));
    // One object for each write of a status.
    let writes = || -> Vec<Value> {
        let mut seen = watch.seen();
        seen.retain(|object| object["status"]["conditions"].is_array());
        seen.dedup_by(|one, before| one["status"] == before["status"]);
        seen
    };
    namespace.expect("w", "Finished", "True/Succeeded");
    until(|| writes().iter().any(|object| object["status"]["progress"] == "240/240"), || format!("{:#?}", writes()));
    let seen = writes();
    let mut alone = 0;
    for pair in seen.windows(2).filter(|pair| stated(&pair[0]) == stated(&pair[1])) {
        let pause = (written(&pair[1]) - written(&pair[0])).rem_euclid(24 * 3_600);
        // Both clocks have whole seconds.
        assert!(pause >= 4, "{pause} s between {:#} and {:#}", pair[0]["status"], pair[1]["status"]);
        alone += 1;
    }
    assert!(alone > 0, "progress is written during the run: {seen:#?}");
    // A reconcile without changes writes nothing.
    let before = writes().len();
    namespace.touch("w");
    namespace.apply("next", &json!({"jobs": [{"name": "a", "command": "true"}]}));
    namespace.expect("next", "Finished", "True/Succeeded");
    until(
        || watch.seen().last().unwrap()["metadata"]["annotations"]["touched"].is_string(),
        || "it is not seen".to_owned(),
    );
    assert_eq!(writes().len(), before);
}

/// One more than a page of the controller's list.
const COUNT: usize = 201;

#[test]
fn more_than_two_hundred_workflows_at_once() {
    let cluster = Cluster::new("crowd");
    let (controller, namespace) = (cluster.controller(), &cluster.namespace);
    let _runner = controller.runner(&cluster.env, "runner");
    let one = |number: usize| {
        json!({
            "apiVersion": "torc.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": format!("w{number}")},
            "spec": {"jobs": [{"name": "j", "command": "true"}]},
        })
    };
    let start = Instant::now();
    let all: Value = json!({"apiVersion": "v1", "kind": "List", "items": (0..COUNT).map(one).collect::<Vec<_>>()});
    namespace.lab.pipe(&["create", "--namespace", &namespace.name, "-f", "-"], all.to_string().as_bytes());
    let done = || {
        let printed = namespace.kubectl("get twf -o jsonpath={.items[*].status.progress}");
        printed.split_whitespace().filter(|progress| *progress == "1/1").count()
    };
    until(|| done() == COUNT, || format!("{} of {COUNT}", done()));
    measured(&format!("{COUNT} workflows: done in {:?}, {} in memory", start.elapsed(), memory(&controller)));
    namespace.kubectl("delete twf --all --timeout=90s");
}

/// Returns the resident memory of a controller.
fn memory(controller: &Controller) -> String {
    let status = std::fs::read_to_string(format!("/proc/{}/status", controller.process().pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ")
}

/// Prints a figure. To see it, run `cargo test --test kubernetes size -- --nocapture`.
#[allow(clippy::print_stderr, reason = "a measurement is there to be read")]
fn measured(sentence: &str) {
    eprintln!("{sentence}");
}
