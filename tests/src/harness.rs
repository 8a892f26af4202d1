//! Runs each test as a process with a time limit, and reports passed, failed and skipped tests.
//!
//! A test gets an empty folder, a clean environment and a variable that all of its descendants inherit. A test that hangs or leaves
//! processes behind fails with a message. It cannot stop other tests.

mod catalog;
mod lab_owner;
mod order;
mod processes;
mod report;
mod run;

pub use catalog::{Binary, Test, list_tests, parse_binaries};
pub use order::shuffle;
pub use report::{Outcome, TestResult, failure_text, rerun_command, summary};
pub use run::{Limits, Runner};
