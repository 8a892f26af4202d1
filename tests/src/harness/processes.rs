//! Processes that are alive after their test has ended.

use std::time::{Duration, Instant};

use crate::env::{HARNESS_MARK as MARK, Process, kill, marked_processes};

/// Time that a process may take to exit after its test: on a busy machine, killed processes take seconds.
const LEFTOVER_GRACE: Duration = Duration::from_secs(10);
const LEFTOVER_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Waits until all processes of a test have exited. Kills and returns those that are alive after the grace period.
pub fn clear_leftovers(id: &str) -> Vec<Process> {
    let start = Instant::now();
    loop {
        let left = marked_processes(MARK, id);
        if left.is_empty() {
            return left;
        }
        if start.elapsed() > LEFTOVER_GRACE {
            kill_all(id);
            return left;
        }
        std::thread::sleep(LEFTOVER_POLL_INTERVAL);
    }
}

/// Kills every descendant of a test, in several rounds: a process may start another one between the listing and the kill.
pub fn kill_all(id: &str) {
    for _ in 0..50 {
        let left = marked_processes(MARK, id);
        if left.is_empty() {
            return;
        }
        left.iter().for_each(|process| kill(process.pid));
        std::thread::sleep(LEFTOVER_POLL_INTERVAL);
    }
}
