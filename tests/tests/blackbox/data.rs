//! Files, user data, changes, spawned jobs and provenance, with real files and real jobs.

use std::fs::{self, File};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use torc_tests::env::{Call, TestEnv, binary, eventually, until};

/// Prepares a call whose jobs find `torc` on their PATH.
fn with_torc(env: &TestEnv, line: &str) -> Call {
    let path = std::env::var("PATH").unwrap_or_default();
    env.call(line).env("PATH", format!("{}:{path}", binary().parent().unwrap().display()))
}

const CHAIN: &str = "
name: chain
files:
  - {name: raw, path: raw.txt}
  - {name: mid, path: out/mid.txt}
  - {name: end, path: out/end.txt}
  - {name: other, path: other.txt}
jobs:
  - {name: first, command: 'mkdir -p out; cat ${files.input.raw} > ${files.output.mid}; echo first >> ran'}
  - {name: second, command: 'cat ${files.input.mid} > ${files.output.end}; echo second >> ran'}
  - {name: apart, command: 'cat ${files.input.other}; echo apart >> ran'}
";

fn chain() -> TestEnv {
    let env = TestEnv::new();
    env.write("chain.yaml", CHAIN);
    env.write("raw.txt", "abc");
    env.write("other.txt", "x");
    env.torc("apply -f chain.yaml").exits(0);
    fs::remove_file(env.path("ran")).unwrap();
    env
}

/// Returns the names of the jobs that would run again, from a dry run.
fn would_run(env: &TestEnv) -> Vec<String> {
    let again = env.json("retry chain --changed --dry-run");
    again["names"]
        .as_array()
        .map_or_else(Vec::new, |names| names.iter().map(|name| name.as_str().unwrap().to_owned()).collect())
}

/// Runs the changed jobs and returns their names, sorted.
fn run_changed(env: &TestEnv) -> Vec<String> {
    let printed = would_run(env);
    env.torc("retry chain --changed").exits(0);
    env.torc("run chain").exits(0);
    let mut ran = env.lines("ran");
    ran.sort();
    let _ = fs::remove_file(env.path("ran"));
    let mut expected = printed;
    expected.sort();
    assert_eq!(ran, expected, "the dry run named other jobs");
    ran
}

fn set_time(env: &TestEnv, name: &str, seconds_ago: u64) {
    let time = SystemTime::now() - Duration::from_secs(seconds_ago);
    File::options().write(true).open(env.path(name)).unwrap().set_modified(time).unwrap();
}

#[test]
fn files_are_measured_and_hashed() {
    let env = chain();
    let files = env.items("get files chain");
    let raw = files.iter().find(|file| file["name"] == "raw").unwrap();
    assert_eq!((&raw["status"], &raw["sizeBytes"], &raw["readers"]), (&json!("present"), &json!(3), &json!(1)));
    assert_eq!(raw["sha256"], "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    let end = files.iter().find(|file| file["name"] == "end").unwrap();
    assert_eq!((&end["producedBy"], &end["sha256"]), (&json!(["second"]), &raw["sha256"]));
    env.torc("get files chain").exits(0).prints("PRODUCED BY").prints("ba7816bf8f01");
}

#[test]
fn missing_inputs_and_outputs_are_distinguished() {
    let env = TestEnv::new();
    env.write("chain.yaml", CHAIN);
    env.torc("apply -f chain.yaml --no-run").exits(0);
    let status = |name: &str| {
        let files = env.items("get files chain");
        files.iter().find(|file| file["name"] == name).unwrap()["status"].clone()
    };
    assert_eq!((status("raw"), status("mid")), (json!("required"), json!("expected")));
}

#[test]
fn a_missing_input_fails_the_job_before_it_starts() {
    let env = TestEnv::new();
    env.write("chain.yaml", CHAIN);
    env.write("other.txt", "x");
    env.torc("apply -f chain.yaml").exits(3).prints("input file raw.txt does not exist");
    let results = env.items("get results chain --job first");
    assert_eq!((&results[0]["cause"], &results[0]["returnCode"]), (&json!("StartFailed"), &json!(126)));
    assert_eq!(env.lines("ran"), ["apart"]);
    assert!(!env.path("out").exists(), "its command never ran");
    env.write("raw.txt", "abc");
    env.torc("retry chain").exits(0);
    env.torc("run chain").exits(0);
}

#[test]
fn a_changed_input_reruns_its_readers_and_their_dependents() {
    let env = chain();
    assert_eq!(would_run(&env), Vec::<String>::new());
    env.write("raw.txt", "abcd");
    let printed = env.torc("retry chain --changed --dry-run").exits(0);
    let printed = printed.prints("2 jobs would be reset to ready").prints("first: input raw.txt has changed");
    printed.prints("because of these jobs: second");
    assert_eq!(run_changed(&env), ["first", "second"]);
    assert_eq!(run_changed(&env), Vec::<String>::new(), "nothing has changed since the last run");
    // The size is the same and the time differs, so the content decides.
    env.write("raw.txt", "dcba");
    set_time(&env, "raw.txt", 3_600);
    assert_eq!(run_changed(&env), ["first", "second"]);
}

#[test]
fn a_touched_file_with_equal_content_changes_nothing() {
    let env = chain();
    for name in ["raw.txt", "other.txt", "out/mid.txt"] {
        set_time(&env, name, 3_600);
    }
    assert_eq!(run_changed(&env), Vec::<String>::new());
}

#[test]
fn a_missing_output_reruns_its_writer() {
    let env = chain();
    fs::remove_file(env.path("out/end.txt")).unwrap();
    env.torc("workflows reinit chain --dry-run").exits(0).prints("second: output out/end.txt is missing");
    assert_eq!(run_changed(&env), ["second"]);
    // A user changes the intermediate file, which counts like any other input.
    env.write("out/mid.txt", "else");
    assert_eq!(run_changed(&env), ["second"]);
    fs::remove_file(env.path("out/mid.txt")).unwrap();
    assert_eq!(run_changed(&env), ["first", "second"]);
}

#[test]
fn a_removed_input_reruns_its_readers_which_fail() {
    let env = chain();
    fs::remove_file(env.path("other.txt")).unwrap();
    assert_eq!(would_run(&env), ["apart"]);
    env.torc("workflows reinit chain").exits(4).prints("input file other.txt (other) does not exist").prints("--force");
    assert_eq!(env.states("chain")["apart"], "completed", "the job does not read the file");
    env.torc("workflows reinit chain --force").exits(0).prints("1 job reset to ready");
    env.torc("run chain").exits(3).prints("input file other.txt does not exist");
}

#[test]
fn workflows_init_checks_files_before_it_starts() {
    let env = TestEnv::new();
    env.write("chain.yaml", CHAIN);
    env.write("raw.txt", "abc");
    env.torc("apply -f chain.yaml --no-run").exits(0);
    env.torc("workflows init chain").exits(4).prints("input file other.txt (other) does not exist");
    env.write("other.txt", "x");
    env.torc("workflows init chain").exits(0).prints("3 jobs not started yet");
    env.torc("run chain").exits(0);
    env.torc("workflows init chain --dry-run").exits(0).prints("3 jobs would be reset to ready");
    assert_eq!(env.items("get jobs chain")[0]["runId"], 1);
    env.torc("workflows init chain").exits(0).prints("output files will be overwritten");
    assert_eq!(env.items("get jobs chain")[0]["runId"], 2);
}

const DATA: &str = r#"
name: data
user_data:
  - {name: given, data: {n: 1}}
  - {name: made}
jobs:
  - name: maker
    command: torc user-data set made '{"text":"it'\''s","n":2}' && torc user-data get given > given.txt
    output_user_data: [made]
  - name: reader
    command: echo '${user_data.input.made} ${user_data.input.given}' >> read.txt
"#;

#[test]
fn jobs_write_data_and_others_read_it() {
    let env = TestEnv::new();
    env.write("data.yaml", DATA);
    with_torc(&env, "apply -f data.yaml").run().exits(0);
    assert_eq!(env.lines("given.txt"), [r#"{"n":1}"#]);
    assert_eq!(env.lines("read.txt"), [r#"{"n":2,"text":"it\u0027s"} {"n":1}"#]);
    let data = env.items("get user-data data");
    let made = data.iter().find(|data| data["name"] == "made").unwrap();
    assert_eq!((&made["writtenBy"], &made["data"]["text"]), (&json!("maker"), &json!("it's")));
    assert_eq!(env.json("user-data get data made")["n"], 2);
    assert_eq!(env.items("get jobs data --job reader")[0]["command"].as_str().unwrap().matches("${").count(), 0);

    // After a change of the value, `retry --changed` reruns its readers.
    let set = env.call("user-data set data given").arg(r#"{"n": 5}"#).run().exits(0);
    set.prints("user-data/given set").prints("1 job completed with the previous value");
    env.call("user-data set data given").arg(r#"{"n":5}"#).run().exits(0).prints("unchanged");
    env.torc("retry data --changed --dry-run").exits(0).prints("reader: user data `given` has changed");
    env.torc("workflows reinit data").exits(0).prints("1 job reset to ready");
    with_torc(&env, "run data").run().exits(0);
    assert_eq!(env.lines("read.txt").last().unwrap(), r#"{"n":2,"text":"it\u0027s"} {"n":5}"#);
    assert_eq!(env.attempts("data"), ["maker 1 completed", "reader 1 completed", "reader 2 completed"]);

    // From standard input, and back to the value of the document.
    env.call("user-data set data given -").stdin("[1, 2]").run().exits(0);
    assert_eq!(env.json("user-data get data given"), json!([1, 2]));
    env.torc("user-data delete data given").exits(0).prints("deleted");
    assert_eq!(env.json("user-data get data given"), json!({"n": 1}));
    env.call("user-data set data given").arg("no json").run().exits(4).prints("the value is not valid JSON");
    env.torc("user-data get data nothing").exits(5).prints("user data 'nothing' does not exist");
}

#[test]
fn a_job_without_its_user_data_fails_to_start() {
    let env = TestEnv::new();
    env.write(
        "data.yaml",
        "
name: data
user_data: [{name: lacking}]
jobs:
  - {name: reader, command: 'echo ${user_data.input.lacking}'}
",
    );
    env.torc("apply -f data.yaml").exits(3).prints("user data `lacking` has no value");
    assert_eq!(env.items("get results data")[0]["cause"], "StartFailed");
    env.torc("workflows init data").exits(4).prints("user data `lacking`, an input of job 'reader', has no value");
    env.call("user-data set data lacking").arg("3").run().exits(0);
    env.torc("retry data").exits(0);
    env.torc("run data").exits(0);
    env.torc("logs reader").exits(0).prints("3");
}

/// Each step spawns the next one, and the fourth ends the loop. The second repeats its request.
const LOOP: &str = r#"
name: loop
jobs:
  - {name: seed, command: sh step.sh 0}
  - {name: beside, command: 'true'}
resource_requirements:
  - {name: small, num_cpus: 1, memory: 1m, runtime: PT1M}
"#;
const STEP: &str = r#"
set -e
echo "step $1 of ${TORC_ORCHESTRATOR_LINEAGE_ID:-nothing}" >> ran
if [ "$1" = 4 ]; then exec torc spawn --lineage l --converged --state "{\"steps\": $1}"; fi
n=$(($1 + 1))
printf "jobs:\n  - {name: step_$n, command: sh step.sh $n, depends_on: [beside], resource_requirements: small}\n" > jobs$n.yaml
torc spawn --lineage l -f jobs$n.yaml --state "{\"i\": $1}"
if [ "$1" = 2 ]; then torc spawn --lineage l -f jobs$n.yaml | grep 'already exist'; fi
"#;

fn finished_loop() -> TestEnv {
    let env = TestEnv::new();
    env.write("loop.yaml", LOOP);
    env.write("step.sh", STEP);
    with_torc(&env, "apply -f loop.yaml").run().exits(0).prints("6 of 6 jobs completed");
    env
}

#[test]
fn a_spawn_loop_runs_until_it_converges() {
    let env = finished_loop();
    let expected: Vec<String> =
        (0..5).map(|step| format!("step {step} of {}", if step == 0 { "nothing" } else { "l" })).collect();
    assert_eq!(env.lines("ran"), expected);
    let jobs = env.items("get jobs loop");
    let last = jobs.iter().find(|job| job["name"] == "step_4").unwrap();
    assert_eq!((&last["origin"], &last["lineage"]), (&json!("spawn"), &json!("l")));
    assert!(jobs[0].get("origin").is_none());
    let waits = env.json("describe job step_2");
    let waits = waits.get("job").unwrap_or(&waits);
    assert_eq!(waits["dependsOn"], json!(["beside", "step_1"]));
    assert_eq!(env.json("user-data get loop __torc_lineage__l__g000003"), json!({"i": 2}));
    assert_eq!(env.json("user-data get loop __torc_lineage__l__final"), json!({"steps": 4}));

    // Applying the document does not remove spawned jobs.
    env.write("loop.yaml", LOOP.replace("name: beside, command: 'true'", "name: beside, command: 'true', priority: 3"));
    with_torc(&env, "apply -f loop.yaml").run().exits(0).prints("6 of 6 jobs completed");
    assert_eq!(env.lines("ran").len(), 5);
    // A new run removes spawned jobs and spawns them again.
    with_torc(&env, "retry loop --all").run().exits(0);
    assert_eq!(env.states("loop").len(), 2);
    with_torc(&env, "run loop").run().exits(0).prints("6 of 6 jobs completed");
    assert_eq!(env.lines("ran").len(), 10);
}

#[test]
fn a_loop_has_a_limit_and_only_running_jobs_spawn() {
    let env = TestEnv::new();
    env.write("loop.yaml", format!("{LOOP}dynamic_jobs: {{max_iterations: 2}}\n"));
    env.write("step.sh", STEP);
    with_torc(&env, "apply -f loop.yaml").run().exits(3);
    let log = env.torc("logs step_2 --stderr").exits(0);
    let log = log.prints("loop 'l' has reached its limit of 2 iterations");
    log.prints("raise `dynamicJobs.maxIterations` in the document");
    assert_eq!(env.states("loop")["step_2"], "failed");
    env.torc("spawn --lineage l --converged").exits(2).prints("only a running job can spawn jobs");
    let late = env.call("spawn --lineage l --converged").env("TORC_WORKFLOW_ID", "1").env("TORC_JOB_ID", "1");
    late.env("TORC_RUN_ID", "1").env("TORC_ATTEMPT_ID", "1").run().exits(7).prints("is not running");
}

/// Jobs of a separate runner find the server, and the token is on no command line.
#[test]
fn jobs_of_a_separate_runner_reach_their_server() {
    let env = TestEnv::new();
    env.write("loop.yaml", LOOP);
    env.write("step.sh", STEP);
    fs::create_dir(env.path("served")).unwrap();
    let server = env.call("server --bind 127.0.0.1:0 --database served/torc.db -o json").start();
    let printed: Value = eventually("the server prints its address", || serde_json::from_str(&server.stdout()).ok());
    let (url, token) = (printed["url"].as_str().unwrap(), printed["tokenFile"].as_str().unwrap());
    let line = |verb: &str| with_torc(&env, &format!("{verb} --url {url} --token-file {token}"));
    line("apply -f loop.yaml").run().exits(0);
    line("runner loop").run().exits(0);
    let jobs = line("get jobs loop -o json").run().exits(0).json();
    assert_eq!(jobs["items"].as_array().unwrap().len(), 6);
    assert!(jobs["items"].as_array().unwrap().iter().all(|job| job["status"] == "completed"), "{jobs:#}");
    server.signal(nix::sys::signal::Signal::SIGTERM);
    server.finish();
}

/// A running job talks to the next owner after the store has changed owners.
#[test]
fn a_job_finds_the_next_owner_of_its_store() {
    let env = TestEnv::new();
    env.write(
        "w.yaml",
        "
name: w
jobs:
  - name: long
    command: 'touch started; while [ ! -e go ]; do sleep 0.02; done; torc user-data set printed 7'
",
    );
    let first = with_torc(&env, "apply -f w.yaml").start();
    until(|| env.path("started").exists(), || "the job did not start".to_owned());
    first.kill();
    let second = with_torc(&env, "apply -f w.yaml").start();
    second.prints("1 running");
    env.write("go", "");
    second.finish().exits(0);
    assert_eq!(env.json("user-data get w printed"), json!(7));
}

fn entity<'a>(metadata: &'a Value, id: &str) -> &'a Value {
    let graph = metadata["@graph"].as_array().unwrap();
    graph.iter().find(|entity| entity["@id"] == id).unwrap_or_else(|| panic!("no {id} in {metadata:#}"))
}

// J10
#[test]
fn provenance_lists_jobs_with_their_files() {
    let env = TestEnv::new();
    let document =
        CHAIN.replace("{name: raw, path: raw.txt}", "{name: raw, path: raw.txt, identifier: 'doi:10.1/raw'}");
    env.write("chain.yaml", format!("{document}enable_ro_crate: true\n"));
    env.write("raw.txt", "abc");
    env.write("other.txt", "x");
    env.torc("apply -f chain.yaml").exits(0).prints("provenance written to ");
    let written: Value = serde_json::from_slice(&fs::read(env.path("ro-crate-metadata.json")).unwrap()).unwrap();
    assert_eq!(written, env.json("ro-crate export chain"));
    let first = entity(&written, "#job-1-attempt-1");
    assert_eq!(
        (&first["object"], &first["result"]),
        (&json!([{"@id": "doi:10.1/raw"}]), &json!([{"@id": "out/mid.txt"}]))
    );
    assert_eq!(first["actionStatus"], "http://schema.org/CompletedActionStatus");
    let raw = entity(&written, "doi:10.1/raw");
    assert_eq!((&raw["contentSize"], &raw["@type"]), (&json!("3"), &json!("File")));
    assert_eq!(raw["sha256"], "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert!(entity(&written, "#software-torc-run-id-1")["softwareVersion"].is_string());
    assert_eq!(entity(&written, "#torc-run-id-1")["instrument"], json!({"@id": "#torc-workflow"}));
    env.torc("ro-crate export chain --to out").exits(0).prints("wrote ");
    assert!(env.path("out/ro-crate-metadata.json").is_file());
}
