//! Waiting for a condition, with a deadline. The only pause of the suites is here.

use std::time::{Duration, Instant};

/// Far more than anything takes, even on a loaded machine: it only keeps a broken test from hanging.
const DEADLINE: Duration = Duration::from_secs(90);

/// Waits until a condition holds; `complaint` says what did not happen.
pub fn until(mut condition: impl FnMut() -> bool, complaint: impl FnOnce() -> String) {
    let start = Instant::now();
    while !condition() {
        if start.elapsed() > DEADLINE {
            panic!("waited {DEADLINE:?}: {}", complaint());
        }
        pause();
    }
}

/// Waits until there is a value.
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let mut found = None;
    until(
        || {
            found = look();
            found.is_some()
        },
        || what.to_owned(),
    );
    found.expect("it was found")
}

/// A moment between two looks.
pub fn pause() {
    std::thread::sleep(Duration::from_millis(3));
}
