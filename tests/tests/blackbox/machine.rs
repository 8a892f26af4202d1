//! Simulated properties of a machine: a clock that is set while jobs run, and GPUs of a driver.

use std::fs;

use serde_json::Value;
use torc_tests::env::{Call, Server, TestEnv, eventually};

const TWO_DAYS: i64 = 2 * 24 * 60 * 60;

/// Returns a chain of jobs that each wait for a file, and a job beside it with a limit of minutes.
const CHAIN: &str = "name: w
execution_config: {enforce_runtime: true}
resource_requirements: [{name: brief, num_cpus: 1, memory: 10m, runtime: PT5M}]
jobs:
  - {name: long, command: 'touch begun0; until [ -e go3 ]; do sleep 0.05; done; echo long >>ran', resource_requirements: brief}
  - {name: first, command: 'touch begun1; until [ -e go1 ]; do sleep 0.05; done; echo first >>ran', resource_requirements: brief}
  - {name: second, command: 'touch begun2; until [ -e go2 ]; do sleep 0.05; done; echo second >>ran', depends_on: [first], resource_requirements: brief}
  - {name: third, command: 'touch begun3; until [ -e go3 ]; do sleep 0.05; done; echo third >>ran', depends_on: [second], resource_requirements: brief}
";

fn with_moved_clock(env: &TestEnv, call: Call) -> Call {
    call.env("LD_PRELOAD", env.shim("clock.c", "clock.so")).env("MOVED_CLOCK", env.path("wrong_by"))
}

/// Sets the clock between the jobs of the chain: two days ahead, then two days back.
fn set_the_clock_between_jobs(env: &TestEnv, folder: &str) {
    let exists = |name: &str| env.path(folder).join(name).exists();
    for (number, wrong_by) in [(1, TWO_DAYS), (2, -TWO_DAYS), (3, 0)] {
        eventually("the job has begun", || (exists(&format!("begun{number}")) && exists("begun0")).then_some(()));
        env.write("wrong_by", wrong_by.to_string());
        env.write(&format!("{folder}/go{number}"), "");
    }
}

/// Asserts that every job ran once and has a plausible duration.
fn expect_one_sane_attempt_each(results: &[Value]) {
    let mut names: Vec<&str> = results.iter().map(|result| result["job"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["first", "long", "second", "third"], "{results:#?}");
    for result in results {
        let seconds = result["durationSeconds"].as_f64().unwrap();
        assert_eq!(result["status"], "completed", "{result:#}");
        assert!((0.0..300.0).contains(&seconds), "{result:#}");
    }
}

// J15, J23, P05. Leases, limits and durations must not depend on the wall clock.
#[test]
fn setting_the_clock_neither_ends_nor_repeats_a_job() {
    let env = TestEnv::new();
    env.write("w.yaml", CHAIN);
    let torc = with_moved_clock(&env, env.call("apply -f w.yaml --num-cpus 2 --time-limit PT10M")).start();
    set_the_clock_between_jobs(&env, ".");
    torc.finish().exits(0);
    expect_one_sane_attempt_each(&env.items("get results w"));
    assert_eq!(env.lines("ran").len(), 4);
    env.expect_nothing_left();
}

// P05. The clocks of two machines may differ.
#[test]
fn setting_a_runners_clock_does_not_disconnect_it() {
    let env = TestEnv::new();
    let server = Server::start(&env);
    env.write("client/w.yaml", CHAIN);
    server.torc(&env, "apply -f w.yaml").exits(0);
    let torc = with_moved_clock(&env, server.call(&env, "runner w --num-cpus 2 --time-limit PT10M")).start();
    set_the_clock_between_jobs(&env, "client");
    torc.finish().exits(0);
    expect_one_sane_attempt_each(&server.items(&env, "get results w"));
    assert_eq!(env.lines("client/ran").len(), 4);
}

// J21
#[test]
fn gpus_are_counted_and_measured_by_the_driver() {
    let env = TestEnv::new();
    fs::create_dir(env.path("driver")).unwrap();
    env.shim("nvml.c", "driver/libnvidia-ml.so.1");
    let job = |name: &str| {
        let command = "echo $CUDA_VISIBLE_DEVICES; sleep 2.5";
        format!("  - {{name: {name}, command: '{command}', resource_requirements: gpu}}\n")
    };
    let monitor = "{granularity: time_series, sample_interval_seconds: 1, generate_plots: true, \
                   compute_node: {enabled: true, granularity: time_series}}";
    let head = format!("name: w\nresource_monitor: {monitor}\n");
    let needs = "resource_requirements: [{name: gpu, num_cpus: 1, num_gpus: 1, memory: 50m, runtime: PT1M}]\n";
    env.write("w.yaml", format!("{head}{needs}jobs:\n{}{}", job("one"), job("two")));
    env.call("apply -f w.yaml --num-cpus 2").env("LD_LIBRARY_PATH", env.path("driver")).run().exits(0);

    let devices = ["one", "two"].map(|job| env.torc(&format!("logs {job}")).exits(0).stdout);
    let mut sorted = devices.clone();
    sorted.sort();
    assert_eq!(sorted, ["0\n", "1\n"], "both jobs ran at the same time, each with one GPU");
    for result in env.items("get results w") {
        let at = usize::from(result["job"] == "two");
        let (percent, gibibytes) = if devices[at] == "0\n" { (100.0, 3_i64) } else { (0.0, 1) };
        assert_eq!(result["peakGpuPercent"], percent, "{result:#}");
        assert_eq!(result["averageGpuPercent"], percent, "{result:#}");
        assert_eq!(result["peakGpuMemoryBytes"], gibibytes << 30, "{result:#}");
    }
    let page = |name: &str| fs::read_to_string(env.path("torc_output/resource_utilization/plots_wf1_r1").join(name));
    assert!(page("jobs.html").unwrap().contains("\"gpuCurve\":["));
    let half = r#",50.0,4294967296]"#;
    assert!(page("nodes.html").unwrap().contains(half), "one of two GPUs is busy and uses 4 GiB");
    let printed = env.torc("describe job one").exits(0).stdout;
    assert!(printed.contains(" GPU peak"), "{printed}");
}
