//! `torc hpc` and `torc slurm generate`: clusters, partitions and schedulers, with fakes for Slurm.

use std::os::unix::fs::PermissionsExt;

use serde_json::Value;
use torc_tests::env::{Call, TestEnv, text};

const PARTITIONS: &str = "\
PartitionName=cpu MaxNodes=UNLIMITED MaxTime=2-00:00:00 OverSubscribe=EXCLUSIVE State=UP TotalNodes=10 RootOnly=NO Hidden=NO
PartitionName=gpu MaxNodes=UNLIMITED MaxTime=1-00:00:00 OverSubscribe=EXCLUSIVE State=UP TotalNodes=2 RootOnly=NO Hidden=NO
";
const NODES: &str = "cpu|10|8|16000|(null)|idle\ngpu|2|16|64000|gpu:a100:4|idle\n";

/// Creates an environment with programs that answer as Slurm does.
pub fn lab() -> TestEnv {
    let env = TestEnv::new();
    program(&env, "scontrol", &format!("cat <<'END'\n{PARTITIONS}END"));
    program(&env, "sinfo", &format!("cat <<'END'\n{NODES}END"));
    program(&env, "squeue", "true");
    program(&env, "sbatch", "echo 'sbatch: Job 7 to start at 2020-01-01T00:00:00 using 1 processors' >&2");
    env
}

/// Writes an executable script.
pub fn program(env: &TestEnv, name: &str, script: &str) {
    env.write(name, format!("#!/bin/bash\n{script}\n"));
    std::fs::set_permissions(env.path(name), PermissionsExt::from_mode(0o755)).unwrap();
}

/// Prepares a call that finds these programs instead of those of Slurm.
pub fn call(env: &TestEnv, line: &str) -> Call {
    ["SCONTROL", "SINFO", "SQUEUE", "SBATCH"]
        .into_iter()
        .fold(env.call(line), |call, tool| call.env(&format!("TORC_FAKE_{tool}"), env.path(&tool.to_lowercase())))
}

fn json(env: &TestEnv, line: &str) -> Value {
    call(env, line).arg("-o").arg("json").run().exits(0).json()
}

fn names(value: &Value, list: &str, field: &str) -> Vec<String> {
    value[list].as_array().unwrap().iter().map(|item| text(item, field)).collect()
}

const STUDY: &str = "\
# a study
name: study
resource_requirements:
  - {name: half, num_cpus: 4, memory: 4g, runtime: 2h}
  - {name: device, num_cpus: 2, num_gpus: 1, memory: 4g, runtime: 1h}
jobs:
  - name: prepare # first
    command: echo
    resource_requirements: half
  - name: work_{i}
    command: echo
    resource_requirements: half
    depends_on: [prepare]
    parameters: {i: \"1:30\"}
  - name: train
    command: echo
    resource_requirements: device
";

#[test]
fn clusters_are_known_or_detected() {
    let env = lab();
    let known = json(&env, "hpc list");
    assert_eq!(names(&known, "items", "name"), ["kestrel", "dane"]);
    let here = call(&env, "hpc detect -o json").env("NLR_CLUSTER", "kestrel").run().exits(0).json();
    assert_eq!((text(&here, "name"), here["here"].as_bool()), ("kestrel".to_owned(), Some(true)));
    let detected = json(&env, "hpc detect");
    assert_eq!(
        (text(&detected, "name"), names(&detected, "partitions", "name")),
        ("slurm".to_owned(), vec!["cpu".to_owned(), "gpu".to_owned()])
    );
    assert_eq!(names(&json(&env, "hpc partitions --gpu"), "items", "name"), ["gpu"]);
    assert_eq!(json(&env, "hpc partitions kestrel --shared")["items"][0]["shared"], true);
    assert_eq!(json(&env, "hpc show dane")["partitions"][0]["requiresExplicitRequest"], true);
}

#[test]
fn a_users_profile_has_precedence() {
    let env = lab();
    let profile = "name = \"mine\"\n[detect]\nvariables = { SITE = \"mine\" }\n\
                   [[partitions]]\nname = \"p\"\ncpusPerNode = 4\nmemoryMb = 4000\nmaxWalltime = \"1h\"\n";
    env.write(".config/torc/profiles/mine.toml", profile);
    let found = call(&env, "hpc detect -o json").env("SITE", "mine").run().exits(0).json();
    assert_eq!(text(&found, "name"), "mine");
    env.write("bad.toml", "name = \"x\"\nspeed = 1\n");
    let outcome = call(&env, "hpc show bad.toml").run().exits(4);
    assert!(outcome.stderr.contains("speed"), "{}", outcome.stderr);
    let outcome = call(&env, "hpc show nowhere").run().exits(5);
    assert!(outcome.stderr.contains("mine, kestrel, dane"), "{}", outcome.stderr);
}

#[test]
fn hpc_match_lists_matching_partitions() {
    let env = lab();
    let fits = json(&env, "hpc match --cpus 2 --memory 1g --gpus 2");
    assert_eq!((fits["items"][0]["fits"].as_bool(), fits["items"][1]["chosen"].as_bool()), (Some(false), Some(true)));
    let outcome = call(&env, "hpc match --cpus 99").run().exits(5);
    assert!(outcome.stderr.contains("99 CPUs on a node are more than any partition has (16)"), "{}", outcome.stderr);
    call(&env, "hpc match --memory much").run().exits(2);
}

#[test]
fn a_missing_slurm_is_reported_with_a_hint() {
    let env = lab();
    let outcome = env.call("hpc detect").env("TORC_FAKE_SCONTROL", "/nowhere/scontrol").run().exits(5);
    assert!(
        outcome.stderr.contains("not installed") && outcome.stderr.contains("--command-prefix"),
        "{}",
        outcome.stderr
    );
    program(
        &env,
        "scontrol",
        "echo 'slurm_load_partitions: Unable to contact slurm controller (connect failure)' >&2; exit 1",
    );
    let outcome = call(&env, "hpc detect").run().exits(6);
    assert!(outcome.stderr.contains("Unable to contact"), "{}", outcome.stderr);
}

#[test]
fn a_detected_cluster_becomes_a_valid_document() {
    let env = lab();
    call(&env, "hpc generate --name home --account a --to cluster.yaml").run().exits(0);
    env.torc("validate -f cluster.yaml").exits(0);
    assert!(env.lines("cluster.yaml").contains(&"  defaultAccount: a".to_owned()));
    call(&env, "hpc generate --to cluster.yaml").run().exits(2);
    call(&env, "hpc generate --name Not_Valid").run().exits(4);
}

// J03, R09, R10, R13
#[test]
fn schedulers_are_written_into_the_document() {
    let env = lab();
    env.write("w.yaml", STUDY);
    let would = json(&env, "slurm generate w.yaml --account a --dry-run");
    assert_eq!(env.lines("w.yaml").join("\n") + "\n", STUDY, "a dry run writes nothing");
    let done = json(&env, "slurm generate w.yaml --account a");
    assert_eq!(done["schedulers"], would["schedulers"]);
    assert_eq!(names(&done, "schedulers", "name"), ["cpu_scheduler", "gpu_scheduler", "cpu_scheduler_deferred"]);
    assert_eq!(
        done["schedulers"][2]["allocations"], 15,
        "two side by side, one after another does not fit three hours"
    );
    let lines = env.lines("w.yaml");
    assert!(lines.contains(&"# a study".to_owned()) && lines.contains(&"  - name: prepare # first".to_owned()));
    assert!(lines.contains(&"    scheduler: cpu_scheduler_deferred".to_owned()));
    env.torc("validate -f w.yaml").exits(0);
    let outcome = call(&env, "slurm generate w.yaml --account a").run().exits(2);
    assert!(outcome.stderr.contains("--overwrite"), "{}", outcome.stderr);
    let again =
        json(&env, "slurm generate w.yaml --account b --overwrite --no-actions --group-by resource-requirements");
    assert_eq!(again["actions"], 0);
    assert!(!env.lines("w.yaml").iter().any(|line| line.contains("schedule_nodes")));
}

/// Returns a workflow with one job of a runtime, an early signal and a headroom.
fn warned(runtime: &str, signal: &str, headroom: u32) -> String {
    format!(
        "name: w\nexecution_config: {{mode: slurm, srun_termination_signal: {signal}, sigkill_headroom_seconds: {headroom}}}\n\
         resource_requirements:\n  - {{name: r, num_cpus: 1, memory: 100m, runtime: {runtime}}}\n\
         jobs:\n  - name: b\n    command: sleep 50\n    resource_requirements: r\n"
    )
}

/// A walltime includes 3 minutes for the start, and steps end on whole minutes.
// R13, X10, X11
#[test]
fn walltimes_leave_time_for_warning_and_headroom() {
    let env = lab();
    call(&env, "hpc generate --name here --to cluster.yaml").run().exits(0);
    for (runtime, signal, headroom, minutes) in
        [("PT1M", "TERM@120", 180, 10), ("PT1M", "TERM@120", 300, 12), ("PT7M", "USR1@45", 240, 16)]
    {
        env.write("w.yaml", warned(runtime, signal, headroom));
        let done = json(&env, "slurm generate w.yaml --account a");
        assert_eq!(done["schedulers"][0]["walltimeSeconds"], minutes * 60, "{runtime} {signal} {headroom}");
        let validated = env.torc("validate -f w.yaml").exits(0);
        assert!(!validated.stderr.contains("warning"), "what was written is right: {}", validated.stderr);
        let sized = warned(runtime, signal, headroom).replacen("name: w\n", "name: w\nslurm_cluster: here\n", 1);
        env.write("sized.yaml", sized);
        let plan = env.torc("plan sized.yaml cluster.yaml -o json").exits(0).json();
        assert_eq!(plan["allocations"][0]["walltimeSeconds"], minutes * 60, "the plan differs");
    }
}

// R13, X10
#[test]
fn a_runtime_beyond_every_partition_is_reported() {
    let env = lab();
    call(&env, "hpc generate --name here --to cluster.yaml").run().exits(0);
    env.write("w.yaml", warned("P2D", "TERM@120", 180).replacen("name: w\n", "name: w\nslurm_cluster: here\n", 1));
    let reason = "a runtime of 2d needs a walltime of 2d9m (start-up, warning and headroom included), but the longest available is 2d";
    let plan = env.torc("plan w.yaml cluster.yaml -o json").exits(0).json();
    assert_eq!((text(&plan["unplaced"][0], "job"), text(&plan["unplaced"][0], "reason")), ("b".into(), reason.into()));
    assert!(env.torc("plan w.yaml cluster.yaml").exits(0).stdout.contains(reason));
    assert!(env.torc("validate w.yaml cluster.yaml").exits(0).stderr.contains(reason));
    env.write("w.yaml", warned("P2D", "TERM@120", 180));
    let refused = call(&env, "slurm generate w.yaml --account a").run();
    assert_ne!(refused.code, Some(0));
    assert!(refused.stderr.contains(reason), "{}", refused.stderr);
}

#[test]
fn a_plan_shows_allocations_and_their_cost() {
    let env = lab();
    env.write("w.yaml", STUDY);
    assert_eq!(json(&env, "plan w.yaml")["allocations"], Value::Null);
    json(&env, "slurm generate w.yaml --account a");
    let written = json(&env, "plan w.yaml");
    assert_eq!((written["allocations"].as_array().unwrap().len(), written["nodeHours"].as_f64()), (3, Some(49.5)));
    call(&env, "hpc generate --name here --to cluster.yaml").run().exits(0);
    env.write("d.yaml", STUDY.replace("name: study\n", "name: study\nslurm_cluster: here\n"));
    let sized = call(&env, "plan d.yaml cluster.yaml -o json").run().exits(0).json();
    assert_eq!(sized["nodeHours"].as_f64(), Some(49.5));
    call(&env, "plan d.yaml cluster.yaml").run().exits(0).prints("49.5 node-hours");
}

#[test]
fn every_format_is_edited_in_place() {
    let env = lab();
    env.write("w.json5", "{// mine\nname: 'w', jobs: [{name: 'a', command: 'x'}]}");
    json(&env, "slurm generate w.json5 --account a");
    assert!(env.lines("w.json5")[0].contains("// mine"));
    env.write("w.kdl", "name \"w\"\njob \"a\" {\n    command \"x\"\n}\n");
    json(&env, "slurm generate w.kdl --account a");
    for file in ["w.json5", "w.kdl"] {
        env.torc(&format!("validate -f {file}")).exits(0);
    }
}

// J03
#[test]
fn flow_style_is_edited_and_comments_stay() {
    let env = lab();
    let rows = "# mine\nname: w\n# the work\njobs:\n- {name: a, command: x}  # first\n# between\n- {name: b, command: y, depends_on: [a]}\n";
    let line = "{name: w, jobs: [{name: a, command: x}]}  # mine\n";
    for (text, comments) in [(rows, &["# mine", "# the work", "# first", "# between"][..]), (line, &["# mine"])] {
        for flags in ["", "--to new.yaml"] {
            env.write("flow.yaml", text);
            json(&env, &format!("slurm generate flow.yaml --account a {flags}"));
            let file = if flags.is_empty() { "flow.yaml" } else { "new.yaml" };
            let written = env.lines(file).join("\n");
            assert!(written.contains("{name: a, scheduler: ") && written.contains("schedule_nodes"), "{written}");
            assert!(comments.iter().all(|comment| written.contains(comment)), "{written}");
            env.torc(&format!("validate -f {file}")).exits(0);
        }
    }
}

#[test]
fn a_document_that_cannot_be_edited_names_the_line() {
    let env = lab();
    env.write("alias.yaml", "name: w\nx: &a {name: a, command: x}\njobs:\n- *a\n");
    for flags in ["", "--to new.yaml"] {
        let outcome = call(&env, &format!("slurm generate alias.yaml --account a {flags}")).run().exits(4);
        assert!(outcome.stderr.contains("alias.yaml:4:3: job 'a' is an alias"), "{}", outcome.stderr);
        assert!(outcome.stderr.contains("hint: write the job out"), "{}", outcome.stderr);
    }
    assert!(!env.path("new.yaml").exists());
}

// R09
#[test]
fn create_slurm_stores_the_plan_and_keeps_the_file() {
    let env = lab();
    env.write("w.yaml", STUDY);
    let done = json(&env, "workflows create-slurm w.yaml --account a");
    assert_eq!((text(&done, "workflow"), done["id"].as_i64()), ("study".to_owned(), Some(1)));
    assert_eq!(env.lines("w.yaml").join("\n").trim(), STUDY.trim(), "the file has changed");
    let stored = env.torc("workflows export study").exits(0).stdout;
    assert!(stored.contains("slurmSchedulers:") && stored.contains("actionType: schedule_nodes"), "{stored}");
    let states = env.states("study");
    assert!(states.values().all(|state| state != "completed"), "no job may run: {states:?}");
    env.write("again.yaml", stored);
    call(&env, "workflows create-slurm again.yaml --account a").run().exits(2).prints("--overwrite");
}

#[test]
fn one_big_allocation_or_many_small_ones() {
    let env = lab();
    env.write("w.yaml", STUDY);
    let rows = json(&env, "slurm plan-allocations w.yaml --account a");
    let deferred = &rows["items"][2];
    assert_eq!((deferred["nodes"].as_i64(), deferred["idleNodes"].as_i64()), (Some(15), Some(10)));
    assert_eq!(
        (deferred["together"]["nodes"].as_i64(), deferred["apart"]["allocations"].as_i64()),
        (Some(15), Some(15))
    );
    program(&env, "sbatch", "echo 'allocation failure: Requested node configuration is not available' >&2; exit 1");
    let rows = json(&env, "slurm plan-allocations w.yaml --account a");
    assert!(text(&rows["items"][0], "togetherRefused").contains("not available"));
}
