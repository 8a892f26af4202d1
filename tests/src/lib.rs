//! Helpers of the black-box suites: an isolated environment per test, the binary under test, labs, and the harness that runs the tests.
//!
//! Nothing here depends on the inside of Torc. A suite sees commands, exit codes, files and processes.

pub mod conformance;
pub mod documents;
pub mod env;
pub mod harness;
pub mod labs;
pub mod modules;
