//! What jobs use is measured, shown and enforced, from the document to the result.
#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};
use torc_tests::lab::{Lab, until};

/// Holds about 72 MiB until the file exists.
const HOLD: &str =
    "(head -c 70000000 /dev/zero; while [ ! -e enough ]; do sleep 0.05; done) | dd bs=70M iflag=fullblock of=/dev/null";

fn document(name: &str, memory: &str, more: &str) -> String {
    format!(
        "name: {name}
resource_requirements:
  - {{name: some, num_cpus: 1, memory: {memory}, runtime: PT5M}}
resource_monitor: {{enabled: true, sample_interval_seconds: 1}}
{more}
jobs:
  - name: hold
    resource_requirements: some
    command: |
      {HOLD}
"
    )
}

fn result(lab: &Lab, workflow: &str, attempt: i64) -> Value {
    let results = lab.items(&format!("get results {workflow}"));
    results.into_iter().find(|result| result["attempt"] == attempt).unwrap()
}

// J17, X02, X08, X18
#[test]
fn a_job_over_its_memory_is_killed_and_told_in_the_log() {
    let lab = Lab::new();
    lab.write("w.yaml", document("w", "40m", "execution_config: {mode: direct, oom_exit_code: 138}"));
    let outcome = lab.torc("apply -f w.yaml").exits(3);
    let result = result(&lab, "w", 1);
    assert_eq!((&result["status"], &result["returnCode"]), (&json!("failed"), &json!(138)));
    assert_eq!(result["cause"], "OutOfMemory");
    assert!(result["peakMemoryBytes"].as_i64().unwrap() > 40 << 20, "{result:#}");
    let line = outcome.stderr.lines().find(|line| line.contains("OOM violation detected:")).unwrap();
    let fields: Vec<&str> = line.split_once("detected: ").unwrap().1.split(' ').collect();
    assert_eq!(fields[..2], ["workflow_id=1", "job_id=1"], "{line}");
    assert!(fields[2].strip_prefix("pid=").unwrap().parse::<u32>().is_ok(), "{line}");
    assert!(fields[3].starts_with("memory=0.0") && fields[3].ends_with("GB") && fields[4] == "limit=0.04GB", "{line}");
    assert!(line.contains("WARN"), "{line}");
    let kill = outcome.stderr.lines().find(|line| line.contains("Killing OOM job workflow_id=1 job_id=1")).unwrap();
    assert!(kill.contains("WARN"), "{kill}");
    lab.torc("describe job hold").exits(0).says("may have 40.00MB").says("    used: ");
    lab.torc("get results -o wide").exits(0).says("PEAK MEMORY").says("OutOfMemory");
    lab.expect_nothing_left();
}

#[test]
fn a_job_over_its_memory_gets_more_of_it_and_succeeds() {
    let lab = Lab::new();
    // 60 MiB are not enough, 90 are. The first attempt would wait for ever.
    let document = document("w", "60m", "recovery: {policy: Auto}");
    lab.write("w.yaml", document.replace("while [ ! -e enough ]", "while [ $TORC_ATTEMPT_ID = 1 ]"));
    lab.torc("apply -f w.yaml").exits(0);
    assert_eq!(lab.attempts("w"), ["hold 1 failed", "hold 2 completed"]);
    let first = result(&lab, "w", 1);
    assert_eq!((&first["cause"], &first["returnCode"]), (&json!("OutOfMemory"), &json!(137)));
    let job = &lab.items("get jobs w")[0];
    assert_eq!(job["resources"]["memoryBytes"], 90 << 20, "{job:#}");
}

// X07, X15
#[test]
fn nobody_is_killed_when_a_condition_is_missing() {
    let unmeasured = "enabled: true".to_owned();
    let cases = [
        ("no-limits", document("no-limits", "40m", "execution_config: {mode: direct, limit_resources: false}")),
        ("no-monitor", document("no-monitor", "40m", "").replace(&unmeasured, "enabled: false")),
        ("no-declaration", document("no-declaration", "40m", "").replace("    resource_requirements: some\n", "")),
    ];
    let lab = Lab::new();
    let mut line = "apply".to_owned();
    for (name, text) in &cases {
        lab.write(&format!("{name}.yaml"), text);
        line.push_str(&format!(" -f {name}.yaml"));
    }
    // This one is killed: then samples have been taken, and nobody was spared for want of one.
    lab.write("limited.yaml", document("limited", "40m", ""));
    let torc = lab.start(&format!("{line} -f limited.yaml --max-parallel-jobs 4"));
    until(|| torc.stderr().contains("Killing OOM job"), || format!("nobody was killed:\n{}", torc.stderr()));
    lab.write("enough", "");
    torc.finish().exits(3);
    for (name, _) in cases {
        let result = result(&lab, name, 1);
        assert_eq!(result["status"], "completed", "{name}: {result:#}");
        assert!(result["peakMemoryBytes"].as_i64().unwrap() > 60 << 20, "{name}: {result:#}");
        assert!(result["averageCpuPercent"].is_number(), "{name}: {result:#}");
    }
    assert_eq!(result(&lab, "limited", 1)["cause"], "OutOfMemory");
}
