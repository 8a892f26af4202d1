//! Ctrl-C and SIGTERM: 130 for a stopped command, 0 for a stopped server.

use std::fs;

use nix::sys::signal::Signal;
use torc_tests::env::{Running, Server, TestEnv, eventually, until};

use super::table::INTERRUPTED;
use super::{DEAD_URL, Deviations, admin, call_in, served, with_files, without_slurm};

/// Waits until a process handles both signals. Before that they would kill it.
pub fn until_it_listens(running: &mut Running) {
    let wanted = (1_u64 << (Signal::SIGINT as u32 - 1)) | (1 << (Signal::SIGTERM as u32 - 1));
    let caught = |pid: i32| -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"))?;
        u64::from_str_radix(mask.trim(), 16).ok()
    };
    let listens = |running: &mut Running| {
        running.has_ended() || caught(running.pid()).is_some_and(|mask| mask & wanted == wanted)
    };
    until(|| listens(running), || "the command does not listen for signals".to_owned());
}

/// Starts a server with a workflow that waits for ever, one whose job runs, and one for Slurm.
fn busy() -> (TestEnv, Server) {
    let (env, server) = served();
    env.write("client/gate.txt", "until test -e go; do sleep 0.05; done\n");
    for file in ["held.yaml", "gate.yaml", "slurm.yaml"] {
        admin(&env, &server, &format!("apply -f {file}")).run().exits(0);
    }
    eventually("the job runs", || (env.lines("client/started").len() == 1).then_some(()));
    (env, server)
}

#[test]
fn a_command_stopped_by_a_signal_exits_with_130() {
    let (env, server) = busy();
    let mut deviations = Deviations::default();
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let start = |line: &&'static str| (*line, admin(&env, &server, line).start());
        let mut started: Vec<(&str, Running)> = INTERRUPTED.iter().map(start).collect();
        for (line, running) in &mut started {
            until_it_listens(running);
            assert!(!running.has_ended(), "`{line}` ended by itself:\n{}{}", running.stdout(), running.stderr());
            running.signal(signal);
        }
        for (line, running) in started {
            deviations.check(&format!("{line} ({signal})"), &running.finish(), 130);
        }
    }
    deviations.expect_none();
    // Stopped followers do not change the workflows.
    assert_eq!(server.state(&env, "gate", "a"), "running");
    assert_eq!(server.state(&env, "held", "a"), "ready");
}

#[test]
fn a_persistent_runner_waits_for_its_server() {
    let env = TestEnv::new();
    let waiting = env.call("runner --persistent").env("TORC_API_URL", DEAD_URL).start();
    waiting.prints("retrying");
    waiting.signal(Signal::SIGTERM);
    waiting.finish().exits(130);
}

#[test]
fn a_command_that_runs_jobs_exits_with_130_when_stopped() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let env = TestEnv::new();
        with_files(&env, "local");
        env.write("local/gate.txt", "echo on >> started; until test -e go; do sleep 0.05; done\n");
        for (count, line) in [(1, "apply -f gate.yaml"), (2, "run gate"), (3, "exec -C gate.txt"), (4, "run gate.yaml")]
        {
            let running = call_in(&env, "local", line).start();
            until(|| env.lines("local/started").len() == count, || format!("`{line}` has not started its job"));
            running.signal(signal);
            running.finish().exits(130);
        }
    }
}

#[test]
fn a_follower_of_a_server_in_the_background_exits_with_130() {
    for (signal, line) in
        [(Signal::SIGINT, "apply -f gate.yaml --detach --wait"), (Signal::SIGTERM, "submit slurm.yaml --wait")]
    {
        let env = TestEnv::new();
        with_files(&env, "local");
        let mut running = call_in(&env, "local", line).start();
        running.prints("running in the background");
        until_it_listens(&mut running);
        running.signal(signal);
        running.finish().exits(130).prints("stopped following; the server still runs the workflows");
    }
}

#[test]
fn a_stopped_server_exits_with_0() {
    let env = TestEnv::new();
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        for flags in ["", "--with-runner"] {
            let line = format!("server --database data/{signal}{flags}.db -o json --bind 127.0.0.1:0 {flags}");
            let server = Server::from_call(&env, without_slurm(env.call(&line)));
            server.end_with(signal);
        }
    }
}
