//! Workers over SSH, with a fake `ssh` that runs the command on this machine.

use nix::sys::signal::Signal;
use torc_tests::env::{Call, Server, TestEnv, binary, until};

use super::table::Cell;
use super::{Deviations, admin, served};

/// Calls with a worker that responds, an unreachable one, and one that refuses.
#[rustfmt::skip]
pub const CELLS: &[Cell] = &[
    Cell("remote run workers gate", 0),
    Cell("remote run gate", 0),
    Cell("remote status gate", 0),
    Cell("remote list-workers gate", 0),
    Cell("remote remove-worker gate localhost", 7),
    Cell("remote delete-logs gate -y", 7),
    Cell("remote stop gate --timeout 0s", 8),
    Cell("remote stop gate --force", 0),
    Cell("remote stop gate", 0),
    Cell("remote collect-logs gate", 0),
    Cell("remote delete-logs gate -y", 0),
    Cell("remote remove-worker gate localhost", 0),
    Cell("remote-agent", 0),
];

/// Calls with a worker that does not respond, and with one whose login fails.
const BROKEN: [(&str, &str, i32); 8] = [
    ("/nowhere/ssh", "remote run gate", 6),
    ("/nowhere/ssh", "remote status gate", 0),
    ("/nowhere/ssh", "remote stop gate", 6),
    ("/nowhere/ssh", "remote collect-logs gate", 6),
    ("/nowhere/ssh", "remote delete-logs gate -y", 6),
    ("false", "remote run gate", 7),
    ("false", "remote stop gate", 7),
    ("false", "remote collect-logs gate", 7),
];

/// A fake `ssh`: the last argument is the command line for the remote shell.
const SSH: &str = "for last; do :; done\nexec sh -c \"$last\"\n";

fn call(env: &TestEnv, server: &Server, ssh: &str, line: &str) -> Call {
    let call = admin(env, server, line).env("TORC_SSH", ssh);
    if line.starts_with("remote-agent") { call } else { call.arg("--remote-torc").arg(binary()) }
}

#[test]
fn each_outcome_with_workers_has_its_code() {
    let (env, server) = served();
    env.write("client/ssh.sh", SSH);
    env.write("client/workers", "localhost\n");
    env.write(
        "client/gate.yaml",
        "name: gate\njobs: [{name: a, command: 'trap \"\" TERM; echo on >> started; until test -e go; do sleep 0.05; done', labels: [worker]}]\n",
    );
    let ssh = format!("sh {}", env.text_path("client/ssh.sh"));
    let mut deviations = Deviations::default();
    admin(&env, &server, "apply -f gate.yaml").run().exits(0);
    for Cell(line, code) in CELLS {
        let mut made = call(&env, &server, &ssh, line);
        if line.starts_with("remote run") {
            made = made.arg("--label").arg("worker");
        }
        if *line == "remote-agent" {
            made = made.stdin(format!("{{\"request\": \"look\", \"folder\": {:?}}}", env.text_path("client")));
        }
        deviations.check(line, &made.run(), *code);
        if *line == "remote status gate" {
            until(|| env.lines("client/started").len() == 1, || "the worker has not started the job".to_owned());
        }
        if line.starts_with("remote stop gate --force") {
            for (program, line, code) in BROKEN {
                deviations.check(&format!("{program}: {line}"), &call(&env, &server, program, line).run(), code);
            }
        }
    }
    deviations.expect_none();
    server.process().signal(Signal::SIGTERM);
}

// J04
#[test]
fn later_commands_use_the_program_that_run_was_given() {
    let (env, server) = served();
    env.write("client/ssh.sh", SSH);
    env.write("client/workers", "localhost\n");
    env.write("client/w.yaml", "name: w\njobs: [{name: a, command: 'true', labels: [worker]}]\n");
    // The PATH of the login has no `torc`, so only the given path leads to it.
    let ssh = format!("env PATH=/usr/bin:/bin sh {}", env.text_path("client/ssh.sh"));
    let remote = |line: &str| admin(&env, &server, line).env("TORC_SSH", ssh.as_str());
    admin(&env, &server, "apply -f w.yaml").run().exits(0);
    remote("remote run workers w --label worker").arg("--remote-torc").arg(binary()).run().exits(0);
    let state = || {
        let statuses = remote("remote status w -o json").run().exits(0).json();
        statuses["items"][0]["state"].as_str().unwrap_or_default().to_owned()
    };
    until(|| state() == "stopped", state);
    for line in ["remote run w --label worker", "remote stop w", "remote collect-logs w", "remote delete-logs w -y"] {
        remote(line).run().exits(0);
    }
    let nothing = env.text_path("client/nothing");
    remote("remote status w -o json").arg("--remote-torc").arg(&nothing).run().exits(0).prints("unknown");
    server.process().signal(Signal::SIGTERM);
}
