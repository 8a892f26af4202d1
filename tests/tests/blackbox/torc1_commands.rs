//! Commands of Torc 1.0: `torc workflows …`, `torc jobs …`, `torc results …`, and their short forms.

use serde_json::{Value, json};
use torc_tests::env::TestEnv;

const MIXED: &str = "
name: mixed
jobs:
  - {name: good, command: 'true'}
  - {name: odd, command: exit 7}
  - {name: bad, command: 'test -e mended || exit 9'}
";

fn names(items: &[Value], field: &str) -> Vec<String> {
    items.iter().map(|item| item[field].as_str().unwrap().to_owned()).collect()
}

// J38
#[test]
fn status_shows_the_run_the_jobs_and_the_next_command() {
    let env = TestEnv::new();
    env.write("mixed.yaml", MIXED);
    env.torc("apply -f mixed.yaml").exits(3);
    for line in ["workflows status mixed", "status mixed", "status"] {
        let shown = env.torc(line).exits(0).stdout;
        for words in ["Run:       1\n", "Jobs:      3 of 3 ended\n", "  completed      1\n", "  failed         2\n"] {
            assert!(shown.contains(words), "{line}: {shown}");
        }
        assert!(shown.contains("torc retry mixed"), "{shown}");
    }
    let status = env.json("workflows status mixed");
    assert_eq!((&status["runId"], &status["status"]), (&json!(1), &json!("Failed")));
    assert_eq!((&status["jobs"]["failed"], &status["jobs"]["completed"]), (&json!(2), &json!(1)));
    env.torc("workflows reset-status mixed").exits(0);
    assert_eq!(env.json("status mixed")["runId"], 2);
    env.torc("status missing").exits(5).prints("torc get workflows");
}

#[test]
fn reset_status_resets_failed_or_all_jobs() {
    let env = TestEnv::new();
    env.write("mixed.yaml", MIXED);
    env.torc("apply -f mixed.yaml").exits(3);
    env.write("mended", "");
    env.torc("workflows reset-status --failed-only").exits(0).prints("2 jobs reset to ready").prints("torc run mixed");
    assert_eq!(env.states("mixed")["good"], "completed");
    env.torc("run mixed").exits(3);
    assert_eq!(env.attempts("mixed").iter().filter(|line| line.starts_with("good")).count(), 1);
    assert_eq!(names(&env.items("results list mixed --failed"), "job"), ["odd"]);
    env.torc("workflows reset-status mixed").exits(0).prints("3 jobs reset to ready");
    assert_eq!(env.states("mixed")["good"], "ready");
}

#[test]
fn results_list_shows_the_latest_run_or_all_runs() {
    let env = TestEnv::new();
    env.write("mixed.yaml", MIXED);
    env.torc("apply -f mixed.yaml").exits(3);
    env.torc("retry mixed --all").exits(0);
    env.torc("run mixed").exits(3);
    let count = |line: &str| env.items(line).len();
    assert_eq!(count("results list mixed"), 3);
    assert_eq!(count("results list mixed --all-runs"), 6);
    assert_eq!(count("results list mixed --failed"), 2);
    assert_eq!(names(&env.items("results list mixed --return-code 7"), "job"), ["odd"]);
    assert_eq!(count("results list mixed --return-code 7 --all-runs"), 2);
    assert_eq!(count("results list mixed --return-code 8"), 0);
    assert_eq!(names(&env.items("results list -j bad"), "job"), ["bad"]);
    assert_eq!(names(&env.items("jobs list mixed --status failed"), "name"), ["odd", "bad"]);
    env.torc("jobs get odd -w mixed").exits(0).prints("exit code 7");
}

#[test]
fn workflows_are_listed_exported_canceled_and_deleted() {
    let env = TestEnv::new();
    env.write("mixed.yaml", MIXED);
    env.torc("apply -f mixed.yaml --no-run").exits(0);
    assert_eq!(names(&env.items("workflows list"), "name"), ["mixed"]);
    env.torc("workflows get mixed").exits(0).prints("Name:        mixed");
    env.write("copy.yaml", env.torc("workflows export mixed").exits(0).stdout);
    env.torc("diff -f copy.yaml").exits(0);
    env.torc("workflows cancel mixed").exits(0).prints("workflow/mixed canceled");
    assert_eq!(env.json("status mixed")["status"], "Canceled");
    env.torc("workflows delete mixed --yes").exits(0);
    assert_eq!(env.items("workflows list").len(), 0);
}

#[test]
fn ping_prints_the_server() {
    let env = TestEnv::new();
    env.torc("ping").exits(5).prints("torc apply -f FILE");
    env.torc("ping --url http://127.0.0.1:9").exits(6);
    env.write("mixed.yaml", MIXED);
    env.torc("apply -f mixed.yaml --no-run").exits(0);
    env.torc("ping").exits(0).prints("no process serves it");
    let server = env.start("server --bind 127.0.0.1:0");
    server.prints("http://");
    let answer = env.json("ping");
    assert!(answer["url"].as_str().unwrap().starts_with("http://127.0.0.1:"), "{answer}");
    assert!(answer["version"].is_string(), "{answer}");
}

#[test]
fn jobs_get_shows_the_attempts_of_a_job() {
    let env = TestEnv::new();
    env.write("w.yaml", "name: w\njobs: [{name: shot, command: 'kill -9 $$'}, {name: fine, command: 'true'}]\n");
    env.torc("apply -f w.yaml").exits(3).prints("exit code 137, signal 9 (KILL)");
    env.torc("describe job shot").exits(0).prints("exit code 137, signal 9 (KILL)");
    env.torc("describe workflow w").exits(0).prints("fine completed").prints("shot failed");
    env.torc("describe job short").exits(5).prints("`torc get jobs w` lists its jobs");
    env.torc("logs short").exits(5).prints("`torc get jobs w`");
}

#[test]
fn wait_prints_the_last_state_as_json() {
    let env = TestEnv::new();
    env.write("mixed.yaml", MIXED);
    env.torc("apply -f mixed.yaml").exits(3);
    let last = env.json("wait mixed");
    assert_eq!((&last["name"], &last["status"]["jobs"]["failed"]), (&json!("mixed"), &json!(2)));
    let never = env.torc("wait mixed --for condition=Succeeded -o json").exits(3);
    assert_eq!(never.json()["status"]["jobs"]["failed"], 2);
    env.torc("wait mixed").exits(0).prints("workflow/mixed condition met");
}

#[test]
fn jobs_that_need_a_decision_end_the_command_with_a_hint() {
    let env = TestEnv::new();
    env.write(
        "w.yaml",
        "name: w\nuse_pending_failed: true\njobs: [{name: a, command: exit 1}, {name: b, command: 'true', depends_on: [a]}]\n",
    );
    for line in ["apply -f w.yaml", "run w"] {
        env.torc(line).exits(3).prints("w: needs a decision").prints("torc retry w, or torc cancel w");
    }
    env.torc("status w").exits(0).prints("NeedsDecision").prints("torc cancel w");
    assert_eq!(env.states("w")["a"], "pending_failed");
}

#[test]
fn exec_makes_a_workflow_from_commands() {
    let env = TestEnv::new();
    let call =
        env.call("exec -n two -j 1 -o logs").arg("-c").arg("echo a >> ran").arg("-c").arg("echo b >> ran; exit 4");
    call.run().exits(3).prints("two: failed, 1 of 2 jobs completed").prints("exit code 4");
    assert_eq!(env.lines("ran"), ["a", "b"]);
    assert_eq!(names(&env.items("jobs list two"), "name"), ["job1", "job2"]);
    assert!(env.path("logs").exists() && !env.path("torc_output").exists());

    env.call("exec --").arg("sh").arg("-c").arg("echo \"$1\" > words").arg("-n").arg("two  words").run().exits(0);
    assert_eq!(env.lines("words"), ["two  words"]);

    let listed = env.call("exec -n listed -C -").stdin("# a remark\n\necho c >> ran\n  echo d >> ran\n").run();
    listed.exits(0);
    assert_eq!(env.states("listed").len(), 2);
    env.torc("exec").exits(2).prints("torc exec -c");
    env.torc("exec -C nowhere").exits(5);
}

#[test]
fn exec_combines_or_zips_parameters() {
    let env = TestEnv::new();
    let exec = |line: &str| env.call(&format!("exec {line} --param i=1:2 --param s=x,y -c")).arg("echo {i}{s} >> ran");
    exec("-n all").run().exits(0);
    let mut ran = env.lines("ran");
    ran.sort();
    assert_eq!(ran, ["1x", "1y", "2x", "2y"]);
    let plan = exec("-n pairs --link zip --dry-run").run().exits(0);
    assert!(!plan.stdout.is_empty() && env.items("workflows list").len() == 1, "{}", plan.stdout);
    env.write("pairs.yaml", plan.stdout);
    let mut pairs: Vec<String> = env.json("plan -f pairs.yaml")["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|job| job["command"].as_str().unwrap().to_owned())
        .collect();
    pairs.sort();
    assert_eq!(pairs, ["echo 1x >> ran", "echo 2y >> ran"]);
    let wrong = env.call("exec --param i=1:2 --param s=a,b,c --link zip -c").arg("echo {i}{s}").run().exits(4);
    assert!(wrong.stderr.contains("error:"), "{}", wrong.stderr);
}

#[test]
fn messages_use_names_for_workflows_given_by_number() {
    let env = TestEnv::new();
    env.write("mixed.yaml", MIXED);
    env.torc("apply -f mixed.yaml").exits(3);
    for line in ["retry 1", "workflows reset-status 1", "workflows sync-status 1", "cancel 1"] {
        let outcome = env.torc(line).exits(0);
        let printed = format!("{}{}", outcome.stdout, outcome.stderr);
        assert!(printed.contains("workflow/mixed") && !printed.contains("workflow/1"), "{line}: {printed}");
    }
    env.torc("retry 2").exits(5).prints("torc get workflows");
}

// J03. Both commands find a store without a server, and both start one.
#[test]
fn simultaneous_commands_share_a_server() {
    let env = TestEnv::new();
    let mut started = Vec::new();
    for number in 1..=4 {
        let name = format!("w{number}");
        env.write(&format!("{name}.yaml"), format!("name: {name}\njobs: [{{name: a, command: 'true'}}]\n"));
        started.push(env.start(&format!("apply -f {name}.yaml --detach")));
    }
    for process in started {
        process.finish().exits(0).prints("running in the background");
    }
    for number in 1..=4 {
        env.torc(&format!("wait w{number} --for condition=Succeeded --timeout 1m")).exits(0);
    }
}
