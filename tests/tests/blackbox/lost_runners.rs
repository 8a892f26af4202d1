//! Jobs whose runner was killed: found with a server, without one, and after the server was killed.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};
use torc_api::wire::PROTOCOL;
use torc_tests::env::{Running, Server, TestEnv, text, until};

const DOCUMENT: &str = "name: w
recovery: {policy: Never}
jobs:
- {name: a, command: 'echo $TORC_ATTEMPT_ID >> started; until test -e go; do sleep 0.05; done'}
";

fn new_env() -> TestEnv {
    let env = TestEnv::new();
    env.write("w.yaml", DOCUMENT);
    env
}

/// Waits until the job runs and has written its first line.
fn until_running(env: &TestEnv) {
    until(|| env.lines("started").len() == 1, || "the job has not begun".to_owned());
    until(|| env.states("w")["a"] == "running", || format!("{:?}", env.states("w")));
}

/// Kills the processes whose command lines contain one of these texts, and waits until they have exited.
fn end(env: &TestEnv, texts: &[&str]) {
    let found = || texts.iter().map(|text| env.kill_all(text)).sum::<usize>();
    until(|| found() == 0, || format!("{texts:?} do not end: {:#?}", env.processes()));
}

/// Leaves a running job whose runner, shim and store owner were killed.
fn interrupted(env: &TestEnv) {
    let owner = env.start("run w.yaml");
    until_running(env);
    owner.kill();
}

/// Starts a server of the folder's store, and a runner with a running job.
fn served(env: &TestEnv) -> (Server, Running) {
    let server = Server::from_call(env, env.call("server -o json --bind 127.0.0.1:0"));
    env.torc("apply -f w.yaml --no-run").exits(0);
    let runner = env.start("runner w --num-cpus 1");
    until_running(env);
    (server, runner)
}

fn reason(report: &Value) -> String {
    text(&report["unreachable"][0], "reason")
}

// R03, R04
#[test]
fn recover_retries_a_job_after_runner_and_shim_were_killed() {
    let env = new_env();
    interrupted(&env);
    end(&env, &[" shim "]);
    let would = env.json("workflows sync-status w --dry-run");
    assert_eq!((reason(&would), &env.states("w")["a"]), ("JobsRun".to_owned(), &"running".to_owned()), "{would:#}");
    assert!(!env.processes().is_empty(), "a dry run ends no process");
    env.torc("recover w")
        .exits(0)
        .prints("job a of w was lost")
        .prints("1 job reset to ready")
        .prints("run them with: torc run w");
    // Two attempts never run at the same time.
    env.expect_nothing_left();
    env.write("go", "");
    env.torc("run w").exits(0);
    assert_eq!(env.attempts("w"), ["a 1 failed", "a 2 completed"]);
    assert_eq!(env.lines("started"), ["1", "2"]);
}

// R03, R05
#[test]
fn a_job_is_not_lost_while_its_shim_lives() {
    let env = new_env();
    interrupted(&env);
    env.torc("workflows sync-status w").exits(0).prints("the process that holds it still runs");
    env.torc("recover w").exits(7).prints("1 job still running").prints("job a of w may still run on runner 1");
    env.torc("recover w --assume-lost 1").exits(7).prints("is not lost");
    assert_eq!(env.states("w")["a"], "running");
    env.write("go", "");
    env.torc("run w").exits(0);
    assert_eq!(env.attempts("w"), ["a 1 completed"]);
}

// R03, R05. The lease of the runner has two minutes left.
#[test]
fn a_served_store_loses_a_killed_runner_at_once() {
    let env = new_env();
    let (server, runner) = served(&env);
    runner.kill();
    end(&env, &[" shim ", "until test -e go"]);
    let found = env.json("workflows sync-status w");
    assert_eq!((text(&found["jobs"][0], "job"), &found["runners"]), ("a".to_owned(), &json!([1])), "{found:#}");
    assert_eq!(env.states("w")["a"], "failed");
    env.torc("workflows sync-status w").exits(0).prints("nothing was lost");
    server.stop();
}

// R03, R05
#[test]
fn a_killed_runner_of_a_dead_server_is_lost() {
    for is_killed in [true, false] {
        let env = new_env();
        let (mut server, runner) = served(&env);
        if is_killed {
            server.kill();
        } else {
            server.stop();
        }
        runner.kill();
        end(&env, &[" shim ", "until test -e go"]);
        assert_eq!(text(&env.json("workflows sync-status w")["jobs"][0], "job"), "a");
        assert_eq!(env.states("w")["a"], "failed");
    }
}

// R03, R06
#[test]
fn watch_finds_a_lost_runner_of_an_unserved_store() {
    let env = new_env();
    interrupted(&env);
    end(&env, &[" shim ", "until test -e go"]);
    let outcome = env.torc("watch w -p 1").exits(3);
    outcome
        .prints("no torc process serves this store")
        .prints("continue with: torc run w")
        .prints("job a of w was lost");
}

/// Sends a POST request and returns the response as JSON.
fn post(env: &TestEnv, server: &Server, path: &str, body: &Value) -> Value {
    let token = std::fs::read_to_string(env.path(".torc/token")).unwrap();
    let token = token.trim().split('~').next().unwrap().to_owned();
    let body = body.to_string();
    let mut stream = TcpStream::connect(server.address()).unwrap();
    let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n");
    let length = body.len();
    write!(stream, "{head}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
    // A response this small has one chunk at most.
    serde_json::from_str(&body[body.find('{').unwrap()..=body.rfind('}').unwrap()]).unwrap()
}

// R03, R04. A runner of another machine, of which only its reports are known.
#[test]
fn the_user_declares_a_runner_of_another_machine_lost() {
    let env = new_env();
    let mut server = Server::from_call(&env, env.call("server -o json --bind 127.0.0.1:0"));
    env.torc("apply -f w.yaml --no-run").exits(0);
    let capacity = json!({ "cpus": 1, "memoryBytes": 1_u64 << 30, "gpus": 0, "nodes": 1 });
    let register = json!({ "protocol": PROTOCOL, "version": "1", "host": "far", "pid": 7, "capacity": capacity });
    let runner = post(&env, &server, "/v1/runners", &register)["runner"].clone();
    let path = format!("/v1/runners/{runner}/sync");
    let ask = json!({ "sequence": 1, "acknowledged": 0, "want": { "free": capacity, "ahead": 0, "limit": 1 } });
    let lease = post(&env, &server, &path, &ask)["leases"][0].clone();
    let running = json!([{ "key": lease["key"], "elapsedMs": 1 }]);
    post(&env, &server, &path, &json!({ "sequence": 2, "acknowledged": 1, "running": running, "leaving": false }));
    env.torc("recover w --assume-lost 1").exits(7).prints("it reports to this server");
    server.kill();
    let hint = "if runner 1 is gone: torc recover w --assume-lost 1";
    env.torc("recover w").exits(7).prints("on runner 1 (process 7 on far)").prints(hint);
    env.torc("workflows sync-status w").exits(0).prints("torc workflows sync-status w --assume-lost 1");
    env.torc("recover w --assume-lost 9").exits(5).prints("runner 9");
    env.torc("recover w --assume-lost 1").exits(0).prints("job a of w was lost").prints("1 job reset to ready");
    assert_eq!(env.attempts("w"), ["a 1 failed"]);
}
