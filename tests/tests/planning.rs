//! `torc hpc` and `torc slurm generate`: clusters, partitions and schedulers, with programs in place of Slurm's.
#![allow(clippy::unwrap_used)]

use std::os::unix::fs::PermissionsExt;

use serde_json::Value;
use torc_tests::lab::{Call, Lab, text};

const PARTITIONS: &str = "\
PartitionName=cpu MaxNodes=UNLIMITED MaxTime=2-00:00:00 OverSubscribe=EXCLUSIVE State=UP TotalNodes=10 RootOnly=NO Hidden=NO
PartitionName=gpu MaxNodes=UNLIMITED MaxTime=1-00:00:00 OverSubscribe=EXCLUSIVE State=UP TotalNodes=2 RootOnly=NO Hidden=NO
";
const NODES: &str = "cpu|10|8|16000|(null)|idle\ngpu|2|16|64000|gpu:a100:4|idle\n";

/// A lab with programs that answer as Slurm would.
fn lab() -> Lab {
    let lab = Lab::new();
    program(&lab, "scontrol", &format!("cat <<'END'\n{PARTITIONS}END"));
    program(&lab, "sinfo", &format!("cat <<'END'\n{NODES}END"));
    program(&lab, "squeue", "true");
    program(&lab, "sbatch", "echo 'sbatch: Job 7 to start at 2020-01-01T00:00:00 using 1 processors' >&2");
    lab
}

fn program(lab: &Lab, name: &str, script: &str) {
    lab.write(name, format!("#!/bin/bash\n{script}\n"));
    std::fs::set_permissions(lab.path(name), PermissionsExt::from_mode(0o755)).unwrap();
}

fn call(lab: &Lab, line: &str) -> Call {
    ["SCONTROL", "SINFO", "SQUEUE", "SBATCH"]
        .into_iter()
        .fold(lab.call(line), |call, tool| call.env(&format!("TORC_FAKE_{tool}"), lab.path(&tool.to_lowercase())))
}

fn json(lab: &Lab, line: &str) -> Value {
    call(lab, line).arg("-o").arg("json").run().exits(0).json()
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
    let lab = lab();
    let known = json(&lab, "hpc list");
    assert_eq!(names(&known, "items", "name"), ["kestrel", "dane"]);
    let here = call(&lab, "hpc detect -o json").env("NLR_CLUSTER", "kestrel").run().exits(0).json();
    assert_eq!((text(&here, "name"), here["here"].as_bool()), ("kestrel".to_owned(), Some(true)));
    let detected = json(&lab, "hpc detect");
    assert_eq!(
        (text(&detected, "name"), names(&detected, "partitions", "name")),
        ("slurm".to_owned(), vec!["cpu".to_owned(), "gpu".to_owned()])
    );
    assert_eq!(names(&json(&lab, "hpc partitions --gpu"), "items", "name"), ["gpu"]);
    assert_eq!(json(&lab, "hpc partitions kestrel --shared")["items"][0]["shared"], true);
    assert_eq!(json(&lab, "hpc show dane")["partitions"][0]["requiresExplicitRequest"], true);
}

#[test]
fn a_persons_own_profile_comes_first() {
    let lab = lab();
    let profile = "name = \"mine\"\n[detect]\nvariables = { SITE = \"mine\" }\n\
                   [[partitions]]\nname = \"p\"\ncpusPerNode = 4\nmemoryMb = 4000\nmaxWalltime = \"1h\"\n";
    lab.write(".config/torc/profiles/mine.toml", profile);
    let found = call(&lab, "hpc detect -o json").env("SITE", "mine").run().exits(0).json();
    assert_eq!(text(&found, "name"), "mine");
    lab.write("bad.toml", "name = \"x\"\nspeed = 1\n");
    let outcome = call(&lab, "hpc show bad.toml").run().exits(4);
    assert!(outcome.stderr.contains("speed"), "{}", outcome.stderr);
    let outcome = call(&lab, "hpc show nowhere").run().exits(5);
    assert!(outcome.stderr.contains("mine, kestrel, dane"), "{}", outcome.stderr);
}

#[test]
fn where_a_job_fits() {
    let lab = lab();
    let fits = json(&lab, "hpc match --cpus 2 --memory 1g --gpus 2");
    assert_eq!((fits["items"][0]["fits"].as_bool(), fits["items"][1]["chosen"].as_bool()), (Some(false), Some(true)));
    let outcome = call(&lab, "hpc match --cpus 99").run().exits(5);
    assert!(outcome.stderr.contains("99 CPUs on a node are more than any partition has (16)"), "{}", outcome.stderr);
    call(&lab, "hpc match --memory much").run().exits(2);
}

#[test]
fn no_slurm_is_told_with_what_to_do() {
    let lab = lab();
    let outcome = lab.call("hpc detect").env("TORC_FAKE_SCONTROL", "/nowhere/scontrol").run().exits(5);
    assert!(
        outcome.stderr.contains("not installed") && outcome.stderr.contains("--command-prefix"),
        "{}",
        outcome.stderr
    );
    program(
        &lab,
        "scontrol",
        "echo 'slurm_load_partitions: Unable to contact slurm controller (connect failure)' >&2; exit 1",
    );
    let outcome = call(&lab, "hpc detect").run().exits(6);
    assert!(outcome.stderr.contains("Unable to contact"), "{}", outcome.stderr);
}

#[test]
fn a_cluster_becomes_a_document_that_is_valid() {
    let lab = lab();
    call(&lab, "hpc generate --name home --account a --to cluster.yaml").run().exits(0);
    lab.torc("validate -f cluster.yaml").exits(0);
    assert!(lab.lines("cluster.yaml").contains(&"  defaultAccount: a".to_owned()));
    call(&lab, "hpc generate --to cluster.yaml").run().exits(2);
    call(&lab, "hpc generate --name Not_Valid").run().exits(4);
}

// J03, R09, R10, R13
#[test]
fn schedulers_are_written_into_the_document() {
    let lab = lab();
    lab.write("w.yaml", STUDY);
    let would = json(&lab, "slurm generate w.yaml --account a --dry-run");
    assert_eq!(lab.lines("w.yaml").join("\n") + "\n", STUDY, "a dry run writes nothing");
    let done = json(&lab, "slurm generate w.yaml --account a");
    assert_eq!(done["schedulers"], would["schedulers"]);
    assert_eq!(names(&done, "schedulers", "name"), ["cpu_scheduler", "gpu_scheduler", "cpu_scheduler_deferred"]);
    assert_eq!(
        done["schedulers"][2]["allocations"], 15,
        "two side by side, one after another does not fit three hours"
    );
    let lines = lab.lines("w.yaml");
    assert!(lines.contains(&"# a study".to_owned()) && lines.contains(&"  - name: prepare # first".to_owned()));
    assert!(lines.contains(&"    scheduler: cpu_scheduler_deferred".to_owned()));
    lab.torc("validate -f w.yaml").exits(0);
    let outcome = call(&lab, "slurm generate w.yaml --account a").run().exits(2);
    assert!(outcome.stderr.contains("--overwrite"), "{}", outcome.stderr);
    let again =
        json(&lab, "slurm generate w.yaml --account b --overwrite --no-actions --group-by resource-requirements");
    assert_eq!(again["actions"], 0);
    assert!(!lab.lines("w.yaml").iter().any(|line| line.contains("schedule_nodes")));
}

#[test]
fn a_plan_shows_allocations_and_what_they_cost() {
    let lab = lab();
    lab.write("w.yaml", STUDY);
    assert_eq!(json(&lab, "plan w.yaml")["allocations"], Value::Null);
    json(&lab, "slurm generate w.yaml --account a");
    let written = json(&lab, "plan w.yaml");
    assert_eq!((written["allocations"].as_array().unwrap().len(), written["nodeHours"].as_f64()), (3, Some(49.5)));
    call(&lab, "hpc generate --name here --to cluster.yaml").run().exits(0);
    lab.write("d.yaml", STUDY.replace("name: study\n", "name: study\nslurm_cluster: here\n"));
    let sized = call(&lab, "plan d.yaml cluster.yaml -o json").run().exits(0).json();
    assert_eq!(sized["nodeHours"].as_f64(), Some(49.5));
    call(&lab, "plan d.yaml cluster.yaml").run().exits(0).says("49.5 node-hours");
}

#[test]
fn every_format_stays_what_it_is() {
    let lab = lab();
    lab.write("w.json5", "{// mine\nname: 'w', jobs: [{name: 'a', command: 'x'}]}");
    json(&lab, "slurm generate w.json5 --account a");
    assert!(lab.lines("w.json5")[0].contains("// mine"));
    lab.write("w.kdl", "name \"w\"\njob \"a\" {\n    command \"x\"\n}\n");
    json(&lab, "slurm generate w.kdl --account a");
    for file in ["w.json5", "w.kdl"] {
        lab.torc(&format!("validate -f {file}")).exits(0);
    }
    lab.write("flow.yaml", "{name: w, jobs: [{name: a, command: x}]}\n");
    let outcome = call(&lab, "slurm generate flow.yaml --account a").run().exits(4);
    assert!(outcome.stderr.contains("--to"), "{}", outcome.stderr);
    json(&lab, "slurm generate flow.yaml --account a --to new.yaml");
    lab.torc("validate -f new.yaml").exits(0);
}

#[test]
fn one_big_allocation_or_many_small_ones() {
    let lab = lab();
    lab.write("w.yaml", STUDY);
    let rows = json(&lab, "slurm plan-allocations w.yaml --account a");
    let deferred = &rows["items"][2];
    assert_eq!((deferred["nodes"].as_i64(), deferred["idleNodes"].as_i64()), (Some(15), Some(10)));
    assert_eq!(
        (deferred["together"]["nodes"].as_i64(), deferred["apart"]["allocations"].as_i64()),
        (Some(15), Some(15))
    );
    program(&lab, "sbatch", "echo 'allocation failure: Requested node configuration is not available' >&2; exit 1");
    let rows = json(&lab, "slurm plan-allocations w.yaml --account a");
    assert!(text(&rows["items"][0], "togetherRefused").contains("not available"));
}
