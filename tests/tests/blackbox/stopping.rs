//! Ctrl-C and SIGTERM, and two `torc` processes in one folder.

use nix::sys::signal::Signal;
use torc_tests::env::{Running, TestEnv, eventually, until};

/// Two jobs that end when a file `go` exists, and one that depends on both. All log their starts.
const GATED: &str = "
name: gated
jobs:
  - {name: a, command: 'echo a >> started; until test -e go; do sleep 0.02; done'}
  - {name: b, command: 'echo b >> started; until test -e go; do sleep 0.02; done'}
  - {name: after, command: 'echo after >> started', depends_on: [a, b]}
";

fn started(env: &TestEnv, count: usize) {
    until(|| env.lines("started").len() >= count, || format!("started so far: {:?}", env.lines("started")));
}

fn gated(env: &TestEnv) -> Running {
    env.write("w.yaml", GATED);
    let first = env.start("apply -f w.yaml --num-cpus 2");
    started(env, 2);
    first
}

#[test]
fn one_interrupt_releases_jobs_and_the_next_apply_runs_them() {
    let env = TestEnv::new();
    let first = gated(&env);
    first.signal(Signal::SIGINT);
    first.finish().exits(130).prints("run the same command again to continue");
    env.expect_nothing_left();
    assert_eq!(env.states("")["a"], "ready");
    assert_eq!(env.states("")["after"], "blocked");
    let stopped = env.items("get results");
    assert_eq!(stopped.len(), 2);
    assert!(
        stopped.iter().all(|result| result["cause"] == "Stopped" && result["status"] == "terminated"),
        "{stopped:#?}"
    );

    env.write("go", "");
    env.torc("apply -f w.yaml").exits(0).prints("workflow/gated unchanged");
    let expected = ["a 1 terminated", "a 2 completed", "after 1 completed", "b 1 terminated", "b 2 completed"];
    assert_eq!(env.attempts(""), expected);
}

#[test]
fn sigterm_stops_like_an_interrupt() {
    let env = TestEnv::new();
    let first = gated(&env);
    first.signal(Signal::SIGTERM);
    first.finish().exits(130);
    env.expect_nothing_left();
    assert_eq!(env.states("")["a"], "ready");
    let second = env.start("run gated --num-cpus 2");
    started(&env, 4);
    second.signal(Signal::SIGTERM);
    second.finish().exits(130);
    env.expect_nothing_left();
    assert_eq!(env.states("")["a"], "ready");
}

#[test]
fn a_runner_is_listed_with_its_own_process() {
    let env = TestEnv::new();
    let torc = gated(&env);
    let pids: Vec<i64> = env.items("get runners").iter().map(|runner| runner["pid"].as_i64().unwrap()).collect();
    assert_eq!(pids, [i64::from(torc.pid())]);
    env.write("go", "");
    torc.finish().exits(0);
}

#[test]
fn a_second_interrupt_kills_jobs_at_once() {
    let env = TestEnv::new();
    env.write(
        "w.yaml",
        "
name: stubborn
jobs: [{name: a, command: 'trap \"\" TERM INT; echo a >> started; (trap \"\" TERM INT; while :; do sleep 0.02; done) & while :; do sleep 0.02; done'}]
",
    );
    let first = env.start("apply -f w.yaml");
    started(&env, 1);
    first.signal(Signal::SIGINT);
    first.prints("press Ctrl-C again to kill them");
    first.signal(Signal::SIGINT);
    first.finish().exits(130);
    env.expect_nothing_left();
    assert_eq!(env.states("")["a"], "ready");
}

#[test]
fn a_second_torc_follows_the_first() {
    let env = TestEnv::new();
    let first = gated(&env);
    let second = env.start("apply -f w.yaml");
    second.prints("already runs this store: following it");
    assert_eq!(env.states("")["a"], "running");
    env.write("go", "");
    first.finish().exits(0);
    second.finish().exits(0).prints("gated: succeeded");
    assert_eq!(env.attempts(""), ["a 1 completed", "after 1 completed", "b 1 completed"]);
    env.expect_nothing_left();
}

#[test]
fn interrupting_a_follower_ends_no_job() {
    let env = TestEnv::new();
    let first = gated(&env);
    let second = env.start("apply -f w.yaml");
    second.prints("already runs this store: following it");
    second.prints("workflow/gated unchanged");
    second.signal(Signal::SIGINT);
    second.finish().exits(130).prints("the other process still runs the jobs");
    env.write("go", "");
    first.finish().exits(0);
    assert_eq!(env.lines("started").len(), 3);
}

#[test]
fn a_follower_takes_over_from_a_killed_owner() {
    let env = TestEnv::new();
    let first = gated(&env);
    let second = env.start("apply -f w.yaml --num-cpus 2");
    second.prints("workflow/gated unchanged");
    first.kill();
    second.prints("taking over");
    env.write("go", "");
    second.finish().exits(0);
    assert_eq!(env.attempts(""), ["a 1 completed", "after 1 completed", "b 1 completed"]);
    assert_eq!(env.lines("started").len(), 3, "jobs were taken over, not started again");
    env.expect_nothing_left();
}

#[test]
fn a_follower_takes_over_from_a_stopped_owner() {
    let env = TestEnv::new();
    let first = gated(&env);
    let second = env.start("apply -f w.yaml --num-cpus 2");
    second.prints("workflow/gated unchanged");
    first.signal(Signal::SIGINT);
    first.finish().exits(130);
    second.prints("taking over");
    env.write("go", "");
    second.finish().exits(0);
    let expected = ["a 1 terminated", "a 2 completed", "after 1 completed", "b 1 terminated", "b 2 completed"];
    assert_eq!(env.attempts(""), expected);
    env.expect_nothing_left();
}

#[test]
fn the_owner_also_runs_a_second_workflow() {
    let env = TestEnv::new();
    env.write("short.yaml", "name: short\njobs: [{name: s, command: 'echo s >> started'}]\n");
    let first = gated(&env);
    env.torc("apply -f short.yaml --no-run").exits(0);
    env.write(
        "long.yaml",
        "name: long\njobs: [{name: l, command: 'echo l >> started; until test -e end; do sleep 0.02; done'}]\n",
    );
    let second = env.start("apply -f long.yaml");
    second.prints("workflow/long created");
    env.write("go", "");
    first.finish().exits(0);
    // The first workflow is done, and its owner now runs the second one.
    eventually("the second workflow runs", || env.lines("started").contains(&"l".to_owned()).then_some(()));
    env.write("end", "");
    second.finish().exits(0);
    assert_eq!(env.attempts("long"), ["l 1 completed"]);
    env.expect_nothing_left();
}

#[test]
fn background_processes_of_a_job_are_ended() {
    let env = TestEnv::new();
    env.write(
        "w.yaml",
        "
name: w
jobs:
  - {name: child, command: 'sleep 600 & echo now'}
  - {name: daemon, command: 'setsid sh -c \"sleep 600 & sleep 600\" & echo now'}
  - {name: nohup, command: 'nohup sleep 600 > /dev/null 2>&1 & echo now'}
",
    );
    env.torc("apply -f w.yaml").exits(0);
    env.expect_nothing_left();
    assert_eq!(env.torc("logs child").exits(0).stdout, "now\n");
}

#[test]
fn a_watch_continues_with_the_next_owner() {
    let env = TestEnv::new();
    let first = gated(&env);
    let watch = env.start("get events -w -o json");
    watch.prints("WorkflowCreated");
    first.kill();
    env.write("go", "");
    env.torc("apply -f w.yaml").exits(0);
    let all = env.items("get events");
    let last = all.last().expect("events")["sequence"].clone();
    // The owner may exit before the watch has received all events; the next owner sends the rest.
    let server = env.start("server --bind 127.0.0.1:0");
    server.prints("serving");
    watch.prints(&format!("\"sequence\":{last}"));
    watch.signal(Signal::SIGINT);
    let text = watch.finish().exits(130).stdout;
    let mut seen = Vec::new();
    for value in serde_json::Deserializer::from_str(&text).into_iter::<serde_json::Value>() {
        let value = value.unwrap();
        let events = value["items"].as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
        seen.extend(events.iter().map(|event| event["sequence"].as_i64().unwrap()));
    }
    let expected: Vec<i64> = all.iter().map(|event| event["sequence"].as_i64().unwrap()).collect();
    seen.truncate(expected.len());
    assert_eq!(seen, expected, "each event once and in order");
    server.signal(Signal::SIGTERM);
    server.finish().exits(0);
    env.expect_nothing_left();
}

#[test]
fn a_watch_without_an_owner_waits_for_one() {
    let env = TestEnv::new();
    env.write("one.yaml", "name: one\njobs: [{name: a, command: 'true'}]\n");
    env.write("two.yaml", "name: two\njobs: [{name: b, command: 'true'}]\n");
    env.torc("apply -f one.yaml").exits(0);
    let watch = env.start("get workflows -w");
    watch.prints("no torc process serves this store; waiting for one");
    assert!(watch.stdout().contains("one"), "{}", watch.stdout());
    // The next owner may exit before the watch has connected to it.
    env.torc("apply -f two.yaml").exits(0);
    until(
        || watch.stdout().lines().any(|line| line.starts_with("two") && line.contains("Succeeded")),
        || format!("{}{}", watch.stdout(), watch.stderr()),
    );
    watch.signal(Signal::SIGINT);
    watch.finish().exits(130);
}
