//! Processes that a test has started and that are still alive.

use std::time::{Duration, Instant};

use crate::env::{HARNESS_MARK as MARK, Process, kill, marked_processes};

/// Time that a process may take to end after its test has ended. Killed processes of a busy machine take a moment.
const LEFTOVER_GRACE: Duration = Duration::from_secs(10);
const LEFTOVER_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Waits until nothing is left of a test. Returns what was left after the grace period; it is killed.
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

/// Kills every descendant of a test. A process may start another one between the look and the kill, hence several rounds.
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
