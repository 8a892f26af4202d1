//! `torc apply` from a document to its outcome: output, stored jobs, and the jobs that run again.

use serde_json::{Value, json};
use torc_tests::env::{TestEnv, eventually, most_at_once, until};

const DIAMOND: &str = "
name: diamond
jobs:
  - {name: prepare, command: echo preparing}
  - {name: left, command: echo left >&2, depends_on: [prepare]}
  - {name: right, command: 'true', depends_on: [prepare]}
  - {name: join, command: 'echo joining; echo oddly >&2', depends_on: [left, right]}
";

/// Returns a workflow whose jobs write their names to `ran`, so that a second run is visible.
fn tally(name: &str, jobs: &[&str]) -> String {
    let mut text = format!("name: {name}\njobs:\n");
    for job in jobs {
        text.push_str(&format!("  - {{name: {job}, command: 'echo {job} >> ran'}}\n"));
    }
    text
}

#[test]
fn a_diamond_runs_to_its_end() {
    let env = TestEnv::new();
    env.write("diamond.yaml", DIAMOND);
    let outcome = env.torc("apply -f diamond.yaml").exits(0);
    assert!(outcome.stderr.contains("workflow/diamond created: 4 jobs added"), "{}", outcome.stderr);
    assert!(outcome.stdout.starts_with("diamond: succeeded, 4 of 4 jobs completed"), "{}", outcome.stdout);
    env.expect_nothing_left();

    let jobs = env.items("get jobs");
    let names: Vec<&str> = jobs.iter().map(|job| job["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["prepare", "left", "right", "join"]);
    for job in &jobs {
        assert_eq!((&job["status"], &job["attempt"], &job["runId"]), (&json!("completed"), &json!(1), &json!(1)));
        assert!(!job.as_object().unwrap().values().any(Value::is_null), "{job:#}");
    }
    let results = env.items("get results diamond");
    assert_eq!(results.len(), 4);
    for result in &results {
        assert_eq!((&result["runId"], &result["attempt"], &result["returnCode"]), (&json!(1), &json!(1), &json!(0)));
        assert_eq!(result["status"], "completed");
        assert!(result["node"].is_string() && result.get("cause").is_none(), "{result:#}");
        assert!(result["startTime"].as_str().unwrap() <= result["endTime"].as_str().unwrap(), "{result:#}");
        assert!(result["endTime"].as_str().unwrap().ends_with('Z'), "{result:#}");
    }
    // J22
    let path = |number: u32, kind: &str| {
        json!(env.text_path(&format!("torc_output/job_stdio/job_wf1_j{number}_r1_a1.{kind}")))
    };
    let logs = |job: &str| {
        let result = results.iter().find(|result| result["job"] == job).unwrap();
        (result.get("stdout").cloned(), result.get("stderr").cloned())
    };
    assert_eq!(logs("prepare"), (Some(path(1, "o")), None));
    assert_eq!(logs("left"), (None, Some(path(2, "e"))));
    assert_eq!(logs("right"), (None, None));
    assert_eq!(logs("join"), (Some(path(4, "o")), Some(path(4, "e"))));
}

#[test]
fn a_failure_is_printed_with_cause_log_and_next_command() {
    let env = TestEnv::new();
    env.write(
        "report.yaml",
        "
name: report
jobs:
  - {name: fetch, command: 'true'}
  - {name: clean, command: 'echo missing >&2; exit 7', depends_on: [fetch]}
  - {name: plot, command: 'true', depends_on: [clean]}
  - {name: anyway, command: 'true', depends_on: [clean], cancel_on_blocking_job_failure: false}
",
    );
    let outcome = env.torc("apply -f report.yaml").exits(3);
    for words in [
        "report: failed, 2 of 4 jobs completed, 1 failed, 1 canceled",
        "clean: ExitCode, exit code 7, attempt 1",
        "job_wf1_j2_r1_a1.e",
        "torc logs clean -w report",
        "torc retry report",
    ] {
        assert!(outcome.stdout.contains(words), "`{words}` is missing:\n{}", outcome.stdout);
    }
    let states = env.states("report");
    let of = |name: &str| states[name].as_str();
    assert_eq!((of("fetch"), of("clean"), of("plot"), of("anyway")), ("completed", "failed", "canceled", "completed"));
    let failed = env.items("get results --failed");
    assert_eq!(failed.len(), 1);
    assert_eq!((&failed[0]["returnCode"], &failed[0]["cause"]), (&json!(7), &json!("ExitCode")));

    let attempts = env.attempts("");
    env.torc("apply -f report.yaml").exits(3).prints("unchanged").prints("1 failed");
    assert_eq!(env.attempts(""), attempts, "a finished document ran again");
    env.expect_nothing_left();
}

#[test]
fn a_failed_job_runs_again_after_retry() {
    let env = TestEnv::new();
    env.write(
        "w.yaml",
        "name: w\njobs:\n- {name: a, command: test -e fixed}\n- {name: b, command: 'true', depends_on: [a]}\n",
    );
    env.torc("apply -f w.yaml").exits(3);
    env.write("fixed", "");
    env.torc("retry w").exits(0).prints("2 jobs reset to ready");
    // J01
    env.torc("run w").exits(0);
    assert_eq!(env.attempts(""), ["a 1 failed", "a 2 completed", "b 1 completed"]);
}

#[test]
fn applying_a_finished_document_again_does_nothing() {
    let env = TestEnv::new();
    env.write("w.yaml", tally("w", &["a", "b"]));
    env.torc("apply -f w.yaml").exits(0);
    let results = env.items("get results");
    env.torc("apply -f w.yaml").exits(0).prints("workflow/w unchanged");
    env.torc("run w.yaml").exits(0);
    assert_eq!(env.items("get results"), results);
    assert_eq!(env.lines("ran").len(), 2);
}

#[test]
fn an_edit_reruns_changed_jobs_and_their_dependents() {
    let env = TestEnv::new();
    let text = |left: &str, more: &str| {
        format!(
            "
name: w
jobs:
  - {{name: first, command: 'echo first >> ran'}}
  - {{name: left, command: 'echo {left} >> ran', depends_on: [first]}}
  - {{name: right, command: 'echo right >> ran', depends_on: [first]}}
  - {{name: last, command: 'echo last >> ran', depends_on: [left, right]}}
{more}"
        )
    };
    env.write("w.yaml", text("left", "  - {name: extra, command: 'echo extra >> ran'}"));
    env.torc("apply -f w.yaml").exits(0);
    env.write("w.yaml", text("better", "  - {name: fresh, command: 'echo fresh >> ran'}"));
    env.torc("diff -f w.yaml").exits(9).prints("left runs again").prints("last runs again");
    env.torc("apply -f w.yaml").exits(0).prints("1 job added, 1 removed, 1 changed, 1 downstream of changes");

    let mut ran = env.lines("ran").split_off(5);
    ran.sort();
    assert_eq!(ran, ["better", "fresh", "last"]);
    let mut expected = ["first 1", "left 1", "left 2", "right 1", "last 1", "last 2", "fresh 1", "extra 1"];
    expected.sort_unstable();
    let expected: Vec<String> = expected.iter().map(|attempt| format!("{attempt} completed")).collect();
    assert_eq!(env.attempts(""), expected, "the results of a removed job stay, too");
    assert!(!env.states("").contains_key("extra"));
    env.torc("diff -f w.yaml").exits(0);
}

#[test]
fn documents_come_from_files_folders_streams_and_standard_input() {
    let env = TestEnv::new();
    env.write("one.yaml", tally("one", &["a"]));
    env.write("two.json", r#"{"name": "two", "jobs": [{"name": "b", "command": "echo b >> ran"}]}"#);
    env.write("folder/three.yml", tally("three", &["c"]));
    env.write("folder/four.kdl", "name \"four\"\njob \"d\" { command \"echo d >> ran\"; }\n");
    env.write("folder/readme.txt", "no document");
    env.write("several.yaml", format!("{}---\n{}", tally("five", &["e"]), tally("six", &["f"])));
    env.torc("apply -f one.yaml -f two.json folder several.yaml").exits(0);
    env.call("apply -f -").stdin(tally("seven", &["g"])).run().exits(0);
    let mut ran = env.lines("ran");
    ran.sort();
    assert_eq!(ran, ["a", "b", "c", "d", "e", "f", "g"]);
    let mut names: Vec<String> =
        env.items("get workflows").iter().map(|workflow| workflow["name"].as_str().unwrap().to_owned()).collect();
    names.sort();
    assert_eq!(names, ["five", "four", "one", "seven", "six", "three", "two"]);
    env.torc("get jobs").exits(2).prints("the store contains several workflows");
}

#[test]
fn several_workflows_fail_if_one_does() {
    let env = TestEnv::new();
    env.write("good.yaml", tally("good", &["a"]));
    env.write("bad.yaml", "name: bad\njobs: [{name: x, command: 'false'}]\n");
    env.torc("apply -f bad.yaml good.yaml").exits(3).prints("good: succeeded").prints("bad: failed");
}

#[test]
fn no_run_stores_and_run_continues() {
    let env = TestEnv::new();
    env.write("w.yaml", tally("w", &["a", "b"]));
    env.torc("apply -f w.yaml --no-run").exits(0).prints("workflow/w created");
    assert_eq!(env.lines("ran"), Vec::<String>::new());
    assert!(env.states("").values().all(|state| state == "ready"));
    env.torc("run w").exits(0);
    assert_eq!(env.lines("ran").len(), 2);
}

// The owner of the store runs other workflows meanwhile.
#[test]
fn the_owner_of_a_folder_runs_no_stored_workflow() {
    let env = TestEnv::new();
    env.write("long.yaml", "name: long\njobs: [{name: hold, command: 'until test -e go; do sleep 0.05; done'}]\n");
    env.write("stored.yaml", tally("stored", &["a"]));
    env.write("wanted.yaml", tally("wanted", &["b"]));
    let owner = env.start("apply -f long.yaml --num-cpus 4");
    until(|| env.path(".torc/server.json").exists(), || "no owner".to_owned());
    env.torc("apply -f stored.yaml --no-run").exits(0).prints("workflow/stored created");
    // A workflow that is applied later has run, so the stored one would have run as well.
    env.torc("apply -f wanted.yaml").exits(0);
    assert_eq!(env.lines("ran"), ["b"]);
    assert_eq!(env.states("stored")["a"], "ready");
    env.torc("apply -f stored.yaml").exits(0);
    assert_eq!(env.lines("ran"), ["b", "a"]);
    env.write("go", "");
    owner.finish().exits(0);
}

#[test]
fn a_diff_shows_the_jobs_that_would_run_again() {
    let env = TestEnv::new();
    let text = |spec: &str| {
        format!("name: w\n{spec}jobs:\n  - {{name: a, command: 'true'}}\n  - {{name: b, command: exit 1}}\n")
    };
    env.write("w.yaml", text(""));
    env.torc("apply -f w.yaml").exits(3);
    env.write("w.yaml", text("run_id: 2\nrerun_policy: All\n"));
    let diff = env.torc("diff -f w.yaml").exits(9);
    for job in ["a", "b"] {
        let line = format!("  ~ {job} runs again: new run of the document\n");
        assert!(diff.stdout.contains(&line), "{}", diff.stdout);
    }
    env.write("w.yaml", text("run_id: 2\nrerun_policy: Failed\n"));
    let diff = env.torc("diff -f w.yaml").exits(9).stdout;
    assert!(!diff.contains("~ a runs") && diff.contains("~ b runs again"), "{diff}");
    env.torc("apply -f w.yaml").exits(3);
    assert_eq!(env.attempts("w").len(), 3, "a did not run again");
}

#[test]
fn a_dry_run_leaves_no_trace() {
    let env = TestEnv::new();
    env.write("w.yaml", tally("w", &["a"]));
    env.torc("apply -f w.yaml --dry-run").exits(0).prints("workflow/w created (dry run): 1 job added");
    assert!(!env.path(".torc").exists());
    // With a store, the output is the same.
    env.torc("apply -f w.yaml --no-run").exits(0);
    env.torc("delete w --yes").exits(0);
    env.torc("apply -f w.yaml --dry-run").exits(0).prints("workflow/w created (dry run): 1 job added");
}

#[test]
fn jobs_run_where_the_document_was_first_applied() {
    let env = TestEnv::new();
    env.write("w.yaml", "name: w\njobs: [{name: a, command: 'pwd > where'}]\n");
    env.torc("apply -f w.yaml --no-run").exits(0);
    env.write("below/file", "");
    env.call("run w").folder(env.path("below")).run().exits(0);
    assert_eq!(env.lines("where"), [env.folder().canonicalize().unwrap().to_string_lossy()]);
}

#[test]
fn a_background_server_exits_after_its_workflow() {
    let env = TestEnv::new();
    env.write("w.yaml", "name: w\njobs: [{name: a, command: 'until test -e go; do sleep 0.05; done'}]\n");
    env.torc("apply -f w.yaml --detach").exits(0).prints("running in the background");
    env.torc("wait workflow/w --for condition=Finished --timeout 0s").exits(8);
    eventually("the job runs", || (env.states("w")["a"] == "running").then_some(()));
    env.write("go", "");
    env.torc("wait workflow/w --for condition=Succeeded --timeout 1h").exits(0).prints("workflow/w condition met");
    assert_eq!(env.attempts("w"), ["a 1 completed"]);
    env.expect_nothing_left();
    assert!(!env.path(".torc/server.json").exists());
    assert_eq!(env.attempts("w"), ["a 1 completed"]);
}

#[test]
fn jobs_never_exceed_the_capacity() {
    let env = TestEnv::new();
    env.write(
        "w.yaml",
        "
name: packing
resource_requirements:
  - {name: small, num_cpus: 1, memory: 1m, runtime: PT1M}
  - {name: wide, num_cpus: 2, memory: 1m, runtime: PT1M}
parameters: {i: '1:8'}
jobs:
  - {name: 'small_{i}', command: 'echo +1 >> cpus; sleep 0.03; echo -1 >> cpus', resource_requirements: small, use_parameters: [i]}
  - {name: 'wide_{i}', command: 'echo +2 >> cpus; sleep 0.03; echo -2 >> cpus', resource_requirements: wide, use_parameters: [i]}
",
    );
    env.torc("apply -f w.yaml --num-cpus 3").exits(0);
    let lines = env.lines("cpus");
    assert_eq!(lines.len(), 32);
    // J06
    assert!(most_at_once(&lines) <= 3, "{lines:?}");
}

#[test]
fn a_job_without_requirements_takes_a_cpu_and_a_megabyte() {
    for flags in ["--num-cpus 2", "--num-cpus 99 --memory 2m"] {
        let env = TestEnv::new();
        env.write(
            "w.yaml",
            "
name: plain
parameters: {i: '1:10'}
jobs: [{name: 'job_{i}', command: 'echo +1 >> jobs; sleep 0.02; echo -1 >> jobs', use_parameters: [i]}]
",
        );
        env.torc(&format!("apply -f w.yaml {flags}")).exits(0);
        // J07
        assert!(most_at_once(&env.lines("jobs")) <= 2, "{flags}: {:?}", env.lines("jobs"));
    }
}

#[test]
fn a_hundred_jobs_by_cpus_and_by_their_requirements() {
    let requirements =
        "resource_requirements: [{name: work_resources, num_cpus: 32, memory: 200g, runtime: PT4H, num_nodes: 1}]";
    for (above, below, flags) in [
        ("", "", "--num-cpus 4"),
        (requirements, "resource_requirements: work_resources", "--num-cpus 128 --memory 800g"),
    ] {
        let env = TestEnv::new();
        env.write("my_script.sh", "echo +1 >> jobs; echo $1 >> ran; echo -1 >> jobs\n");
        env.write(
            "w.yaml",
            format!(
                "
name: work
{above}
parameters:
  i: '1:100'
jobs:
  - name: 'work_{{i}}'
    command: bash my_script.sh {{i}}
    use_parameters:
      - i
    {below}
"
            ),
        );
        env.torc(&format!("apply -f w.yaml {flags}")).exits(0);
        // J09
        let mut ran: Vec<u32> = env.lines("ran").iter().map(|line| line.parse().unwrap()).collect();
        ran.sort_unstable();
        assert_eq!(ran, (1..=100).collect::<Vec<_>>());
        assert!(most_at_once(&env.lines("jobs")) <= 4, "{flags}");
    }
}

#[test]
fn max_parallel_jobs_counts_jobs_and_not_resources() {
    let env = TestEnv::new();
    // The jobs end only if four of them run at the same time, although each one declares all CPUs.
    env.write(
        "w.yaml",
        "
name: depth
resource_requirements: [{name: all, num_cpus: 2, memory: 1m, runtime: PT1M}]
parameters: {i: '1:8'}
jobs:
  - name: 'job_{i}'
    command: 'echo +1 >> jobs; touch came_{i}; until test $(ls | grep -c came_) -ge 4; do sleep 0.02; done; echo -1 >> jobs'
    resource_requirements: all
    use_parameters: [i]
",
    );
    env.torc("apply -f w.yaml --num-cpus 2 --max-parallel-jobs 4").exits(0);
    // J08
    assert!(most_at_once(&env.lines("jobs")) == 4, "{:?}", env.lines("jobs"));
}

#[test]
fn a_job_that_never_fits_ends_the_command() {
    let env = TestEnv::new();
    env.write(
        "w.yaml",
        "
name: big
resource_requirements: [{name: huge, num_cpus: 64, memory: 1m, runtime: PT1M}]
jobs: [{name: a, command: 'true', resource_requirements: huge}, {name: b, command: 'true'}]
",
    );
    env.torc("apply -f w.yaml --num-cpus 1").exits(3).prints("a needs 64 CPUs (1 available)");
    assert_eq!(env.states("")["b"], "completed");
    assert_eq!(env.states("")["a"], "ready");
    env.expect_nothing_left();
}

#[test]
fn higher_priority_starts_first() {
    let env = TestEnv::new();
    env.write(
        "w.yaml",
        "
name: order
jobs:
  - {name: low, command: 'echo low >> ran', priority: 1}
  - {name: high, command: 'echo high >> ran', priority: 9}
  - {name: middle, command: 'echo middle >> ran', priority: 5}
",
    );
    env.torc("apply -f w.yaml --num-cpus 1").exits(0);
    assert_eq!(env.lines("ran"), ["high", "middle", "low"]);
}

#[test]
fn the_store_of_a_folder_above_is_found() {
    let env = TestEnv::new();
    env.write("w.yaml", tally("w", &["a"]));
    env.torc("apply -f w.yaml").exits(0);
    env.write("deep/down/file", "");
    let listed = env.call("get jobs -o json").folder(env.path("deep/down")).run().exits(0).json();
    assert_eq!(listed["items"][0]["name"], "a");
    let elsewhere = TestEnv::new();
    elsewhere.torc("get jobs").exits(5).prints("no store found");
    until(|| !elsewhere.path(".torc").exists(), || "a look made a store".to_owned());
}
