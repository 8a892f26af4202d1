//! Losses when a process is killed: only what no process can know is lost.

use std::process::{Command, Stdio};
use std::time::Duration;

use torc_api::state::Cause;
use torc_api::wire::AttemptKey;
use torc_runner::{RunnerError, RunnerExit};

use crate::fixture::{Killed, RunnerFixture, is_alive, kill_9, wait_for, wait_until};

pub const TESTS: &[(&str, fn())] = &[
    ("losses::an_agent_is_killed_and_another_takes_over", an_agent_is_killed_and_another_takes_over),
    ("losses::a_second_agent_is_refused", a_second_agent_is_refused),
    ("losses::an_abandoned_shim_ends_its_job", an_abandoned_shim_ends_its_job),
    ("losses::a_result_that_waited_for_a_restart_of_the_machine", a_result_that_waited_for_a_restart_of_the_machine),
    ("losses::an_agent_dies_while_it_ends_a_job", an_agent_dies_while_it_ends_a_job),
    ("losses::both_are_killed", both_are_killed),
    ("losses::the_shim_alone_is_killed", the_shim_alone_is_killed),
    ("losses::the_server_is_away_for_a_while", the_server_is_away_for_a_while),
    ("losses::the_server_forgets_the_runner", the_server_forgets_the_runner),
];

/// Returns the key of the n-th job of the killed agent's server.
fn key(job: i64) -> AttemptKey {
    AttemptKey { workflow: 7, job, run: 1, attempt: 1, lease_id: job }
}

fn start_agent(fixture: &RunnerFixture, commands: &[&str]) -> Killed {
    let agent = Command::new(std::env::current_exe().expect("an executable"))
        .arg("agent")
        .arg(fixture.path(""))
        .args(commands)
        .stdin(Stdio::null())
        .spawn()
        .expect("an agent");
    Killed(agent)
}

const WAIT_FOR_GO: &str = "echo $$ > pid; echo said; while [ ! -f go ]; do sleep 0.02; done; exit 6";

fn an_agent_is_killed_and_another_takes_over() {
    let fixture = RunnerFixture::new();
    let agent = start_agent(&fixture, &["exit 5", WAIT_FOR_GO]);
    let job = fixture.pid_in("pid");
    let shim = fixture.shim();
    drop(agent);
    assert!(is_alive(job) && is_alive(shim));
    // The server holds the second job for the runner in this place.
    let lease = torc_api::wire::Lease { key: key(2), ..Default::default() };
    fixture.server.change(|buffer| drop(buffer.leased.insert(key(2), lease)));
    let exit = fixture.beside(|| {
        wait_until("the job to be reported as running", || fixture.server.buffer().running.contains(&key(2)));
        assert_eq!(fixture.shim(), shim);
        std::fs::write(fixture.path("go"), "").expect("written");
    });
    assert_eq!(exit, RunnerExit::Complete);
    assert_eq!(fixture.finished(&key(2)).return_code, 6);
    assert_eq!(fixture.read("out/job_stdio/job_wf7_j2_r1_a1.o"), "said");
    wait_until("the shim's end", || !is_alive(shim));
    assert_eq!(fixture.shim_files(), Vec::<String>::new());
}

fn a_second_agent_is_refused() {
    let fixture = RunnerFixture::new();
    let mut agent = start_agent(&fixture, &[WAIT_FOR_GO]);
    fixture.pid_in("pid");
    match fixture.run_with(fixture.config()) {
        Err(RunnerError::ShimRefused(reason)) => assert!(reason.contains(&agent.0.id().to_string()), "{reason}"),
        other => panic!("expected a refusal, got {other:?}"),
    }
    std::fs::write(fixture.path("go"), "").expect("written");
    let status = wait_for("the first agent's end", || agent.0.try_wait().expect("a child"));
    assert!(status.success(), "{status}");
}

// J23
fn an_abandoned_shim_ends_its_job() {
    let fixture = RunnerFixture::new();
    fixture.add("trap 'exit 4' TERM; echo $$ > pid; while true; do sleep 0.2; done");
    let mut config = fixture.config();
    config.orphan_grace = Duration::from_millis(300);
    // A runner whose future is dropped is as gone as a killed one.
    let run = torc_runner::run(config, fixture.server.clone(), Default::default(), |_| {});
    let runtime = crate::fixture::runtime();
    let handle = runtime.spawn(run);
    let job = fixture.pid_in("pid");
    let shim = fixture.shim();
    handle.abort();
    wait_until("the job's end", || !is_alive(job));
    wait_until("the shim's end", || !is_alive(shim));
    assert_eq!(fixture.shim_files(), ["shim.results"]);
    // The result has waited for the next runner.
    fixture.run();
    let finished = fixture.finished(&key(1));
    assert_eq!((finished.return_code, finished.cause), (4, Some(Cause::Stopped)));
    assert_eq!(fixture.shim_files(), Vec::<String>::new());
}

/// The shim exited, and the machine restarted a day later: only the file of results is left.
fn a_result_that_waited_for_a_restart_of_the_machine() {
    let fixture = RunnerFixture::new();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock").as_millis();
    let result = serde_json::json!({
        "bootId": "of another start",
        "endedMs": u64::try_from(now).expect("fits") - 86_400_000,
        "exit": {
            "key": key(1), "started": 1_u64 << 50, "ended": (1_u64 << 50) + 3_000_000,
            "outcome": {"exited": 0},
        },
    });
    std::fs::create_dir_all(fixture.path("state")).expect("a folder");
    std::fs::write(fixture.path("state/shim.results"), format!("{result}\n")).expect("written");
    fixture.run();
    let finished = fixture.finished(&key(1));
    assert_eq!((finished.return_code, finished.duration_ms), (0, 3_000));
    let age = Duration::from_millis(finished.ended_ms_ago);
    assert!(
        age >= Duration::from_secs(86_400) && age < Duration::from_secs(86_400) + crate::fixture::DEADLINE,
        "{age:?}"
    );
    assert_eq!(fixture.shim_files(), Vec::<String>::new());
}

/// An agent is killed after it has asked its jobs to end. The next agent reports them as stopped.
fn an_agent_dies_while_it_ends_a_job() {
    let fixture = RunnerFixture::new();
    let only = fixture.add("trap 'echo > asked' TERM; echo > ready; while true; do sleep 0.02; done");
    let stop = tokio_util::sync::CancellationToken::new();
    let run = torc_runner::run(fixture.config(), fixture.server.clone(), stop.clone(), |_| {});
    let runtime = crate::fixture::runtime();
    let handle = runtime.spawn(run);
    wait_until("the job", || fixture.path("ready").exists());
    stop.cancel();
    wait_until("the signal", || fixture.path("asked").exists());
    handle.abort();
    // The shim refuses a second agent until the first one's connection is closed.
    assert!(runtime.block_on(handle).is_err_and(|error| error.is_cancelled()));
    fixture.run();
    let finished = fixture.finished(&only);
    assert_eq!((finished.return_code, finished.cause), (137, Some(Cause::Stopped)));
}

fn both_are_killed() {
    let fixture = RunnerFixture::new();
    let command = "setsid setsid sleep 1000 & echo $$ > pid; sleep 1000 & echo $! > child; echo said; sleep 1000";
    let agent = start_agent(&fixture, &[command]);
    let (job, child) = (fixture.pid_in("pid"), fixture.pid_in("child"));
    let shim = fixture.shim();
    wait_until("output", || {
        fixture.logs().iter().any(|name| {
            let path = fixture.path("out/job_stdio").join(name);
            std::fs::metadata(path).is_ok_and(|found| found.len() > 0)
        })
    });
    kill_9(shim);
    drop(agent);
    assert!(is_alive(job) && is_alive(child));
    let after = fixture.add("true");
    fixture.run();
    assert!(!is_alive(job) && !is_alive(child));
    assert_eq!(fixture.finished(&after).return_code, 0);
    assert_eq!(fixture.logs(), ["job_wf7_j1_r1_a1.o"], "no output is lost, and nothing else is left");
    assert_eq!(fixture.read("out/job_stdio/job_wf7_j1_r1_a1.o"), "said");
    assert_eq!(fixture.shim_files(), Vec::<String>::new());
}

fn the_shim_alone_is_killed() {
    let fixture = RunnerFixture::new();
    let lost = fixture.add("echo $$ > pid; sleep 1000");
    let exit = fixture.beside(|| {
        let job = fixture.pid_in("pid");
        kill_9(fixture.shim());
        let finished = wait_for("a result", || fixture.server.buffer().finished.get(&lost).cloned());
        assert_eq!((finished.return_code, finished.cause), (-128, Some(Cause::Lost)));
        assert!(!is_alive(job));
    });
    assert_eq!(exit, RunnerExit::Complete);
}

// J32
fn the_server_is_away_for_a_while() {
    let fixture = RunnerFixture::new();
    let first = fixture.add("echo > ready; while [ ! -f go ]; do sleep 0.02; done");
    let second = fixture.add_with("echo > second", |profile| profile.runtime_seconds = 1);
    let mut config = fixture.config();
    config.capacity.cpus = 1;
    let exit = fixture.beside_with(config, |_| {
        wait_until("the first job and a lease for the second", || {
            fixture.path("ready").exists() && fixture.server.buffer().leased.len() == 2
        });
        fixture.server.change(|buffer| buffer.unreachable = true);
        std::fs::write(fixture.path("go"), "").expect("written");
        wait_until("the second job, without a server", || fixture.path("second").exists());
        fixture.server.change(|buffer| buffer.unreachable = false);
    });
    assert_eq!(exit, RunnerExit::Complete);
    assert_eq!((fixture.finished(&first).return_code, fixture.finished(&second).return_code), (0, 0));
}

fn the_server_forgets_the_runner() {
    let fixture = RunnerFixture::new();
    let only = fixture.add("echo > ready; while [ ! -f go ]; do sleep 0.02; done");
    fixture.beside(|| {
        wait_until("the job", || fixture.path("ready").exists());
        fixture.server.change(|buffer| buffer.forgotten = true);
        wait_until("a second registration", || fixture.server.buffer().registrations == 2);
        std::fs::write(fixture.path("go"), "").expect("written");
    });
    assert_eq!(fixture.finished(&only).return_code, 0);
}
