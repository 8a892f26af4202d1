//! A server, its runners and its clients as separate processes, any of which may be killed.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use nix::sys::signal::Signal;
use torc_tests::env::{Running, Server, TestEnv, until};

const GATED: &str = "
name: gated
jobs:
  - {name: a, command: 'echo a >> ran; until test -e go; do sleep 0.02; done'}
  - {name: b, command: 'echo b >> ran', depends_on: [a]}
";

#[test]
fn a_server_a_runner_and_clients() {
    let env = TestEnv::new();
    let server = Server::start(&env);
    let token = env.path("data/lab.db.token");
    assert_eq!(fs::metadata(&token).unwrap().permissions().mode() & 0o777, 0o600);

    env.write(
        "client/w.yaml",
        "name: w\nparameters: {i: '1:20'}\njobs: [{name: 'j_{i}', command: 'echo {i} >> ran', use_parameters: [i]}]\n",
    );
    server.torc(&env, "apply -f w.yaml").exits(0).prints("workflow/w created: 20 jobs added");
    assert_eq!(env.lines("client/ran").len(), 0, "with a server, apply returns at once");
    server.torc(&env, "runner w").exits(0);
    server.torc(&env, "wait workflow/w --for condition=Succeeded --timeout 1m").exits(0);
    assert_eq!(env.lines("client/ran").len(), 20);
    assert_eq!(server.items(&env, "get results w").len(), 20);

    // The same with flags, and with the token instead of its file.
    let flags = format!("get jobs w --url {} --token-file {}", server.url, token.display());
    env.call(&flags).folder(env.path("client")).run().exits(0);
    let secret = fs::read_to_string(&token).unwrap();
    env.call(&format!("get jobs w --url {}", server.url)).env("TORC_TOKEN", secret.trim()).run().exits(0);
    server.stop();
    env.expect_nothing_left();
}

#[test]
fn apply_can_wait_and_run_starts_a_runner() {
    let env = TestEnv::new();
    let server = Server::start(&env);
    env.write("client/w.yaml", "name: w\njobs: [{name: a, command: 'true'}]\n");
    env.write("client/bad.yaml", "name: bad\njobs: [{name: a, command: 'false'}]\n");
    server.torc(&env, "run w.yaml").exits(0).prints("w: succeeded");
    server.torc(&env, "apply -f w.yaml --wait").exits(0).prints("unchanged");
    let runner = server.call(&env, "runner").start();
    server.torc(&env, "apply -f bad.yaml --wait").exits(3).prints("bad: failed");
    runner.signal(Signal::SIGTERM);
    runner.finish().exits(130);
    server.stop();
    env.expect_nothing_left();
}

#[test]
fn requests_without_a_token_are_refused() {
    let env = TestEnv::new();
    let server = Server::start(&env);
    env.write("client/w.yaml", "name: w\njobs: [{name: a, command: 'true'}]\n");
    env.write("wrong", "0000\n");
    for line in [
        "get workflows",
        "apply -f w.yaml",
        "delete w",
        "cancel w",
        "runner",
        "wait w",
        "get events -w",
        "gc --older-than 1d",
        "backup copy.db",
    ] {
        let plain = || env.call(&format!("{line} --url {}", server.url)).folder(env.path("client"));
        plain().run().exits(7);
        plain().arg("--token-file").arg(env.path("wrong")).run().exits(7);
        plain().env("TORC_TOKEN", "guess").run().exits(7);
    }
    assert_eq!(server.items(&env, "get workflows").len(), 0);
    let missing = env.call(&format!("get workflows --url {} --token-file none", server.url)).run();
    assert_eq!(missing.code, Some(5), "{missing:?}");
    server.stop();
}

#[test]
fn an_unreachable_server_is_reported() {
    let env = TestEnv::new();
    let server = Server::start(&env);
    let url = server.url.clone();
    server.torc(&env, "get jobs missing").exits(5).prints("missing");
    server.torc(&env, "describe workflow missing").exits(5);
    server.torc(&env, "runner missing").exits(5);
    server.stop();
    for line in ["get workflows", "wait w", "runner", "cancel w"] {
        env.call(&format!("{line} --url {url}")).env("TORC_TOKEN", "x").run().exits(6);
    }
    env.write("w.yaml", "name: w\njobs: [{name: a, command: 'true'}]\n");
    env.call(&format!("apply -f w.yaml --url {url}")).env("TORC_TOKEN", "x").run().exits(6);
    env.torc("get workflows --url nonsense").prints("nonsense");
}

#[test]
fn wait_ends_at_its_timeout_or_when_the_outcome_is_known() {
    let env = TestEnv::new();
    let server = Server::start(&env);
    env.write("client/w.yaml", GATED);
    env.write("client/bad.yaml", "name: bad\njobs: [{name: a, command: 'exit 3'}]\n");
    server.torc(&env, "apply -f w.yaml").exits(0);
    server.torc(&env, "wait workflow/gated --for condition=Finished --timeout 1s").exits(8);
    server.torc(&env, "wait gated --for condition=Happy").exits(2);
    server.torc(&env, "run bad.yaml").exits(3);
    server.torc(&env, "wait bad --for condition=Finished").exits(0);
    server.torc(&env, "wait bad --for condition=Succeeded").exits(3);
    let waiter = server.call(&env, "wait gated --for delete").start();
    server.torc(&env, "delete gated --yes").exits(0);
    waiter.finish().exits(0);
    server.stop();
}

#[test]
fn a_workflow_is_suspended_canceled_retried_and_resumed() {
    let env = TestEnv::new();
    let server = Server::start(&env);
    env.write("client/w.yaml", GATED);
    let runner = server.call(&env, "runner").start();
    server.torc(&env, "apply -f w.yaml").exits(0);
    until(|| server.state(&env, "gated", "a") == "running", || "a runs".to_owned());

    server.torc(&env, "suspend gated").exits(0).prints("workflow/gated suspended");
    server.torc(&env, "wait gated --for condition=Suspended --timeout 1m").exits(0);
    env.write("client/go", "");
    until(|| server.state(&env, "gated", "a") == "completed", || "running jobs go on".to_owned());
    server.torc(&env, "apply -f w.yaml").exits(0).prints("unchanged");
    assert_eq!(server.state(&env, "gated", "b"), "ready", "the next apply resumes no suspended workflow");
    server.torc(&env, "resume gated").exits(0);
    server.torc(&env, "wait gated --for condition=Succeeded --timeout 1m").exits(0);

    fs::remove_file(env.path("client/go")).unwrap();
    server.torc(&env, "retry gated --all").exits(0);
    until(|| env.lines("client/ran").len() == 3, || "a runs again".to_owned());
    until(|| server.state(&env, "gated", "a") == "running", || "a runs again".to_owned());
    server.torc(&env, "cancel gated").exits(0).prints("workflow/gated canceled");
    until(|| server.state(&env, "gated", "a") == "canceled", || format!("a is {}", server.state(&env, "gated", "a")));
    assert_eq!(server.state(&env, "gated", "b"), "canceled");
    server.torc(&env, "wait gated --for condition=Succeeded --timeout 1m").exits(3);

    env.write("client/go", "");
    server.torc(&env, "resume gated").exits(0);
    server.torc(&env, "retry gated").exits(0);
    server.torc(&env, "wait gated --for condition=Succeeded --timeout 1m").exits(0);
    assert_eq!(env.lines("client/ran"), ["a", "b", "a", "a", "b"]);

    runner.signal(Signal::SIGTERM);
    runner.finish().exits(130);
    server.stop();
    env.expect_nothing_left();
}

#[test]
fn deleting_a_workflow_ends_its_jobs() {
    let env = TestEnv::new();
    let server = Server::start(&env);
    env.write("client/w.yaml", "name: w\njobs: [{name: a, command: 'echo a >> ran; exec sleep 4711'}]\n");
    let runner = server.call(&env, "runner").start();
    server.torc(&env, "apply -f w.yaml").exits(0);
    let sleeping = || env.processes().iter().any(|process| process.command.contains("sleep 4711"));
    until(|| env.lines("client/ran").len() == 1 && sleeping(), || "the job runs".to_owned());
    server.torc(&env, "delete w --yes").exits(0);
    until(|| !sleeping(), || "the job of a deleted workflow still runs".to_owned());
    server.torc(&env, "get jobs w").exits(5);
    runner.signal(Signal::SIGTERM);
    runner.finish().exits(130);
    server.stop();
    env.expect_nothing_left();
}

/// The job ignores SIGTERM, so that the test sees both attempts.
#[test]
fn an_edit_stops_the_jobs_that_it_changes() {
    let env = TestEnv::new();
    let server = Server::start(&env);
    let runner = server.call(&env, "runner").start();
    let text = |end: &str| {
        format!(
            "
name: w
execution_config: {{sigterm_lead_seconds: 3600}}
jobs:
  - name: a
    command: |
      mkdir alive || touch two-alive
      trap 'touch signaled' TERM
      echo started >> ran
      until test -e {end}; do sleep 0.02; done
      rmdir alive
"
        )
    };
    let ran = || env.lines("client/ran").len();
    let job = |field: &str| server.items(&env, "get jobs w")[0][field].clone();
    env.write("client/w.yaml", text("first-may-end"));
    server.torc(&env, "apply -f w.yaml").exits(0);
    until(|| ran() == 1, || "the job does not run".to_owned());
    env.write("client/w.yaml", text("second-may-end"));
    server.torc(&env, "apply -f w.yaml").exits(0).prints("1 job changed");
    until(|| env.path("client/signaled").exists(), || "the attempt before the edit got no signal".to_owned());
    // The runner gets other jobs meanwhile, but not the changed one.
    env.write("client/v.yaml", "name: v\njobs: [{name: b, command: 'true'}]\n");
    server.torc(&env, "apply -f v.yaml").exits(0);
    server.torc(&env, "wait v --for condition=Succeeded --timeout 1h").exits(0);
    assert_eq!((ran(), job("status"), job("attempt")), (1, "blocked".into(), 2.into()));
    env.write("client/first-may-end", "");
    until(|| ran() == 2, || "the changed job does not run".to_owned());
    assert!(!env.path("client/two-alive").exists(), "two attempts were alive");
    let results = server.items(&env, "get results w");
    assert_eq!((results.len(), &results[0]["attempt"], &results[0]["status"]), (1, &1.into(), &"canceled".into()));
    env.write("client/w.yaml", "name: w\njobs: [{name: b, command: 'true'}]\n");
    fs::remove_file(env.path("client/signaled")).unwrap();
    server.torc(&env, "apply -f w.yaml").exits(0).prints("1 job added, 1 removed");
    server.torc(&env, "wait w --for condition=Succeeded --timeout 1h").exits(0);
    until(|| env.path("client/signaled").exists(), || "a removed job got no signal".to_owned());
    env.write("client/second-may-end", "");
    runner.signal(Signal::SIGTERM);
    runner.finish().exits(130);
    server.stop();
    env.expect_nothing_left();
}

#[test]
fn every_result_arrives_once_though_the_server_is_killed() {
    let env = TestEnv::new();
    let mut server = Server::start(&env);
    let address = server.address().to_owned();
    env.write(
        "client/w.yaml",
        "
name: w
parameters: {i: '1:60'}
jobs:
  - {name: 'first_{i}', command: 'echo first_{i} >> ran; sleep 0.03', use_parameters: [i]}
  - {name: 'second_{i}', command: 'echo second_{i} >> ran', use_parameters: [i], depends_on: ['first_{i}']}
",
    );
    server.torc(&env, "apply -f w.yaml").exits(0);
    let runners: Vec<Running> = (0..2).map(|_| server.call(&env, "runner w --num-cpus 2").start()).collect();
    for lines in [10, 40, 70] {
        until(|| env.lines("client/ran").len() >= lines, || format!("only {} jobs ran", env.lines("client/ran").len()));
        server.kill();
        server = Server::with_flags(&env, &format!("--bind {address}"));
    }
    server.torc(&env, "wait w --for condition=Succeeded --timeout 1h").exits(0);
    for runner in runners {
        runner.finish().exits(0);
    }
    let ran = env.lines("client/ran");
    assert_eq!((ran.len(), ran.iter().collect::<BTreeSet<_>>().len()), (120, 120), "a job ran twice");
    let results = server.items(&env, "get results w");
    assert_eq!(results.len(), 120);
    assert!(results.iter().all(|result| result["status"] == "completed" && result["attempt"] == 1));
    server.stop();
    env.expect_nothing_left();
}

#[test]
fn a_new_runner_adopts_the_jobs_of_a_killed_one() {
    let env = TestEnv::new();
    let server = Server::start(&env);
    env.write("client/w.yaml", GATED);
    server.torc(&env, "apply -f w.yaml").exits(0);
    let first = server.call(&env, "runner gated").start();
    until(|| env.lines("client/ran").len() == 1, || first.stderr());
    first.kill();
    let second = server.call(&env, "runner gated").start();
    env.write("client/go", "");
    second.finish().exits(0);
    assert_eq!(env.lines("client/ran"), ["a", "b"]);
    let results = server.items(&env, "get results gated");
    assert!(results.len() == 2 && results.iter().all(|result| result["attempt"] == 1), "{results:#?}");
    server.stop();
    env.expect_nothing_left();
}

#[test]
fn two_runners_never_get_the_same_job() {
    let env = TestEnv::new();
    let server = Server::start(&env);
    env.write(
        "client/w.yaml",
        "name: w\nparameters: {i: '1:200'}\njobs: [{name: 'j_{i}', command: 'echo {i} >> ran', use_parameters: [i]}]\n",
    );
    server.torc(&env, "apply -f w.yaml").exits(0);
    let runners: Vec<Running> = (0..3).map(|_| server.call(&env, "runner w --num-cpus 2").start()).collect();
    for runner in runners {
        runner.finish().exits(0);
    }
    let ran = env.lines("client/ran");
    assert_eq!((ran.len(), ran.iter().collect::<BTreeSet<_>>().len()), (200, 200));
    server.stop();
}

#[test]
fn a_watch_shows_each_event_once_and_in_order() {
    let env = TestEnv::new();
    let server = Server::start(&env);
    env.write("client/w.yaml", GATED);
    server.torc(&env, "apply -f w.yaml").exits(0);
    let watch = server.call(&env, "get events gated -w -o json").start();
    watch.prints("WorkflowCreated");
    let runner = server.call(&env, "runner gated").start();
    until(|| env.lines("client/ran").len() == 1, || runner.stderr());
    env.write("client/go", "");
    runner.finish().exits(0);
    watch.prints("WorkflowFinished");
    watch.signal(Signal::SIGINT);
    let seen = sequences(&watch.finish().exits(130).stdout);
    let all: Vec<i64> =
        server.items(&env, "get events gated").iter().map(|event| event["sequence"].as_i64().unwrap()).collect();
    assert_eq!(seen, all);
    server.stop();
}

#[test]
fn a_watch_continues_after_a_server_restart() {
    let env = TestEnv::new();
    let server = Server::start(&env);
    let bind = server.url.trim_start_matches("http://").to_owned();
    env.write("client/w.yaml", "name: first\njobs: [{name: a, command: 'true'}]\n");
    env.write("client/v.yaml", "name: second\njobs: [{name: a, command: 'true'}]\n");
    server.torc(&env, "apply -f w.yaml").exits(0);
    let watch = server.call(&env, "get events -w -o json").start();
    watch.prints("WorkflowCreated");
    server.stop();
    // In place of the server: it closes connections without an answer.
    std::net::TcpListener::bind(&bind).unwrap().incoming().take(10).for_each(drop);
    watch.prints("waiting for the server at");
    let server = Server::with_flags(&env, &format!("--bind {bind}"));
    watch.prints("connected");
    server.torc(&env, "apply -f v.yaml").exits(0);
    watch.prints("\"second\"");
    watch.signal(Signal::SIGINT);
    let watched = watch.finish().exits(130);
    let count = |text: &str| watched.stderr.matches(text).count();
    assert_eq!((count("waiting for the server"), count("connected")), (1, 1), "{}", watched.stderr);
    let seen = sequences(&watched.stdout);
    let all: Vec<i64> =
        server.items(&env, "get events").iter().map(|event| event["sequence"].as_i64().unwrap()).collect();
    assert_eq!(seen, all, "each once, from before and after");
    server.stop();
}

/// Returns the sequence numbers of a stream of JSON values.
fn sequences(text: &str) -> Vec<i64> {
    let mut numbers = Vec::new();
    for value in serde_json::Deserializer::from_str(text).into_iter::<serde_json::Value>() {
        let value = value.unwrap();
        let events = value["items"].as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
        numbers.extend(events.iter().map(|event| event["sequence"].as_i64().unwrap()));
    }
    numbers
}

#[test]
fn labels_and_capacity_select_the_runner() {
    let env = TestEnv::new();
    let server = Server::start(&env);
    env.write(
        "client/w.yaml",
        "
name: w
resource_requirements: [{name: wide, num_cpus: 3, memory: 1m, runtime: PT1M}]
jobs:
  - {name: special, command: 'true', labels: [fast]}
  - {name: wide, command: 'true', resource_requirements: wide}
  - {name: plain, command: 'true'}
",
    );
    server.torc(&env, "apply -f w.yaml").exits(0);
    // P07
    server.torc(&env, "runner --num-cpus 1 --idle-exit 1s").exits(0).prints("runner: idle");
    assert_eq!(server.state(&env, "w", "plain"), "completed");
    assert_eq!(
        (server.state(&env, "w", "special"), server.state(&env, "w", "wide")),
        ("ready".to_owned(), "ready".to_owned())
    );
    server.torc(&env, "runner --num-cpus 3 --label fast --label other --idle-exit 1s").exits(0);
    assert_eq!(server.state(&env, "w", "special"), "completed");
    assert_eq!(server.state(&env, "w", "wide"), "ready", "a labelled runner is for labelled jobs");
    server.torc(&env, "runner w --num-cpus 3").exits(0);
    server.torc(&env, "wait w --for condition=Succeeded --timeout 1m").exits(0);
    server.stop();
    env.expect_nothing_left();
}

#[test]
fn a_store_has_at_most_one_server() {
    let env = TestEnv::new();
    let server = Server::start(&env);
    env.torc("server --bind 127.0.0.1:0 --database data/lab.db").exits(7).prints("the store is in use by process");
    env.torc(&format!("server --bind {} --database data/other.db", server.address())).exits(7).prints("--bind");
    server.stop();
    let again = Server::start(&env);
    again.stop();
}

#[test]
fn a_server_can_run_jobs_itself() {
    let env = TestEnv::new();
    let server = env.start("server --bind 127.0.0.1:0 --with-runner");
    server.prints("token file: ");
    env.write("w.yaml", "name: w\njobs: [{name: a, command: echo hello}]\n");
    env.torc("apply -f w.yaml").exits(0).prints("w: succeeded");
    assert_eq!(env.torc("logs a").exits(0).stdout, "hello\n");
    server.signal(Signal::SIGTERM);
    server.finish().exits(0);
    env.expect_nothing_left();
}
