//! Jobs that misbehave: they are ended with all of their processes, and the next job can run.

use std::fs;

use nix::sys::signal::Signal;
use torc_tests::env::{TestEnv, until};

/// Runs a job and then a harmless one, and asserts that no process of either survives.
fn survives(command: &str, code: i32, state: &str) -> TestEnv {
    let env = TestEnv::new();
    env.write("job.sh", command);
    // Processes of the job are gone before the next job starts, not only when the runner exits.
    env.write(
        "next.sh",
        "for pid in $(cat daemon 2>/dev/null); do kill -0 $pid 2>/dev/null && exit 1; done; echo fine\n",
    );
    env.write(
        "w.yaml",
        "name: w\nexecution_config: {mode: direct, sigterm_lead_seconds: 1}\njobs:\n\
         - {name: nasty, command: bash job.sh}\n\
         - {name: next, command: bash next.sh, depends_on: [nasty], cancel_on_blocking_job_failure: false}\n",
    );
    env.torc("apply -f w.yaml --num-cpus 1").exits(code);
    assert_eq!(env.states("w")["nasty"], state);
    assert_eq!(env.states("w")["next"], "completed");
    env.expect_nothing_left();
    env
}

// J23
#[test]
fn a_daemon_that_forked_twice_ends_with_its_job() {
    // The daemon has its own session and its parent exits at once, so the process tree does not link it to the job.
    let env = survives(
        "setsid bash -c '(echo $BASHPID > daemon.new; mv daemon.new daemon; exec sleep 1000) & exit 0'\n\
         until [ -e daemon ]; do sleep 0.01; done\n",
        0,
        "completed",
    );
    let daemon: i32 = env.lines("daemon")[0].parse().unwrap();
    assert!(!std::path::Path::new(&format!("/proc/{daemon}")).exists(), "the daemon lives");
}

#[test]
fn a_child_that_keeps_the_output_open_does_not_delay_the_job() {
    let env = survives("echo done\nsleep 1000 &\nexit 0\n", 0, "completed");
    assert_eq!(env.torc("logs nasty").exits(0).stdout, "done\n");
}

#[test]
fn large_output_uses_the_disk_and_not_memory() {
    let env = TestEnv::new();
    env.write(
        "w.yaml",
        "name: w\njobs: [{name: loud, command: 'head -c 1000000000 /dev/zero; echo > done; sleep 600'}]\n",
    );
    let torc = env.start("apply -f w.yaml");
    until(|| env.path("done").exists(), || torc.stderr());
    let memory = |pid: i32| -> u64 {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0 kB");
        line.split_whitespace().next().unwrap().parse().unwrap()
    };
    let own: Vec<_> = env.processes().into_iter().filter(|process| process.command.contains("torc")).collect();
    assert!(own.len() >= 2, "the command and its shim: {own:?}");
    for process in own {
        let kibibytes = memory(process.pid);
        assert!(kibibytes < 150_000, "{} has used {kibibytes} KiB", process.command);
    }
    torc.signal(Signal::SIGTERM);
    torc.finish().exits(130);
    let log = env.path("torc_output/job_stdio/job_wf1_j1_r1_a1.o");
    assert_eq!(fs::metadata(log).unwrap().len(), 1_000_000_000);
    env.expect_nothing_left();
}

// J23
#[test]
fn a_job_that_ignores_every_signal_it_can_is_killed() {
    let env = TestEnv::new();
    env.write("job.sh", "trap '' TERM INT HUP USR1 USR2\necho > ready\nwhile true; do sleep 0.1; done\n");
    env.write(
        "w.yaml",
        "name: w\nexecution_config: {mode: direct, sigterm_lead_seconds: 1}\njobs: [{name: deaf, command: bash job.sh}]\n",
    );
    let torc = env.start("apply -f w.yaml");
    until(|| env.path("ready").exists(), || torc.stderr());
    torc.signal(Signal::SIGTERM);
    torc.finish().exits(130);
    env.expect_nothing_left();
    assert_eq!(env.states("w")["deaf"], "ready", "stopping is no fault of the job");
}

#[test]
fn a_job_that_kills_its_process_group_ends_alone() {
    survives("kill -9 0\n", 3, "failed");
}
