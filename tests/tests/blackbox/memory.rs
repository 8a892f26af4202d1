//! Memory and time of jobs: measured, shown and enforced.

use serde_json::{Value, json};
use torc_tests::env::{TestEnv, until};

/// A command that uses about 72 MiB until the file exists.
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

fn result(env: &TestEnv, workflow: &str, attempt: i64) -> Value {
    let results = env.items(&format!("get results {workflow}"));
    results.into_iter().find(|result| result["attempt"] == attempt).unwrap()
}

// J17, X02, X08, X18
#[test]
fn a_job_over_its_memory_is_killed_and_logged() {
    let env = TestEnv::new();
    let document = document("w", "40m", "execution_config: {mode: direct, oom_exit_code: 138}");
    env.write("w.yaml", document.replace("(head", "echo $$ > pid; (head"));
    let outcome = env.torc("apply -f w.yaml").exits(3);
    let result = result(&env, "w", 1);
    assert_eq!((&result["status"], &result["returnCode"]), (&json!("failed"), &json!(138)));
    assert_eq!(result["cause"], "OutOfMemory");
    assert!(result["peakMemoryBytes"].as_i64().unwrap() > 40 << 20, "{result:#}");
    let line = outcome.stderr.lines().find(|line| line.contains("OOM violation detected:")).unwrap();
    let fields: Vec<&str> = line.split_once("detected: ").unwrap().1.split(' ').collect();
    assert_eq!(fields[..2], ["workflow_id=1", "job_id=1"], "{line}");
    assert_eq!(fields[2], format!("pid={}", env.lines("pid")[0]), "{line}");
    assert!(fields[3].starts_with("memory=0.0") && fields[3].ends_with("GB") && fields[4] == "limit=0.04GB", "{line}");
    assert!(line.contains("WARN"), "{line}");
    let kill = outcome.stderr.lines().find(|line| line.contains("Killing OOM job workflow_id=1 job_id=1")).unwrap();
    assert!(kill.contains("WARN"), "{kill}");
    env.torc("describe job hold").exits(0).prints("of 40.0 MiB").prints("    used: ");
    env.torc("get results -o wide").exits(0).prints("PEAK MEMORY").prints("OutOfMemory");
    env.expect_nothing_left();
}

// S20
#[test]
fn recovery_raises_memory_above_the_observed_peak() {
    let env = TestEnv::new();
    // The job uses about 72 MiB, and 1.5 times the limit is less. The first attempt would wait for ever.
    let document = document("w", "30m", "recovery: {policy: Auto}");
    env.write("w.yaml", document.replace("while [ ! -e enough ]", "while [ $TORC_ATTEMPT_ID = 1 ]"));
    env.torc("apply -f w.yaml").exits(0);
    assert_eq!(env.attempts("w"), ["hold 1 failed", "hold 2 completed"]);
    let first = result(&env, "w", 1);
    assert_eq!((&first["cause"], &first["returnCode"]), (&json!("OutOfMemory"), &json!(137)));
    let peak = first["peakMemoryBytes"].as_i64().unwrap();
    let given = env.items("get jobs w")[0]["resources"]["memoryBytes"].as_i64().unwrap();
    assert!(given * 2 >= peak * 3 && given < peak * 2, "{given} after a peak of {peak}");
}

#[test]
fn a_job_that_had_all_memory_of_a_node_is_not_retried() {
    let env = TestEnv::new();
    env.write("w.yaml", document("w", "60m", "recovery: {policy: Auto}"));
    env.torc("apply -f w.yaml --memory 60m").exits(3);
    assert_eq!(env.attempts("w"), ["hold 1 failed"]);
    let reason = "it ran out of memory with 60 MiB, and the largest node that it can use has 60 MiB";
    let message = result(&env, "w", 1)["message"].as_str().unwrap().to_owned();
    assert!(message.ends_with(&format!("not retried: {reason}")), "{message}");
    env.torc("get events")
        .exits(0)
        .prints("RecoveryLimitReached")
        .prints(&format!("job 'hold' is not retried: {reason}"));
    env.torc("explain job/hold -w w").exits(0).prints(reason);
}

// S20
#[test]
fn recovery_raises_the_runtime_above_the_observed_one() {
    let document = |name: &str, more: &str| {
        format!(
            "name: {name}
resource_requirements: [{{name: brief, num_cpus: 1, memory: 30m, runtime: PT1S}}]
{more}
jobs:
- {{name: late, command: '[ $TORC_ATTEMPT_ID = 2 ] || {{ sleep 2; exit 152; }}', resource_requirements: brief}}
"
        )
    };
    let env = TestEnv::new();
    env.write("auto.yaml", document("auto", "recovery: {policy: Auto}"));
    env.write("asked.yaml", document("asked", ""));
    env.torc("apply -f auto.yaml").exits(0);
    env.torc("apply -f asked.yaml").exits(3);
    let would = env.torc("recover asked --dry-run").exits(0);
    assert_eq!(would.stdout.matches("nothing was changed").count(), 1, "{}", would.stdout);
    let would = would.stdout.lines().next().unwrap().to_owned();
    env.torc("explain job/late -w asked").exits(0).prints("`torc recover asked` retries it with more time (1s -> ");
    env.torc("recover asked").exits(0).prints(&would);
    for workflow in ["auto", "asked"] {
        let job = &env.items(&format!("get jobs {workflow}"))[0];
        let given = job["resources"]["runtimeSeconds"].as_i64().unwrap();
        assert!(given >= 3, "{workflow}: {given} s after an attempt of 2 s");
    }
}

// X07, X15
#[test]
fn memory_is_enforced_only_if_every_condition_holds() {
    let unmeasured = "enabled: true".to_owned();
    let cases = [
        ("no-limits", document("no-limits", "40m", "execution_config: {mode: direct, limit_resources: false}")),
        ("no-monitor", document("no-monitor", "40m", "").replace(&unmeasured, "enabled: false")),
        ("no-declaration", document("no-declaration", "40m", "").replace("    resource_requirements: some\n", "")),
    ];
    let env = TestEnv::new();
    let mut line = "apply".to_owned();
    for (name, text) in &cases {
        env.write(&format!("{name}.yaml"), text);
        line.push_str(&format!(" -f {name}.yaml"));
    }
    // This job is killed, so samples were taken while the others ran.
    env.write("limited.yaml", document("limited", "40m", ""));
    let torc = env.start(&format!("{line} -f limited.yaml --max-parallel-jobs 4"));
    until(|| torc.stderr().contains("Killing OOM job"), || format!("no job was killed:\n{}", torc.stderr()));
    env.write("enough", "");
    torc.finish().exits(3);
    for (name, _) in cases {
        let result = result(&env, name, 1);
        assert_eq!(result["status"], "completed", "{name}: {result:#}");
        assert!(result["peakMemoryBytes"].as_i64().unwrap() > 60 << 20, "{name}: {result:#}");
        assert!(result["averageCpuPercent"].is_number(), "{name}: {result:#}");
    }
    assert_eq!(result(&env, "limited", 1)["cause"], "OutOfMemory");
}

/// Returns the text of a page.
fn page(env: &TestEnv, name: &str) -> String {
    String::from_utf8(std::fs::read(env.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))).unwrap()
}

// J13
#[test]
fn a_runner_leaves_samples_and_plots_behind() {
    let env = TestEnv::new();
    env.write(
        "w.yaml",
        "name: w
resource_monitor:
  sample_interval_seconds: 1
  generate_plots: true
  jobs: {enabled: true, granularity: time_series}
  compute_node: {enabled: true, granularity: time_series}
jobs:
  - {name: long, command: sleep 5}
  - {name: short, command: exit 3}
",
    );
    env.torc("apply -f w.yaml").exits(3);
    let folder = "torc_output/resource_utilization";
    let files = || std::fs::read_dir(env.path(folder)).unwrap().map(|entry| entry.unwrap().file_name());
    let names: Vec<String> = files().map(|name| name.to_string_lossy().into_owned()).collect();
    assert!(names.iter().any(|name| name.starts_with("resource_metrics_wf1_h") && name.ends_with(".db")), "{names:?}");
    for name in ["index.html", "timeline.html", "jobs.html", "nodes.html"] {
        let html = page(&env, &format!("{folder}/plots_wf1_r1/{name}"));
        assert!(!html.contains("http:") && !html.contains("https:"), "{name} asks the network");
    }
    let jobs = page(&env, &format!("{folder}/plots_wf1_r1/jobs.html"));
    assert!(jobs.contains("\"name\":\"long\"") && jobs.contains("\"curve\":[["), "no curve of the long job");
    assert!(page(&env, &format!("{folder}/plots_wf1_r1/nodes.html")).contains("\"curve\":[["), "no curve of the node");

    let made = |line: &str, dir: &str| {
        let outcome = env.call(&format!("plot {line} -d {dir} -o json")).run().exits(0);
        assert_eq!(outcome.json()["pages"].as_array().unwrap().len(), 4, "{line}");
        page(&env, &format!("{dir}/index.html"))
    };
    for (line, dir) in [("", "a"), ("w", "b"), ("torc_output", "c")] {
        let html = made(line, dir);
        assert!(html.contains("\"name\":\"short\"") && html.contains("\"code\":3"), "{line}: {html}");
    }
    env.torc("plot nothing").exits(5).prints("torc get workflows");
}

#[test]
fn an_unwritable_metrics_file_stops_no_job() {
    let env = TestEnv::new();
    env.write(
        "w.yaml",
        "name: w
resource_monitor: {granularity: time_series, sample_interval_seconds: 1, flush_interval_seconds: 1}
jobs: [{name: a, command: sleep 6}]
",
    );
    // A file is in place of the folder.
    env.write("torc_output/resource_utilization", "");
    let outcome = env.torc("apply -f w.yaml").exits(0);
    assert_eq!(outcome.stderr.matches("resource_utilization").count(), 1, "{}", outcome.stderr);
    assert!(result(&env, "w", 1)["averageMemoryBytes"].is_number(), "the summary needs no file");
}
