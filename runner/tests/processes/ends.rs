//! Ends of jobs: by themselves, by signals, and without remaining processes.

use std::time::Duration;

use torc_api::state::Cause;
use torc_runner::RunnerExit;

use crate::place::{Place, is_alive, wait_until};

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
    let place = Place::new();
    // The grandchild also holds the job's standard output open.
    let key = place.add("sleep 1000 & echo $! > grandchild; echo said");
    place.run();
    let grandchild = place.pid_in("grandchild");
    assert!(!is_alive(grandchild));
    assert_eq!(place.finished(&key).return_code, 0);
    assert_eq!(place.read("out/job_stdio/job_wf7_j1_r1_a1.o"), "said");
}

fn daemons_do_not_stay() {
    let place = Place::new();
    let daemon = "setsid setsid bash -c 'echo $$ > daemon; sleep 1000 & echo $! > helper; wait' & \
                  while [ ! -s helper ]; do sleep 0.01; done";
    let key = place.add(daemon);
    // Another job runs, so that the shim does not just clean up everything.
    place.add("while [ ! -s seen ]; do sleep 0.01; done");
    place.beside(|| {
        wait_until("the first job's end", || place.server.buffer().finished.contains_key(&key));
        assert!(!is_alive(place.pid_in("daemon")));
        assert!(!is_alive(place.pid_in("helper")));
        std::fs::write(place.path("seen"), "x").expect("written");
    });
    assert_eq!(place.finished(&key).return_code, 0);
}

fn cancel_reaches_the_whole_group() {
    let place = Place::new();
    let key = place.add(&format!("sleep 1000 & echo $! > child; {FOREVER} | cat"));
    place.beside(|| {
        place.pid_in("child");
        place.server.change(|buffer| buffer.cancel.push(key));
    });
    assert!(!is_alive(place.pid_in("child")));
    let finished = place.finished(&key);
    assert_eq!((finished.return_code, finished.cause), (143, Some(Cause::Canceled)));
}

// J23
fn every_process_of_the_group_is_asked() {
    let place = Place::new();
    // The first process waits for the other one, which ends only on its own signal.
    let other = "(trap 'echo asked > asked; exit 0' TERM; echo > ready; while true; do sleep 0.05; done)";
    let key = place.add_with(&format!("trap : TERM; {other} & wait; wait; exit 9"), |profile| {
        profile.execution_config.as_mut().expect("set").sigterm_lead_seconds = Some(30);
    });
    place.beside(|| {
        wait_until("the trap", || place.path("ready").exists());
        place.server.change(|buffer| buffer.cancel.push(key));
    });
    assert_eq!(place.read("asked"), "asked");
    assert_eq!(place.finished(&key).return_code, 9);
}

fn sigterm_can_be_ignored_for_a_while_only() {
    let place = Place::new();
    let key = place.add(&format!("trap 'echo asked > asked' TERM; echo > ready; {FOREVER}"));
    place.beside(|| {
        wait_until("the trap", || place.path("ready").exists());
        place.server.change(|buffer| buffer.cancel.push(key));
    });
    assert_eq!(place.read("asked"), "asked");
    let finished = place.finished(&key);
    assert_eq!((finished.return_code, finished.cause), (137, Some(Cause::Canceled)));
}

// J23, X17
fn stop_returns_what_waits_and_ends_what_runs() {
    let place = Place::new();
    place.server.change(|buffer| buffer.closed = true);
    let key = place.add_with(&format!("trap 'exit 9' INT; echo > ready; {FOREVER}"), |profile| {
        let config = profile.execution_config.as_mut().expect("set");
        config.termination_signal = Some("SIGINT".to_owned());
    });
    let waiting = place.add("true");
    let mut config = place.config();
    config.capacity.cpus = 1;
    let exit = place.beside_with(config, |stop| {
        wait_until("the trap", || place.path("ready").exists());
        stop.cancel();
    });
    assert_eq!(exit, RunnerExit::Stopped);
    let finished = place.finished(&key);
    assert_eq!((finished.return_code, finished.cause), (9, Some(Cause::Stopped)));
    let buffer = place.server.buffer();
    assert_eq!(buffer.returned, [waiting]);
    assert!(buffer.left);
}

fn stop_now_does_not_wait() {
    let place = Place::new();
    let key = place.add_with(&format!("trap '' TERM; echo > ready; {FOREVER}"), |profile| {
        let config = profile.execution_config.as_mut().expect("set");
        config.sigterm_lead_seconds = Some(100_000);
    });
    let config = place.config();
    let now = config.stop_now.clone();
    place.beside_with(config, |stop| {
        wait_until("the trap", || place.path("ready").exists());
        stop.cancel();
        now.cancel();
    });
    let finished = place.finished(&key);
    assert_eq!((finished.return_code, finished.cause), (137, Some(Cause::Stopped)));
}

// J24, X05, X16
fn time_is_over() {
    let place = Place::new();
    let short = |place: &Place, command: &str| {
        place.add_with(command, |profile| {
            let config = profile.execution_config.as_mut().expect("set");
            config.sigkill_headroom_seconds = Some(1);
            config.sigterm_lead_seconds = Some(5);
        })
    };
    let obedient = short(&place, &format!("trap 'exit 0' TERM; {FOREVER}"));
    let stubborn = short(&place, &format!("trap '' TERM; {FOREVER}"));
    let mut config = place.config();
    // A loaded machine needs this time to start both jobs and to let one of them end by itself.
    config.time_limit = Some(Duration::from_secs(15));
    assert_eq!(place.run_with(config).expect("a runner that works"), RunnerExit::Deadline);
    let result = |key| (place.finished(key).return_code, place.finished(key).cause);
    assert_eq!(result(&obedient), (0, None));
    assert_eq!(result(&stubborn), (152, Some(Cause::Timeout)));
}
