//! Ends of jobs: by themselves, by signals, and without remaining processes.

use std::time::Duration;

use torc_api::state::Cause;
use torc_runner::RunnerExit;

use crate::fixture::{RunnerFixture, is_alive, wait_until};

pub const TESTS: &[(&str, fn())] = &[
    ("ends::grandchildren_do_not_stay", grandchildren_do_not_stay),
    ("ends::daemons_do_not_stay", daemons_do_not_stay),
    ("ends::cancel_reaches_the_whole_group", cancel_reaches_the_whole_group),
    ("ends::every_process_of_the_group_is_asked", every_process_of_the_group_is_asked),
    ("ends::sigterm_can_be_ignored_for_a_while_only", sigterm_can_be_ignored_for_a_while_only),
    ("ends::stop_returns_what_waits_and_ends_what_runs", stop_returns_what_waits_and_ends_what_runs),
    ("ends::stop_now_does_not_wait", stop_now_does_not_wait),
    ("ends::time_is_over", time_is_over),
];

const FOREVER: &str = "while true; do sleep 0.2; done";

fn grandchildren_do_not_stay() {
    let fixture = RunnerFixture::new();
    // The grandchild also holds the job's standard output open.
    let key = fixture.add("sleep 1000 & echo $! > grandchild; echo said");
    fixture.run();
    let grandchild = fixture.pid_in("grandchild");
    assert!(!is_alive(grandchild));
    assert_eq!(fixture.finished(&key).return_code, 0);
    assert_eq!(fixture.read("out/job_stdio/job_wf7_j1_r1_a1.o"), "said");
}

fn daemons_do_not_stay() {
    let fixture = RunnerFixture::new();
    let daemon = "setsid setsid bash -c 'echo $$ > daemon; sleep 1000 & echo $! > helper; wait' & \
                  while [ ! -s helper ]; do sleep 0.01; done";
    let key = fixture.add(daemon);
    // Another job runs, so that the shim does not just clean up everything.
    fixture.add("while [ ! -s seen ]; do sleep 0.01; done");
    fixture.beside(|| {
        wait_until("the first job's end", || fixture.server.buffer().finished.contains_key(&key));
        assert!(!is_alive(fixture.pid_in("daemon")));
        assert!(!is_alive(fixture.pid_in("helper")));
        std::fs::write(fixture.path("seen"), "x").expect("written");
    });
    assert_eq!(fixture.finished(&key).return_code, 0);
}

fn cancel_reaches_the_whole_group() {
    let fixture = RunnerFixture::new();
    let key = fixture.add(&format!("sleep 1000 & echo $! > child; {FOREVER} | cat"));
    fixture.beside(|| {
        fixture.pid_in("child");
        fixture.server.change(|buffer| buffer.cancel.push(key));
    });
    assert!(!is_alive(fixture.pid_in("child")));
    let finished = fixture.finished(&key);
    assert_eq!((finished.return_code, finished.cause), (143, Some(Cause::Canceled)));
}

// J23
fn every_process_of_the_group_is_asked() {
    let fixture = RunnerFixture::new();
    // The first process waits for the other one, which ends only on its own signal.
    let other = "(trap 'echo asked > asked; exit 0' TERM; echo > ready; while true; do sleep 0.05; done)";
    let key = fixture.add_with(&format!("trap : TERM; {other} & wait; wait; exit 9"), |profile| {
        profile.execution_config.as_mut().expect("set").sigterm_lead_seconds = Some(30);
    });
    fixture.beside(|| {
        wait_until("the trap", || fixture.path("ready").exists());
        fixture.server.change(|buffer| buffer.cancel.push(key));
    });
    assert_eq!(fixture.read("asked"), "asked");
    assert_eq!(fixture.finished(&key).return_code, 9);
}

fn sigterm_can_be_ignored_for_a_while_only() {
    let fixture = RunnerFixture::new();
    let key = fixture.add(&format!("trap 'echo asked > asked' TERM; echo > ready; {FOREVER}"));
    fixture.beside(|| {
        wait_until("the trap", || fixture.path("ready").exists());
        fixture.server.change(|buffer| buffer.cancel.push(key));
    });
    assert_eq!(fixture.read("asked"), "asked");
    let finished = fixture.finished(&key);
    assert_eq!((finished.return_code, finished.cause), (137, Some(Cause::Canceled)));
}

// J23, X17
fn stop_returns_what_waits_and_ends_what_runs() {
    let fixture = RunnerFixture::new();
    fixture.server.change(|buffer| buffer.closed = true);
    let key = fixture.add_with(&format!("trap 'exit 9' INT; echo > ready; {FOREVER}"), |profile| {
        let config = profile.execution_config.as_mut().expect("set");
        config.termination_signal = Some("SIGINT".to_owned());
    });
    let waiting = fixture.add("true");
    let mut config = fixture.config();
    config.capacity.cpus = 1;
    let exit = fixture.beside_with(config, |stop| {
        wait_until("the trap", || fixture.path("ready").exists());
        stop.cancel();
    });
    assert_eq!(exit, RunnerExit::Stopped);
    let finished = fixture.finished(&key);
    assert_eq!((finished.return_code, finished.cause), (9, Some(Cause::Stopped)));
    let buffer = fixture.server.buffer();
    assert_eq!(buffer.returned, [waiting]);
    assert!(buffer.left);
}

fn stop_now_does_not_wait() {
    let fixture = RunnerFixture::new();
    let key = fixture.add_with(&format!("trap '' TERM; echo > ready; {FOREVER}"), |profile| {
        let config = profile.execution_config.as_mut().expect("set");
        config.sigterm_lead_seconds = Some(100_000);
    });
    let config = fixture.config();
    let now = config.stop_now.clone();
    fixture.beside_with(config, |stop| {
        wait_until("the trap", || fixture.path("ready").exists());
        stop.cancel();
        now.cancel();
    });
    let finished = fixture.finished(&key);
    assert_eq!((finished.return_code, finished.cause), (137, Some(Cause::Stopped)));
}

// J24, X05, X16
fn time_is_over() {
    let fixture = RunnerFixture::new();
    let short = |fixture: &RunnerFixture, command: &str| {
        fixture.add_with(command, |profile| {
            let config = profile.execution_config.as_mut().expect("set");
            config.sigkill_headroom_seconds = Some(1);
            config.sigterm_lead_seconds = Some(5);
        })
    };
    let obedient = short(&fixture, &format!("trap 'exit 0' TERM; {FOREVER}"));
    let stubborn = short(&fixture, &format!("trap '' TERM; {FOREVER}"));
    let mut config = fixture.config();
    // A loaded machine needs this time to start both jobs and to let one of them end by itself.
    config.time_limit = Some(Duration::from_secs(15));
    assert_eq!(fixture.run_with(config).expect("a runner that works"), RunnerExit::Deadline);
    let result = |key| (fixture.finished(key).return_code, fixture.finished(key).cause);
    assert_eq!(result(&obedient), (0, None));
    assert_eq!(result(&stubborn), (152, Some(Cause::Timeout)));
}
