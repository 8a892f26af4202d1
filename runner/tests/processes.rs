//! Tests of the runner with real processes. The binary is also the shim (`shim ARGS`), an agent that can be killed
//! (`agent DIR COMMAND…`), and a job that takes memory (`allocate MIB FILE`).

#[path = "processes/ends.rs"]
mod ends;
#[path = "support/fake_server.rs"]
mod fake_server;
#[path = "support/fixture.rs"]
mod fixture;
#[path = "processes/logs.rs"]
mod logs;
#[path = "processes/losses.rs"]
mod losses;
#[path = "processes/memory.rs"]
mod memory;
#[path = "processes/starts.rs"]
mod starts;

use std::path::PathBuf;
use std::sync::mpsc;

use libtest_mimic::{Arguments, Failed, Trial};
use tokio_util::sync::CancellationToken;
use torc_runner::RunnerEvent;
use torc_runner::shim::{self, ShimArgs};

use crate::fake_server::FakeServer;

fn main() {
    let mut args = std::env::args_os().skip(1);
    match args.next().and_then(|first| first.into_string().ok()).as_deref() {
        Some("shim") => {
            let args = ShimArgs::parse(args).expect("arguments");
            shim::main(&args).expect("a shim that works");
        }
        Some("allocate") => memory::allocate(args.map(|arg| arg.into_string().expect("text"))),
        Some("agent") => agent(args.map(|arg| arg.into_string().expect("text"))),
        _ => {
            let tests: Vec<(&str, fn())> =
                [ends::TESTS, logs::TESTS, losses::TESTS, memory::TESTS, starts::TESTS].concat();
            let trials = tests.into_iter().map(|(name, test)| Trial::test(name, move || in_time(test)));
            libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_if_failed();
        }
    }
}

/// Runs a test with a timeout: a test that hangs would hide all others.
fn in_time(test: fn()) -> Result<(), Failed> {
    let (sender, ended) = mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        // Dropped when the test has ended, also by a panic.
        let _sender = sender;
        test();
    });
    match ended.recv_timeout(fixture::DEADLINE * 3) {
        Err(mpsc::RecvTimeoutError::Timeout) => {
            Err(format!("it did not end within {:?}", fixture::DEADLINE * 3).into())
        }
        _ => thread.join().map_err(|panic| message(panic.as_ref()).into()),
    }
}

/// Returns the message of a panic.
fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_else(|| "a panic".to_owned())
}

/// Runs a runner with these commands as jobs.
fn agent(mut args: impl Iterator<Item = String>) {
    let dir = PathBuf::from(args.next().expect("a folder"));
    let server = FakeServer::default();
    for command in args {
        server.add(&command, fixture::profile(&dir));
    }
    let config = fixture::config(&dir);
    let run = torc_runner::run(config, server, CancellationToken::new(), |_: RunnerEvent| {});
    fixture::runtime().block_on(run).expect("a runner that works");
}
