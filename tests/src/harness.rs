//! Runs tests, each as a process of its own, with a time limit, and reports passed, failed and skipped ones.
//!
//! A test gets an empty folder, an environment of its own and a mark that all of its descendants inherit. A test that hangs or leaves
//! processes behind fails with a message, and nothing that it does can stop the others.

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
