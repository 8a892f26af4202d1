//! How jobs are started, limited and ended: directly, or as steps of a Slurm allocation whose `srun` is a stand-in.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::sys::signal::Signal;
use torc_tests::lab::{Call, Lab, Running, eventually, until};

const STEPS: &str = "
name: steps
resource_requirements:
  - {name: small, num_cpus: 1, memory: 200m, runtime: PT1M}
jobs:
  - {name: limited, command: 'echo \"hello  world\"', resource_requirements: small}
  - {name: default, command: 'exit 3'}
";

/// Writes an `srun` that notes its arguments, one call a line, and runs the command.
fn fake_srun(lab: &Lab) {
    let script = "#!/bin/bash\necho \"$*\" >> \"$(dirname \"$0\")/calls\"\n\
                  while [[ $1 == --* ]]; do shift; done\nexec \"$@\"\n";
    lab.write("slurm/srun", script);
    fs::set_permissions(lab.path("slurm/srun"), fs::Permissions::from_mode(0o755)).unwrap();
}

/// A call inside an allocation that ends in half an hour.
fn in_allocation(lab: &Lab, line: &str) -> Call {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    lab.call(line).env("SLURM_JOB_ID", "4711").env("SLURM_JOB_END_TIME", (now + 1_830).to_string())
}

fn runner_log(lab: &Lab) -> String {
    let entries = fs::read_dir(lab.path("torc_output")).unwrap().flatten();
    let logs = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("job_runner_"));
    logs.map(|entry| fs::read_to_string(entry.path()).unwrap()).collect()
}

// X01, X09, X10, X12, X18, S01, S02, S04, S05, S21
#[test]
fn jobs_are_steps_inside_an_allocation() {
    let lab = Lab::new();
    fake_srun(&lab);
    lab.write("w.yaml", STEPS);
    in_allocation(&lab, "apply -f w.yaml").env("TORC_FAKE_SRUN", lab.path("slurm/srun")).run().exits(3);
    let mut calls = lab.lines("slurm/calls");
    calls.sort();
    assert_eq!(
        calls,
        [
            "--jobid=4711 --ntasks=1 --exact --job-name=wf1_j1_r1_a1 --nodes=1 --cpus-per-task=1 --mem=200M --time=29 \
             --cpu-bind=none bash -c echo \"hello  world\"",
            "--jobid=4711 --ntasks=1 --exact --job-name=wf1_j2_r1_a1 --nodes=1 --time=29 --cpu-bind=none bash -c exit 3",
        ]
    );
    lab.torc("logs limited").exits(0).says("hello  world");
    assert_eq!(lab.states("steps")["default"], "failed");
    let log = runner_log(&lab);
    assert!(log.contains("INFO Job runner starting workflow_id=1 "), "{log}");
    assert!(log.contains(" execution_mode=Slurm limit_resources=true"), "{log}");
}

// X01, S19
#[test]
fn srun_is_found_on_the_path_and_only_used_in_an_allocation() {
    let lab = Lab::new();
    fake_srun(&lab);
    lab.write("w.yaml", "name: w\njobs: [{name: a, command: 'true'}]\n");
    let path = format!("{}:{}", lab.text_path("slurm"), std::env::var("PATH").unwrap());
    lab.call("apply -f w.yaml").env("PATH", &path).run().exits(0);
    assert_eq!(lab.lines("slurm/calls"), Vec::<String>::new(), "there is no allocation");
    lab.torc("retry w --all").exits(0);
    in_allocation(&lab, "run w").env("PATH", &path).run().exits(0);
    assert_eq!(lab.lines("slurm/calls").len(), 1);
}

// X01, X15
#[test]
fn direct_mode_and_no_limits_stay_direct_inside_an_allocation() {
    for config in ["{mode: direct}", "{limit_resources: false}"] {
        let lab = Lab::new();
        fake_srun(&lab);
        lab.write("w.yaml", format!("name: w\nexecution_config: {config}\njobs: [{{name: a, command: 'true'}}]\n"));
        in_allocation(&lab, "apply -f w.yaml").env("TORC_FAKE_SRUN", lab.path("slurm/srun")).run().exits(0);
        assert_eq!(lab.lines("slurm/calls"), Vec::<String>::new(), "{config}");
        let limited = config.contains("direct");
        let log = runner_log(&lab);
        assert!(log.contains(&format!(" execution_mode=Direct limit_resources={limited}")), "{log}");
    }
}

// X11, X14
#[test]
fn settings_of_slurm_mode_reach_srun() {
    let lab = Lab::new();
    fake_srun(&lab);
    let config =
        "{mode: slurm, srun_termination_signal: TERM@120, sigkill_headroom_seconds: 300, enable_cpu_bind: true}";
    lab.write("w.yaml", format!("name: w\nexecution_config: {config}\njobs: [{{name: a, command: 'true'}}]\n"));
    in_allocation(&lab, "apply -f w.yaml").env("TORC_FAKE_SRUN", lab.path("slurm/srun")).run().exits(0);
    let calls = lab.lines("slurm/calls");
    assert_eq!(
        calls,
        ["--jobid=4711 --ntasks=1 --exact --job-name=wf1_j1_r1_a1 --nodes=1 --time=25 --signal=TERM@120 bash -c true"]
    );
}

// X03
#[test]
fn a_cpu_count_places_a_job_and_does_not_confine_it() {
    let lab = Lab::new();
    let requirements = "resource_requirements: [{name: one, num_cpus: 1, memory: 1m, runtime: PT1M}]";
    let job = "{name: a, command: 'grep Cpus_allowed_list /proc/self/status', resource_requirements: one}";
    lab.write("w.yaml", format!("name: w\nexecution_config: {{mode: direct}}\n{requirements}\njobs: [{job}]\n"));
    lab.torc("apply -f w.yaml").exits(0);
    let own = fs::read_to_string("/proc/self/status").unwrap();
    let allowed = own.lines().find(|line| line.starts_with("Cpus_allowed_list")).unwrap();
    assert_eq!(lab.torc("logs a").exits(0).stdout.trim(), allowed);
}

// X13
#[test]
fn slurm_mode_without_limits_is_refused_at_creation() {
    let lab = Lab::new();
    lab.write(
        "w.yaml",
        "name: w\nexecution_config: {mode: slurm, limit_resources: false}\njobs: [{name: a, command: x}]\n",
    );
    lab.torc("apply -f w.yaml").exits(4).says("limit_resources").says("use mode direct");
    lab.torc("validate -f w.yaml").exits(4);
}

// J23, X17, X18
#[test]
fn the_log_tells_how_jobs_were_ended() {
    let lab = Lab::new();
    let stubborn = "trap 'echo asked > asked' INT; echo > ready; while true; do sleep 0.1; done";
    lab.write(
        "w.yaml",
        format!(
            "name: w\nexecution_config: {{mode: direct, termination_signal: SIGINT, sigterm_lead_seconds: 5}}\n\
             jobs: [{{name: a, command: \"{stubborn}\"}}]\n"
        ),
    );
    let torc = lab.start("apply -f w.yaml");
    until(|| lab.path("ready").exists(), || torc.stderr());
    torc.signal(Signal::SIGTERM);
    torc.finish().exits(130);
    assert_eq!(lab.lines("asked"), ["asked"], "the signal that the workflow names came first");
    let log = runner_log(&lab);
    let at = |line: &str| log.find(line).unwrap_or_else(|| panic!("no `{line}` in\n{log}"));
    let order = [
        at("INFO Job runner starting workflow_id=1 "),
        at("INFO Jobs terminating workflow_id=1 count=1"),
        at("INFO Job SIGINT workflow_id=1 job_id=1"),
        at("INFO Waiting 5s for graceful termination before SIGKILL"),
        at("INFO Job SIGKILL workflow_id=1 job_id=1"),
    ];
    assert!(order.is_sorted(), "{log}");
    lab.expect_nothing_left();
}

// J24, X05, X15, X16
#[test]
fn a_time_limit_ends_jobs_as_terminated() {
    let lab = Lab::new();
    lab.write(
        "w.yaml",
        "name: w\n\
         execution_config: {mode: direct, limit_resources: false, sigterm_lead_seconds: 5, sigkill_headroom_seconds: 1,\n  \
           timeout_exit_code: 77}\n\
         resource_requirements: [{name: small, num_cpus: 1, memory: 1m, runtime: PT1S}]\n\
         jobs:\n\
         - {name: obedient, command: \"trap 'exit 0' TERM; while true; do sleep 0.1; done\", resource_requirements: small}\n\
         - {name: stubborn, command: \"trap '' TERM; while true; do sleep 0.1; done\", resource_requirements: small}\n",
    );
    lab.torc("apply -f w.yaml --num-cpus 2 --time-limit 15s").exits(3);
    let states = lab.states("w");
    assert_eq!((states["obedient"].as_str(), states["stubborn"].as_str()), ("completed", "terminated"));
    let codes: Vec<i64> =
        lab.items("get results w").iter().map(|result| result["returnCode"].as_i64().unwrap()).collect();
    assert!(codes.contains(&77) && codes.contains(&0), "{codes:?}");
    lab.expect_nothing_left();
}

/// A server that runs nothing itself; its address.
fn server(lab: &Lab) -> (Running, String) {
    let process = lab.start("server --bind 127.0.0.1:0 --database data/lab.db -o json");
    let url = eventually("the server says where it is", || {
        let said: serde_json::Value = serde_json::from_str(&process.stdout()).ok()?;
        Some(said["url"].as_str()?.to_owned())
    });
    (process, url)
}

// J02, J10, X09, S04
#[test]
fn the_runner_of_an_allocation_reads_everything_from_slurm() {
    let lab = Lab::new();
    fake_srun(&lab);
    lab.write("slurm/squeue", "#!/bin/bash\necho \"$*\" >> \"$(dirname \"$0\")/asked\"\necho 30:30\n");
    fs::set_permissions(lab.path("slurm/squeue"), fs::Permissions::from_mode(0o755)).unwrap();
    let (_server, url) = server(&lab);
    let token = lab.path("data/lab.db.token");
    let requirements = "resource_requirements: [{name: half, num_cpus: 2, memory: 1g, num_gpus: 1, runtime: PT1M}]";
    let job = "{name: 'j_{i}', command: 'echo {i}', resource_requirements: half, parameters: {i: '1:6'}}";
    lab.write("w.yaml", format!("name: w\n{requirements}\njobs: [{job}]\n"));
    lab.call(&format!("apply -f w.yaml --url {url}")).env("TORC_TOKEN_FILE", &token).run().exits(0);
    lab.call_program("torc-slurm-job-runner", &format!("{url} w out --skip-version-check"))
        .env("TORC_TOKEN_FILE", &token)
        .env("TORC_FAKE_SRUN", lab.path("slurm/srun"))
        .env("TORC_FAKE_SQUEUE", lab.path("slurm/squeue"))
        .env("SLURM_JOB_ID", "4711")
        .env("SLURM_JOB_NODELIST", "n[1-2]")
        .env("SLURMD_NODENAME", "n2")
        .env("SLURM_CPUS_ON_NODE", "4")
        .env("SLURM_MEM_PER_NODE", "2048")
        .env("SLURM_GPUS_ON_NODE", "2")
        .env("SLURM_GPUS_PER_NODE", "2")
        .run()
        .exits(0);
    assert_eq!(lab.lines("slurm/asked"), ["-h -j 4711 -o %L"]);
    let calls = lab.lines("slurm/calls");
    assert_eq!(calls.len(), 6);
    for call in &calls {
        let parts = ["--jobid=4711 ", " --cpus-per-task=2 --mem=1024M --gpus=1 --time=29 --cpu-bind=none --nodelist=n"];
        assert!(parts.iter().all(|part| call.contains(part)), "{call}");
    }
    let runners =
        lab.call(&format!("get runners --all --url {url} -o json")).env("TORC_TOKEN_FILE", &token).run().exits(0);
    let runner = &runners.json()["items"][0];
    assert_eq!(
        (&runner["kind"], &runner["capacity"]["cpus"], &runner["capacity"]["gpus"], &runner["capacity"]["nodes"]),
        (&"slurm".into(), &8.into(), &4.into(), &2.into()),
        "{runner:#}"
    );
    let logs: Vec<_> = fs::read_dir(lab.path("out")).unwrap().flatten().map(|entry| entry.file_name()).collect();
    let is_log = |name: &std::ffi::OsString| name.to_string_lossy().starts_with("job_runner_wf1_sl4711_n");
    assert!(logs.iter().any(is_log), "{logs:?}");
}

// J02
#[test]
fn the_token_is_no_argument_and_a_subtask_has_its_own_node() {
    let lab = Lab::new();
    fake_srun(&lab);
    let (_server, url) = server(&lab);
    lab.write("w.yaml", "name: w\njobs: [{name: a, command: 'true'}]\n");
    let token = fs::read_to_string(lab.path("data/lab.db.token")).unwrap();
    lab.call(&format!("apply -f w.yaml --url {url}")).env("TORC_TOKEN", token.trim()).run().exits(0);
    let runner = |line: &str| {
        lab.call_program("torc-slurm-job-runner", &format!("{url} w out {line}"))
            .env("TORC_FAKE_SRUN", lab.path("slurm/srun"))
            .env("SLURM_JOB_ID", "9")
            .env("SLURM_JOB_NODELIST", "n[1-3]")
            .env("SLURMD_NODENAME", "n2")
            .env("SLURM_CPUS_ON_NODE", "1")
            .env("SLURM_JOB_END_TIME", "4000000000")
    };
    runner("--token x").run().exits(2);
    runner("").run().exits(7);
    runner("--is-subtask").env("TORC_TOKEN", token.trim()).run().exits(0);
    let calls = lab.lines("slurm/calls");
    assert!(calls.len() == 1 && calls[0].contains(" --nodelist=n2 bash -c true"), "{calls:?}");
}
