//! Large sweeps stay small objects, and progress is told now and then.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use torc_tests::lab::kube::Controller;
use torc_tests::lab::until;

use super::{Cluster, shared};

#[test]
fn a_sweep_of_a_hundred_thousand_jobs_is_a_small_object() {
    let _shared = shared();
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

#[test]
fn progress_is_written_at_most_every_five_seconds() {
    let _shared = shared();
    let cluster = Cluster::new("progress");
    let (controller, namespace) = (cluster.controller(), &cluster.namespace);
    let _runner = controller.runner(&cluster.lab, "runner");
    let spec = json!({"jobs": [{"name": "j{i}", "command": "sleep 0.2", "parameters": {"i": "1:200"}}]});
    let start = Instant::now();
    let mut versions: Vec<(String, Vec<String>)> = Vec::new();
    namespace.apply("w", &spec);
    until(
        || {
            let object = namespace.workflow("w").unwrap();
            let said = object["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
            let reasons = object["status"]["conditions"].as_array().into_iter().flatten();
            let reasons = reasons.map(|one| format!("{}{}{}", one["type"], one["status"], one["reason"])).collect();
            if versions.last().is_none_or(|(version, _)| *version != said) {
                versions.push((said, reasons));
            }
            object["status"]["progress"] == "200/200"
        },
        || format!("{:#}", namespace.status("w")),
    );
    let took = start.elapsed();
    // A look may miss a write, but it never sees more than there were.
    let moved = versions.windows(2).filter(|pair| pair[0].1 != pair[1].1).count();
    let progress = versions.len() - 1 - moved;
    let most = usize::try_from(took.as_secs() / 5 + 1).unwrap();
    assert!(progress <= most, "{progress} writes of progress alone in {took:?}: {versions:#?}");
    // And none when nothing changes.
    let before = namespace.workflow("w").unwrap()["metadata"]["resourceVersion"].clone();
    std::thread::sleep(Duration::from_secs(6));
    assert_eq!(namespace.workflow("w").unwrap()["metadata"]["resourceVersion"], before);
}

#[test]
fn two_hundred_workflows_at_once() {
    let _shared = shared();
    let cluster = Cluster::new("crowd");
    let (controller, namespace) = (cluster.controller(), &cluster.namespace);
    let _runner = controller.runner(&cluster.lab, "runner");
    let one = |number: usize| {
        json!({
            "apiVersion": "torc.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": format!("w{number}")},
            "spec": {"jobs": [{"name": "j", "command": "true"}]},
        })
    };
    let start = Instant::now();
    let all: Value = json!({"apiVersion": "v1", "kind": "List", "items": (0..200).map(one).collect::<Vec<_>>()});
    namespace.lab.pipe(&["create", "--namespace", &namespace.name, "-f", "-"], all.to_string().as_bytes());
    let done = || {
        let said = namespace.kubectl("get twf -o jsonpath={.items[*].status.progress}");
        said.split_whitespace().filter(|progress| *progress == "1/1").count()
    };
    until(|| done() == 200, || format!("{} of 200", done()));
    measured(&format!("200 workflows: done in {:?}, {} in memory", start.elapsed(), memory(&controller)));
    namespace.kubectl("delete twf --all --timeout=90s");
}

/// What the process of a controller has in memory.
fn memory(controller: &Controller) -> String {
    let status = std::fs::read_to_string(format!("/proc/{}/status", controller.process().pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ")
}

/// For people: `cargo test --test kubernetes size -- --nocapture`.
#[allow(clippy::print_stderr, reason = "a measurement is there to be read")]
fn measured(sentence: &str) {
    eprintln!("{sentence}");
}
