//! Actions, recovery scripts and leases that move to idle runners, with real processes.

use nix::sys::signal::Signal;
use serde_json::Value;
use torc_tests::env::{Server, TestEnv, eventually};

/// A workflow whose triggers and job write their names to `ran`.
const TRIGGERS: &str = "
name: staged
env: {WHO: ada}
jobs:
  - {name: first, command: echo first >> ran}
  - {name: second, command: echo second >> ran, depends_on: [first]}
actions:
  - {trigger_type: on_workflow_start, action_type: run_commands, commands: ['word=start', 'echo $word $WHO $TORC_RUN_ID >> ran']}
  - {trigger_type: on_worker_start, action_type: run_commands, commands: [echo worker start >> ran]}
  - {trigger_type: on_jobs_ready, action_type: run_commands, jobs: [second], commands: [echo second is ready]}
  - {trigger_type: on_jobs_complete, action_type: run_commands, job_name_regexes: ['^first$'], commands: [echo first is complete]}
  - {trigger_type: on_workflow_complete, action_type: run_commands, commands: [sleep 0.3, echo complete >> ran]}
  - {trigger_type: on_worker_complete, action_type: run_commands, commands: [echo worker complete >> ran]}
";

fn actions(env: &TestEnv) -> Vec<Value> {
    env.items("get actions")
}

// J11, J12, J15, J19
#[test]
fn each_of_the_six_triggers_runs_its_commands() {
    let env = TestEnv::new();
    env.write("staged.yaml", TRIGGERS);
    env.torc("apply -f staged.yaml").exits(0);
    env.expect_nothing_left();
    let ran = env.lines("ran");
    assert_eq!(ran, ["start ada 1", "worker start", "first", "second", "complete", "worker complete"]);
    let actions = actions(&env);
    assert_eq!(actions.len(), 8, "six, and those of the worker for two: {actions:#?}");
    for action in actions.iter().filter(|action| action.get("everyWorker").is_none()) {
        assert_eq!(action["status"], "executed", "{action:#}");
    }
    let ready = actions.iter().find(|action| action["triggerType"] == "on_jobs_ready").unwrap();
    let log = format!("torc_output/job_stdio/action_wf1_n{}_r1_a1.o", ready["id"]);
    assert_eq!(ready["stdout"], env.text_path(&log));
    assert_eq!(env.lines(&log), ["second is ready"]);
    env.torc("describe workflow").exits(0).prints("on_worker_complete");
    env.torc("workflows list-actions").exits(0).prints("each worker");
}

#[test]
fn a_failing_action_is_tried_three_times() {
    let env = TestEnv::new();
    env.write(
        "w.yaml",
        "
name: w
jobs: [{name: a, command: echo a >> ran}]
actions:
  - {trigger_type: on_workflow_start, action_type: run_commands, commands: [echo try >> ran, 'false', echo never >> ran]}
",
    );
    // A failed action does not fail the workflow.
    env.torc("apply -f w.yaml")
        .exits(0)
        .prints("action 2 (on_workflow_start) failed after 3 tries, exit code 1")
        .prints("torc get actions w");
    assert_eq!(env.lines("ran"), ["try", "try", "try", "a"]);
    let action = actions(&env).remove(0);
    assert_eq!((&action["status"], &action["tries"]), (&"failed".into(), &3.into()));
    env.torc("describe workflow").exits(0).prints("failed after 3 tries, exit code 1");
    let reasons: Vec<String> =
        env.items("get events w").iter().map(|event| event["reason"].as_str().unwrap().to_owned()).collect();
    assert_eq!(reasons.iter().filter(|reason| *reason == "ActionRetried").count(), 2);
    assert_eq!(reasons.iter().filter(|reason| *reason == "ActionFailed").count(), 1);
}

// J15
#[test]
fn a_killed_final_action_is_repeated_by_the_next_apply() {
    let env = TestEnv::new();
    env.write(
        "w.yaml",
        "
name: w
jobs: [{name: a, command: 'true'}]
actions:
  - {trigger_type: on_workflow_complete, action_type: run_commands, commands: ['echo begun >> ran; test -e go || exec sleep 600']}
",
    );
    let apply = env.start("apply -f w.yaml");
    eventually("the last commands run", || (!env.lines("ran").is_empty()).then_some(()));
    apply.kill();
    env.kill_all("shim");
    env.write("go", "");
    env.torc("apply -f w.yaml").exits(0);
    assert!(env.lines("ran").len() >= 2, "at least once: {:?}", env.lines("ran"));
    assert_eq!(actions(&env)[0]["status"], "executed");
}

// J15
#[test]
fn an_interrupted_final_action_is_run_by_the_next_apply() {
    let env = TestEnv::new();
    env.write(
        "w.yaml",
        "
name: w
jobs: [{name: a, command: echo a >> ran}]
actions:
  - {trigger_type: on_workflow_complete, action_type: run_commands, commands: ['echo begun >> ran; test -e go || exec sleep 600']}
",
    );
    let apply = env.start("apply -f w.yaml");
    eventually("the last commands run", || (env.lines("ran").len() == 2).then_some(()));
    apply.signal(Signal::SIGINT);
    apply.finish().exits(130);
    assert_eq!(actions(&env)[0]["status"], "pending");
    env.write("go", "");
    env.torc("apply -f w.yaml").exits(0);
    assert_eq!(env.lines("ran"), ["a", "begun", "begun"], "the job has not run again");
    assert_eq!(actions(&env)[0]["status"], "executed");
    env.torc("apply -f w.yaml").exits(0);
    assert_eq!(env.lines("ran").len(), 3, "no action is pending");
    env.expect_nothing_left();
}

#[test]
fn a_recovery_script_runs_before_the_next_attempt() {
    let env = TestEnv::new();
    env.write(
        "w.yaml",
        "
name: w
jobs:
  - {name: a, command: 'echo attempt $TORC_ATTEMPT_ID >> ran; test -e mended || exit 7', failure_handler: mend}
  - {name: b, command: echo b >> ran, depends_on: [a]}
  - {name: c, command: exit 8, failure_handler: mend}
failure_handlers:
  - name: mend
    rules:
      - {exit_codes: [7], max_retries: 2, recovery_script: 'sleep 0.2; echo mend $TORC_JOB_NAME $TORC_ATTEMPT_ID $TORC_RETURN_CODE >> ran; touch mended'}
      - {exit_codes: [8], recovery_script: 'echo beyond repair >&2; exit 1'}
",
    );
    env.torc("apply -f w.yaml").exits(3);
    assert_eq!(env.lines("ran"), ["attempt 1", "mend a 1 7", "attempt 2", "b"]);
    assert_eq!(env.lines("torc_output/job_stdio/recovery_wf1_j3_r1_a1.e"), ["beyond repair"]);
    let states = env.states("w");
    assert_eq!(
        (states["a"].as_str(), states["b"].as_str(), states["c"].as_str()),
        ("completed", "completed", "failed")
    );
    assert_eq!(env.items("get results --job a").len(), 2, "a row for each attempt");
    let events = env.items("get events w");
    let failed = events.iter().find(|event| event["reason"] == "RecoveryFailed").unwrap();
    assert!(failed["message"].as_str().unwrap().contains("job 'c' ended with exit code 1"), "{failed:#}");
    env.expect_nothing_left();
}

/// Leases that wait in a busy runner move to an idle one. No job runs twice.
#[test]
fn an_idle_runner_gets_leases_of_another_runner() {
    let env = TestEnv::new();
    let server = Server::start(&env);
    let call = |line: &str, folder: &str| server.call_in(&env, folder, line);
    // After short jobs the runner leases ahead, and then holds all remaining jobs.
    let gate = env.text_path("go");
    let ran = env.text_path("ran");
    env.write(
        "client/w.yaml",
        format!(
            "
name: w
prefetch: {{horizon_seconds: 600}}
parameters: {{i: '1:30'}}
jobs:
  - {{name: 'quick{{i}}', command: 'true', priority: 1, use_parameters: [i]}}
  - {{name: 'slow{{i}}', command: 'echo {{i}} $TORC_OUTPUT_DIR >> {ran}; until [ -e {gate} ]; do sleep 0.05; done', use_parameters: [i]}}
"
        ),
    );
    call("apply -f w.yaml", "client").run().exits(0);
    let first = call("runner w --num-cpus 2", "one").start();
    eventually("the first runner holds all that is left", || {
        let runners = call("get runners -o json", "client").run().exits(0).json();
        let runner = runners["items"].as_array()?.first()?.clone();
        (runner["running"] == 2 && runner["queued"] == 28).then_some(())
    });
    let second = call("runner w --num-cpus 2", "two").start();
    let second_place = env.text_path("two");
    eventually("the second runner has work although nothing has ended", || {
        (env.lines("ran").iter().filter(|line| line.contains(&second_place)).count() == 2).then_some(())
    });
    env.write("go", "");
    first.finish().exits(0);
    second.finish().exits(0);
    let mut jobs: Vec<String> =
        env.lines("ran").iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect();
    assert_eq!(jobs.len(), 30, "everything ran once");
    jobs.sort();
    jobs.dedup();
    assert_eq!(jobs.len(), 30);
    server.stop();
}
