//! Execution modes: jobs as direct processes, or as steps of a Slurm allocation with a fake `srun`.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use torc_tests::env::{Call, Server, TestEnv, eventually, until};

const STEPS: &str = "
name: steps
resource_requirements:
  - {name: small, num_cpus: 1, memory: 200m, runtime: PT1M}
jobs:
  - {name: limited, command: 'echo \"hello  world\"', resource_requirements: small}
  - {name: default, command: 'exit 3'}
";

/// Writes an `srun` that logs its arguments, one call per line, and runs the command.
fn fake_srun(env: &TestEnv) {
    let script = "#!/bin/bash\necho \"$*\" >> \"$(dirname \"$0\")/calls\"\n\
                  while [[ $1 == --* ]]; do shift; done\nexec \"$@\"\n";
    env.write("slurm/srun", script);
    fs::set_permissions(env.path("slurm/srun"), fs::Permissions::from_mode(0o755)).unwrap();
}

/// Prepares a call inside an allocation that ends in half an hour.
fn in_allocation(env: &TestEnv, line: &str) -> Call {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    env.call(line).env("SLURM_JOB_ID", "4711").env("SLURM_JOB_END_TIME", (now + 1_830).to_string())
}

fn runner_log(env: &TestEnv) -> String {
    let entries = fs::read_dir(env.path("torc_output")).unwrap().flatten();
    let logs = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("job_runner_"));
    logs.map(|entry| fs::read_to_string(entry.path()).unwrap()).collect()
}

// X01, X09, X10, X12, X18, S01, S02, S04, S05, S21
#[test]
fn jobs_are_steps_inside_an_allocation() {
    let env = TestEnv::new();
    fake_srun(&env);
    env.write("w.yaml", STEPS);
    in_allocation(&env, "apply -f w.yaml").env("TORC_FAKE_SRUN", env.path("slurm/srun")).run().exits(3);
    let mut calls = env.lines("slurm/calls");
    calls.sort();
    assert_eq!(
        calls,
        [
            "--jobid=4711 --ntasks=1 --exact --job-name=wf1_j1_r1_a1 --nodes=1 --cpus-per-task=1 --mem=200M --time=29 \
             --cpu-bind=none bash -c echo \"hello  world\"",
            "--jobid=4711 --ntasks=1 --exact --job-name=wf1_j2_r1_a1 --nodes=1 --time=29 --cpu-bind=none bash -c exit 3",
        ]
    );
    env.torc("logs limited").exits(0).prints("hello  world");
    assert_eq!(env.states("steps")["default"], "failed");
    let log = runner_log(&env);
    assert!(log.contains("INFO Job runner starting workflow_id=1 "), "{log}");
    assert!(log.contains(" execution_mode=Slurm limit_resources=true"), "{log}");
}

// X01, S19
#[test]
fn srun_is_found_on_the_path_and_only_used_in_an_allocation() {
    let env = TestEnv::new();
    fake_srun(&env);
    env.write("w.yaml", "name: w\njobs: [{name: a, command: 'true'}]\n");
    let path = format!("{}:{}", env.text_path("slurm"), std::env::var("PATH").unwrap());
    env.call("apply -f w.yaml").env("PATH", &path).run().exits(0);
    assert_eq!(env.lines("slurm/calls"), Vec::<String>::new(), "there is no allocation");
    env.torc("retry w --all").exits(0);
    in_allocation(&env, "run w").env("PATH", &path).run().exits(0);
    assert_eq!(env.lines("slurm/calls").len(), 1);
}

// X01, X15
#[test]
fn direct_mode_and_no_limits_stay_direct_inside_an_allocation() {
    for config in ["{mode: direct}", "{limit_resources: false}"] {
        let env = TestEnv::new();
        fake_srun(&env);
        env.write("w.yaml", format!("name: w\nexecution_config: {config}\njobs: [{{name: a, command: 'true'}}]\n"));
        in_allocation(&env, "apply -f w.yaml").env("TORC_FAKE_SRUN", env.path("slurm/srun")).run().exits(0);
        assert_eq!(env.lines("slurm/calls"), Vec::<String>::new(), "{config}");
        let limited = config.contains("direct");
        let log = runner_log(&env);
        assert!(log.contains(&format!(" execution_mode=Direct limit_resources={limited}")), "{log}");
    }
}

// X11, X14
#[test]
fn settings_of_slurm_mode_reach_srun() {
    let env = TestEnv::new();
    fake_srun(&env);
    let config =
        "{mode: slurm, srun_termination_signal: TERM@120, sigkill_headroom_seconds: 300, enable_cpu_bind: true}";
    env.write("w.yaml", format!("name: w\nexecution_config: {config}\njobs: [{{name: a, command: 'true'}}]\n"));
    in_allocation(&env, "apply -f w.yaml").env("TORC_FAKE_SRUN", env.path("slurm/srun")).run().exits(0);
    let calls = env.lines("slurm/calls");
    assert_eq!(
        calls,
        ["--jobid=4711 --ntasks=1 --exact --job-name=wf1_j1_r1_a1 --nodes=1 --time=25 --signal=TERM@120 bash -c true"]
    );
}

// X03
#[test]
fn a_cpu_count_places_a_job_and_does_not_confine_it() {
    let env = TestEnv::new();
    let requirements = "resource_requirements: [{name: one, num_cpus: 1, memory: 1m, runtime: PT1M}]";
    let job = "{name: a, command: 'grep Cpus_allowed_list /proc/self/status', resource_requirements: one}";
    env.write("w.yaml", format!("name: w\nexecution_config: {{mode: direct}}\n{requirements}\njobs: [{job}]\n"));
    env.torc("apply -f w.yaml").exits(0);
    let own = fs::read_to_string("/proc/self/status").unwrap();
    let allowed = own.lines().find(|line| line.starts_with("Cpus_allowed_list")).unwrap();
    assert_eq!(env.torc("logs a").exits(0).stdout.trim(), allowed);
}

// X13
#[test]
fn slurm_mode_without_limits_is_refused_at_creation() {
    let env = TestEnv::new();
    env.write(
        "w.yaml",
        "name: w\nexecution_config: {mode: slurm, limit_resources: false}\njobs: [{name: a, command: x}]\n",
    );
    env.torc("apply -f w.yaml").exits(4).prints("limit_resources").prints("use mode direct");
    env.torc("validate -f w.yaml").exits(4);
}

// J23, X17, X18
#[test]
fn the_log_records_how_jobs_were_terminated() {
    let env = TestEnv::new();
    let stubborn = "trap 'echo asked > asked' INT; echo > ready; while true; do sleep 0.1; done";
    env.write(
        "w.yaml",
        format!(
            "name: w\nexecution_config: {{mode: direct, termination_signal: SIGINT, sigterm_lead_seconds: 5}}\n\
             jobs: [{{name: a, command: \"{stubborn}\"}}]\n"
        ),
    );
    let torc = env.start("apply -f w.yaml");
    until(|| env.path("ready").exists(), || torc.stderr());
    torc.signal(Signal::SIGTERM);
    torc.finish().exits(130);
    assert_eq!(env.lines("asked"), ["asked"], "the workflow's signal was sent first");
    let log = runner_log(&env);
    let at = |line: &str| log.find(line).unwrap_or_else(|| panic!("no `{line}` in\n{log}"));
    let order = [
        at("INFO Job runner starting workflow_id=1 "),
        at("INFO Jobs terminating workflow_id=1 count=1"),
        at("INFO Job SIGINT workflow_id=1 job_id=1"),
        at("INFO Waiting 5s for graceful termination before SIGKILL"),
        at("INFO Job SIGKILL workflow_id=1 job_id=1"),
    ];
    assert!(order.is_sorted(), "{log}");
    env.expect_nothing_left();
}

// J24, X05, X15, X16
#[test]
fn a_time_limit_ends_jobs_as_terminated() {
    let env = TestEnv::new();
    env.write(
        "w.yaml",
        "name: w\n\
         execution_config: {mode: direct, limit_resources: false, sigterm_lead_seconds: 5, sigkill_headroom_seconds: 1,\n  \
           timeout_exit_code: 77}\n\
         resource_requirements: [{name: small, num_cpus: 1, memory: 1m, runtime: PT1S}]\n\
         jobs:\n\
         - {name: obedient, command: \"trap 'exit 0' TERM; while true; do sleep 0.1; done\", resource_requirements: small}\n\
         - {name: stubborn, command: \"trap '' TERM; while true; do sleep 0.1; done\", resource_requirements: small}\n",
    );
    env.torc("apply -f w.yaml --num-cpus 2 --time-limit 15s").exits(3);
    let states = env.states("w");
    assert_eq!((states["obedient"].as_str(), states["stubborn"].as_str()), ("completed", "terminated"));
    let codes: Vec<i64> =
        env.items("get results w").iter().map(|result| result["returnCode"].as_i64().unwrap()).collect();
    assert!(codes.contains(&77) && codes.contains(&0), "{codes:?}");
    env.expect_nothing_left();
}

// J02, J10, X09, S04
#[test]
fn the_runner_of_an_allocation_reads_capacity_from_slurm() {
    let env = TestEnv::new();
    fake_srun(&env);
    env.write("slurm/squeue", "#!/bin/bash\necho \"$*\" >> \"$(dirname \"$0\")/asked\"\necho 30:30\n");
    fs::set_permissions(env.path("slurm/squeue"), fs::Permissions::from_mode(0o755)).unwrap();
    let server = Server::start(&env);
    let url = &server.url;
    let token = env.path("data/lab.db.token");
    let requirements = "resource_requirements: [{name: half, num_cpus: 2, memory: 1g, num_gpus: 1, runtime: PT1M}]";
    let job = "{name: 'j_{i}', command: 'echo {i}', resource_requirements: half, parameters: {i: '1:6'}}";
    env.write("w.yaml", format!("name: w\n{requirements}\njobs: [{job}]\n"));
    env.call(&format!("apply -f w.yaml --url {url}")).env("TORC_TOKEN_FILE", &token).run().exits(0);
    env.call_program(env.slurm_job_runner(), &format!("{url} w out --skip-version-check"))
        .env("TORC_TOKEN_FILE", &token)
        .env("TORC_FAKE_SRUN", env.path("slurm/srun"))
        .env("TORC_FAKE_SQUEUE", env.path("slurm/squeue"))
        .env("SLURM_JOB_ID", "4711")
        .env("SLURM_JOB_NODELIST", "n[1-2]")
        .env("SLURMD_NODENAME", "n2")
        .env("SLURM_CPUS_ON_NODE", "4")
        .env("SLURM_MEM_PER_NODE", "2048")
        .env("SLURM_GPUS_ON_NODE", "2")
        .env("SLURM_GPUS_PER_NODE", "2")
        .run()
        .exits(0);
    assert_eq!(env.lines("slurm/asked"), ["-h -j 4711 -o %L"]);
    let calls = env.lines("slurm/calls");
    assert_eq!(calls.len(), 6);
    for call in &calls {
        let parts = ["--jobid=4711 ", " --cpus-per-task=2 --mem=1024M --gpus=1 --time=29 --cpu-bind=none --nodelist=n"];
        assert!(parts.iter().all(|part| call.contains(part)), "{call}");
    }
    let runners =
        env.call(&format!("get runners --all --url {url} -o json")).env("TORC_TOKEN_FILE", &token).run().exits(0);
    let runner = &runners.json()["items"][0];
    assert_eq!(
        (&runner["kind"], &runner["capacity"]["cpus"], &runner["capacity"]["gpus"], &runner["capacity"]["nodes"]),
        (&"slurm".into(), &8.into(), &4.into(), &2.into()),
        "{runner:#}"
    );
    assert_eq!(runner["capacity"]["memoryBytes"], 4_u64 << 30, "{runner:#}");
    let logs: Vec<_> = fs::read_dir(env.path("out")).unwrap().flatten().map(|entry| entry.file_name()).collect();
    let is_log = |name: &std::ffi::OsString| name.to_string_lossy().starts_with("job_runner_wf1_sl4711_n");
    assert!(logs.iter().any(is_log), "{logs:?}");
}

// J02
#[test]
fn the_token_is_no_argument_and_a_subtask_uses_its_node() {
    let env = TestEnv::new();
    fake_srun(&env);
    let server = Server::start(&env);
    let url = &server.url;
    env.write("w.yaml", "name: w\njobs: [{name: a, command: 'true'}]\n");
    let token = fs::read_to_string(env.path("data/lab.db.token")).unwrap();
    env.call(&format!("apply -f w.yaml --url {url}")).env("TORC_TOKEN", token.trim()).run().exits(0);
    let runner = |line: &str| {
        env.call_program(env.slurm_job_runner(), &format!("{url} w out {line}"))
            .env("TORC_FAKE_SRUN", env.path("slurm/srun"))
            .env("SLURM_JOB_ID", "9")
            .env("SLURM_JOB_NODELIST", "n[1-3]")
            .env("SLURMD_NODENAME", "n2")
            .env("SLURM_CPUS_ON_NODE", "1")
            .env("SLURM_JOB_END_TIME", "4000000000")
    };
    runner("--token x").run().exits(2);
    runner("").run().exits(7);
    runner("--is-subtask").env("TORC_TOKEN", token.trim()).run().exits(0);
    let calls = env.lines("slurm/calls");
    assert!(calls.len() == 1 && calls[0].contains(" --nodelist=n2 bash -c true"), "{calls:?}");
}

/// Writes a fake program of Slurm that logs its arguments and runs some lines of shell.
fn fake(env: &TestEnv, name: &str, lines: &str) {
    let script = format!("#!/bin/bash\ncd \"$(dirname \"$0\")\"\necho \"$*\" >> {name}.calls\n{lines}\n");
    env.write(&format!("slurm/{name}"), script);
    fs::set_permissions(env.path(&format!("slurm/{name}")), fs::Permissions::from_mode(0o755)).unwrap();
}

/// Prepares a call in an allocation with fakes for all programs of Slurm.
fn with_fakes(env: &TestEnv, line: &str) -> Call {
    let programs = ["srun", "squeue", "sstat", "sacct"];
    programs.into_iter().fold(in_allocation(env, line), |call, name| {
        call.env(&format!("TORC_FAKE_{}", name.to_uppercase()), env.path(&format!("slurm/{name}")))
    })
}

// S07, S08, S09, S10, S11, S12, S13, S15, S21
#[test]
fn step_statistics_are_queried_together_and_merged() {
    let env = TestEnv::new();
    fake_srun(&env);
    fake(&env, "squeue", "echo '4711.batch|batch'; echo '4711.7|wf1_j1_r1_a1'");
    let sstat = "n=$(wc -l < sstat.calls)\necho \"4711.7|00:00:$(printf %02d $n)|$((n * 1024))K\"\n\
                 echo 'sstat: error: StepId=4711.9 not found running.' >&2";
    fake(&env, "sstat", sstat);
    // The accounting of some sites prints no state.
    fake(&env, "sacct", "echo 'wf1_j1_r1_a1|2G|3G|1M|2M|00:00:01|n1'");
    let monitor = "resource_monitor: {enabled: true, granularity: time_series, sample_interval_seconds: 1}";
    env.write("w.yaml", format!("name: w\n{monitor}\njobs: [{{name: a, command: 'sleep 4.5'}}]\n"));
    with_fakes(&env, "apply -f w.yaml -v -v").run().exits(0);
    assert_eq!(
        env.lines("slurm/squeue.calls"),
        ["--steps -h -o %i|%j -j 4711"],
        "one query finds the number of the step"
    );
    let samples = env.lines("slurm/sstat.calls");
    assert!(samples.len() >= 2, "{samples:?}");
    assert!(samples.iter().all(|call| call == "-j 4711.7 --format=JobID,AveCPU,MaxRSS -P -n"), "{samples:?}");
    let format = "--format=JobName,MaxRSS,MaxVMSize,MaxDiskRead,MaxDiskWrite,AveCPU,NodeList,State";
    assert_eq!(
        env.lines("slurm/sacct.calls"),
        [format!("-j 4711.7 {format} -P -n")],
        "and only that step is asked about"
    );
    let result = &env.items("get results w")[0];
    assert_eq!(result["peakMemoryBytes"], 2_i64 << 30, "the larger: {result:#}");
    assert!(
        result["averageMemoryBytes"].as_i64() < Some(1 << 30),
        "only sampled, never part of the accounting: {result:#}"
    );
    let average = 100.0 / result["durationSeconds"].as_f64().unwrap();
    assert!((result["averageCpuPercent"].as_f64().unwrap() - average).abs() < 1.0, "{result:#}");
    assert!(result["peakCpuPercent"].as_f64() > result["averageCpuPercent"].as_f64(), "{result:#}");
    let stats = &env.items("slurm stats w")[0];
    assert_eq!((&stats["maxDiskReadBytes"], &stats["maxDiskWriteBytes"]), (&(1 << 20).into(), &(2 << 20).into()));
    assert_eq!((&stats["maxVmSizeBytes"], &stats["nodeList"]), (&(3_i64 << 30).into(), &"n1".into()));
    let log = runner_log(&env);
    let about_steps: Vec<&str> = log.lines().filter(|line| line.contains("not found running")).collect();
    assert!(!about_steps.is_empty() && about_steps.iter().all(|line| line.contains("DEBUG")), "{about_steps:?}");
}

// X12, X16, S09, S10, S19, S20. The accounting does not answer at first, as while slurmdbd restarts.
#[test]
fn a_failure_waits_for_an_unavailable_accounting() {
    let env = TestEnv::new();
    fake_srun(&env);
    fake(&env, "squeue", "exit 1");
    fake(&env, "sstat", "exit 1");
    let sacct = "if [ $(wc -l < sacct.calls) = 1 ]; then\n\
                 echo 'sacct: error: Problem talking to the database: Connection refused' >&2; exit 1; fi\n\
                 echo 'wf1_j1_r1_a1|1K|||||n1|OUT_OF_MEMORY'; echo 'wf1_j2_r1_a1|1K|||||n1|TIMEOUT'";
    fake(&env, "sacct", sacct);
    let monitor = "resource_monitor: {enabled: true, granularity: time_series, sample_interval_seconds: 1}";
    let jobs = "jobs: [{name: a, command: 'exit 1'}, {name: b, command: 'sleep 2; exit 15'}]";
    env.write("w.yaml", format!("name: w\n{monitor}\n{jobs}\n"));
    with_fakes(&env, "apply -f w.yaml").run().exits(3);
    let results = env.items("get results w");
    let end =
        |at: usize| (results[at]["returnCode"].clone(), results[at]["cause"].clone(), results[at]["status"].clone());
    assert_eq!(end(0), (137.into(), "OutOfMemory".into(), "failed".into()));
    assert_eq!(end(1), (152.into(), "Timeout".into(), "terminated".into()));
    assert_eq!(env.lines("slurm/sacct.calls").len(), 2, "one query for both, and one more after five seconds");
    let log = runner_log(&env);
    assert!(!log.contains("WARN") && !log.contains("sstat"), "failed monitoring queries are not warnings: {log}");
}

// J02
#[test]
fn the_runner_of_an_allocation_waits_for_its_server() {
    let env = TestEnv::new();
    fake_srun(&env);
    let mut server = Server::start(&env);
    env.write("client/w.yaml", "name: w\njobs: [{name: a, command: 'true'}]\n");
    server.torc(&env, "apply -f w.yaml").exits(0);
    server.kill();
    let runner = |minutes: u32| {
        let line = format!("{} w out --wait-for-healthy-database-minutes {minutes}", server.url);
        env.call_program(env.slurm_job_runner(), &line)
            .env("TORC_TOKEN_FILE", env.path("data/lab.db.token"))
            .env("TORC_FAKE_SRUN", env.path("slurm/srun"))
            .env("SLURM_JOB_ID", "9")
            .env("SLURM_CPUS_ON_NODE", "1")
            .env("SLURM_JOB_END_TIME", "4000000000")
    };
    runner(0).run().exits(6);
    let waiting = runner(1).start();
    waiting.prints("waiting for the server: could not reach");
    server.start_again(&env);
    waiting.finish().exits(0);
    assert_eq!(server.items(&env, "get results w").len(), 1);
}

/// Starts a server that responds as another release does, and returns its URL.
fn server_of_another_release() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 4_096];
            let _ = stream.read(&mut request);
            let body = r#"{"version": "9.9.9", "protocol": 1}"#;
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length:";
            let _ = write!(stream, "{head} {}\r\n\r\n{body}", body.len());
        }
    });
    url
}

// J10
#[test]
fn a_server_of_another_release_is_refused_before_any_work() {
    let env = TestEnv::new();
    let url = server_of_another_release();
    let runner = |flags: &str| env.call(&format!("runner w --url {url} {flags}")).env("TORC_TOKEN", "x").run();
    runner("").exits(7).prints("the server has version 9.9.9, this runner has version").prints("--skip-version-check");
    runner("--skip-version-check").prints("runner and server have different releases");
    env.call_program(env.slurm_job_runner(), &format!("{url} w out"))
        .env("TORC_TOKEN", "x")
        .env("SLURM_JOB_ID", "9")
        .run()
        .exits(7)
        .prints("the server has version 9.9.9, this runner has version");
}

#[test]
fn log_format_json_prints_an_object_per_line() {
    let env = TestEnv::new();
    env.write("w.yaml", "name: w\njobs: [{name: a, command: 'true'}]\n");
    let text = env.torc("apply -f w.yaml -v").exits(0).stderr;
    assert!(text.contains("Job runner starting workflow_id=1 ") && !text.contains("\n{"), "{text}");
    env.write("v.yaml", "name: v\njobs: [{name: a, command: 'true'}]\n");
    let stderr = env.torc("apply -f v.yaml -v --log-format json").exits(0).stderr;
    let lines: Vec<Value> = stderr.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let start = lines.iter().find(|line| line["fields"]["message"] == "Job runner starting");
    let start = start.unwrap_or_else(|| panic!("{stderr}"));
    assert_eq!((&start["level"], &start["fields"]["workflow_id"]), (&"INFO".into(), &2.into()), "{start:#}");
    assert!(!stderr.contains(" INFO "), "{stderr}");
}

/// Returns the span of the log line with this message. Fails if there is none.
fn span(log: &str, message: &str) -> Value {
    let lines: Vec<Value> = log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let line = lines.iter().find(|line| line["fields"]["message"] == message);
    line.unwrap_or_else(|| panic!("no `{message}` in {log}"))["span"].clone()
}

#[test]
fn log_lines_belong_to_spans_with_the_same_fields() {
    let env = TestEnv::new();
    env.write(
        "w.yaml",
        "name: w\njobs: [{name: a, command: 'echo > out', output_files: [out]}]\nfiles: [{name: out, path: out}]\n",
    );
    let server = env.call("server --bind 127.0.0.1:0 --database served.db -o json -vv --log-format json").start();
    let printed: Value = eventually("the server prints its address", || serde_json::from_str(&server.stdout()).ok());
    let (url, token) = (printed["url"].as_str().unwrap(), printed["tokenFile"].as_str().unwrap());
    let torc = |line: &str| env.torc(&format!("{line} --url {url} --token-file {token}")).exits(0);
    torc("apply -f w.yaml");
    let runner = torc("runner w -vv --log-format json").stderr;
    torc("get jobs w");
    server.signal(Signal::SIGTERM);
    let server = server.finish().exits(0).stderr;
    let request =
        server.lines().find(|line| line.contains("/v1/workflows/{workflow}/jobs") && line.contains("request served"));
    let request = span(request.unwrap_or_else(|| panic!("{server}")), "request served");
    assert_eq!(
        (&request["name"], &request["method"], &request["workflow"]),
        (&"request".into(), &"GET".into(), &"w".into())
    );
    assert_eq!(span(&server, "committed")["name"], "command_group");
    let sync = span(&server, "sync answered");
    assert_eq!((&sync["name"], &sync["runner"]), (&"sync".into(), &1.into()));
    let attempt = span(&runner, "output files checked");
    let expected = json!({"name": "attempt", "workflow": 1, "job": 1, "run": 1, "attempt": 1});
    assert_eq!(attempt, expected);
}
