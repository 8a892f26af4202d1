//! Waits for conditions with a deadline. Only this module sleeps.

use std::time::{Duration, Instant};

/// Longer than any condition takes on a loaded machine, and shorter than the harness' limit for a test.
const DEADLINE: Duration = Duration::from_secs(90);

/// Waits until a condition holds. Panics after the deadline with the text of `failure`.
pub fn until(mut condition: impl FnMut() -> bool, failure: impl FnOnce() -> String) {
    let start = Instant::now();
    while !condition() {
        if start.elapsed() > DEADLINE {
            panic!("waited {DEADLINE:?}: {}", failure());
        }
        pause();
    }
}

/// Waits until `look` returns a value.
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let mut found = None;
    until(
        || {
            found = look();
            found.is_some()
        },
        || what.to_owned(),
    );
    found.expect("a value after `until`")
}

/// Sleeps between two checks of a condition.
pub fn pause() {
    std::thread::sleep(Duration::from_millis(3));
}
