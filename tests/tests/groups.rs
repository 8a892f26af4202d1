//! The verbs as users of Torc 1.0 type them: `torc workflows …`, `torc jobs …`, `torc results …`, and the short ones.
#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};
use torc_tests::lab::Lab;

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
fn the_status_shows_the_run_the_jobs_and_the_way_on() {
    let lab = Lab::new();
    lab.write("mixed.yaml", MIXED);
    lab.torc("apply -f mixed.yaml").exits(3);
    for line in ["workflows status mixed", "status mixed", "status"] {
        let shown = lab.torc(line).exits(0).stdout;
        for words in ["Run:       1\n", "Jobs:      3 of 3 ended\n", "  completed      1\n", "  failed         2\n"] {
            assert!(shown.contains(words), "{line}: {shown}");
        }
        assert!(shown.contains("torc retry mixed"), "{shown}");
    }
    let status = lab.json("workflows status mixed");
    assert_eq!((&status["runId"], &status["status"]), (&json!(1), &json!("Failed")));
    assert_eq!((&status["jobs"]["failed"], &status["jobs"]["completed"]), (&json!(2), &json!(1)));
    lab.torc("workflows reset-status mixed").exits(0);
    assert_eq!(lab.json("status mixed")["runId"], 2);
    lab.torc("status nobody").exits(5).says("torc get workflows");
}

#[test]
fn failed_jobs_or_all_are_put_back_and_run_again() {
    let lab = Lab::new();
    lab.write("mixed.yaml", MIXED);
    lab.torc("apply -f mixed.yaml").exits(3);
    lab.write("mended", "");
    lab.torc("workflows reset-status --failed-only").exits(0).says("2 jobs run again").says("torc run mixed");
    assert_eq!(lab.states("mixed")["good"], "completed");
    lab.torc("run mixed").exits(3);
    assert_eq!(lab.attempts("mixed").iter().filter(|line| line.starts_with("good")).count(), 1);
    assert_eq!(names(&lab.items("results list mixed --failed"), "job"), ["odd"]);
    lab.torc("workflows reset-status mixed").exits(0).says("3 jobs run again");
    assert_eq!(lab.states("mixed")["good"], "ready");
}

#[test]
fn results_are_the_latest_unless_all_runs_are_wanted() {
    let lab = Lab::new();
    lab.write("mixed.yaml", MIXED);
    lab.torc("apply -f mixed.yaml").exits(3);
    lab.torc("retry mixed --all").exits(0);
    lab.torc("run mixed").exits(3);
    let count = |line: &str| lab.items(line).len();
    assert_eq!(count("results list mixed"), 3);
    assert_eq!(count("results list mixed --all-runs"), 6);
    assert_eq!(count("results list mixed --failed"), 2);
    assert_eq!(names(&lab.items("results list mixed --return-code 7"), "job"), ["odd"]);
    assert_eq!(count("results list mixed --return-code 7 --all-runs"), 2);
    assert_eq!(count("results list mixed --return-code 8"), 0);
    assert_eq!(names(&lab.items("results list -j bad"), "job"), ["bad"]);
    assert_eq!(names(&lab.items("jobs list mixed --status failed"), "name"), ["odd", "bad"]);
    lab.torc("jobs get odd -w mixed").exits(0).says("exit code 7");
}

#[test]
fn workflows_are_listed_shown_exported_cancelled_and_deleted() {
    let lab = Lab::new();
    lab.write("mixed.yaml", MIXED);
    lab.torc("apply -f mixed.yaml --no-run").exits(0);
    assert_eq!(names(&lab.items("workflows list"), "name"), ["mixed"]);
    lab.torc("workflows get mixed").exits(0).says("Name:        mixed");
    lab.write("copy.yaml", lab.torc("workflows export mixed").exits(0).stdout);
    lab.torc("diff -f copy.yaml").exits(0);
    lab.torc("workflows cancel mixed").exits(0).says("workflow/mixed canceled");
    assert_eq!(lab.json("status mixed")["status"], "Canceled");
    lab.torc("workflows delete mixed --yes").exits(0);
    assert_eq!(lab.items("workflows list").len(), 0);
}

#[test]
fn a_ping_says_who_answers() {
    let lab = Lab::new();
    lab.torc("ping").exits(5).says("torc apply -f FILE");
    lab.torc("ping --url http://127.0.0.1:9").exits(6);
    lab.write("mixed.yaml", MIXED);
    lab.torc("apply -f mixed.yaml --no-run").exits(0);
    lab.torc("ping").exits(0).says("nobody serves it");
    let server = lab.start("server --bind 127.0.0.1:0");
    server.says("http://");
    let answer = lab.json("ping");
    assert!(answer["url"].as_str().unwrap().starts_with("http://127.0.0.1:"), "{answer}");
    assert!(answer["version"].is_string(), "{answer}");
}

#[test]
fn what_is_shown_of_a_job_says_what_happened_to_it() {
    let lab = Lab::new();
    lab.write("w.yaml", "name: w\njobs: [{name: shot, command: 'kill -9 $$'}, {name: fine, command: 'true'}]\n");
    lab.torc("apply -f w.yaml").exits(3).says("exit code 137, signal 9 (KILL)");
    lab.torc("describe job shot").exits(0).says("exit code 137, signal 9 (KILL)");
    lab.torc("describe workflow w").exits(0).says("fine completed").says("shot failed");
    lab.torc("describe job short").exits(5).says("`torc get jobs w` lists its jobs");
    lab.torc("logs short").exits(5).says("`torc get jobs w`");
}

#[test]
fn a_wait_prints_the_last_state_for_programs() {
    let lab = Lab::new();
    lab.write("mixed.yaml", MIXED);
    lab.torc("apply -f mixed.yaml").exits(3);
    let last = lab.json("wait mixed");
    assert_eq!((&last["name"], &last["status"]["jobs"]["failed"]), (&json!("mixed"), &json!(2)));
    let never = lab.torc("wait mixed --for condition=Succeeded -o json").exits(3);
    assert_eq!(never.json()["status"]["jobs"]["failed"], 2);
    lab.torc("wait mixed").exits(0).says("workflow/mixed is finished");
}

#[test]
fn jobs_that_wait_for_a_person_end_the_command_with_the_way_on() {
    let lab = Lab::new();
    lab.write(
        "w.yaml",
        "name: w\nuse_pending_failed: true\njobs: [{name: a, command: exit 1}, {name: b, command: 'true', depends_on: [a]}]\n",
    );
    for line in ["apply -f w.yaml", "run w"] {
        lab.torc(line).exits(3).says("w: waits for a decision").says("torc retry w, or torc cancel w");
    }
    lab.torc("status w").exits(0).says("NeedsDecision").says("torc cancel w");
    assert_eq!(lab.states("w")["a"], "pending_failed");
}

#[test]
fn commands_on_the_command_line_become_a_workflow() {
    let lab = Lab::new();
    let call =
        lab.call("exec -n two -j 1 -o logs").arg("-c").arg("echo a >> ran").arg("-c").arg("echo b >> ran; exit 4");
    call.run().exits(3).says("two: failed, 1 of 2 jobs completed").says("exit code 4");
    assert_eq!(lab.lines("ran"), ["a", "b"]);
    assert_eq!(names(&lab.items("jobs list two"), "name"), ["job1", "job2"]);
    assert!(lab.path("logs").exists() && !lab.path("torc_output").exists());

    lab.call("exec --").arg("sh").arg("-c").arg("echo \"$1\" > said").arg("-n").arg("two  words").run().exits(0);
    assert_eq!(lab.lines("said"), ["two  words"]);

    let listed = lab.call("exec -n listed -C -").stdin("# a remark\n\necho c >> ran\n  echo d >> ran\n").run();
    listed.exits(0);
    assert_eq!(lab.states("listed").len(), 2);
    lab.torc("exec").exits(2).says("torc exec -c");
    lab.torc("exec -C nowhere").exits(5);
}

#[test]
fn parameters_of_commands_are_combined_or_taken_side_by_side() {
    let lab = Lab::new();
    let exec = |line: &str| lab.call(&format!("exec {line} --param i=1:2 --param s=x,y -c")).arg("echo {i}{s} >> ran");
    exec("-n all").run().exits(0);
    let mut ran = lab.lines("ran");
    ran.sort();
    assert_eq!(ran, ["1x", "1y", "2x", "2y"]);
    let plan = exec("-n pairs --link zip --dry-run").run().exits(0);
    assert!(!plan.stdout.is_empty() && lab.items("workflows list").len() == 1, "{}", plan.stdout);
    lab.write("pairs.yaml", plan.stdout);
    let mut pairs: Vec<String> = lab.json("plan -f pairs.yaml")["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|job| job["command"].as_str().unwrap().to_owned())
        .collect();
    pairs.sort();
    assert_eq!(pairs, ["echo 1x >> ran", "echo 2y >> ran"]);
    let wrong = lab.call("exec --param i=1:2 --param s=a,b,c --link zip -c").arg("echo {i}{s}").run().exits(4);
    assert!(wrong.stderr.contains("error:"), "{}", wrong.stderr);
}
