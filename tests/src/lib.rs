//! What the black-box suites stand on: a folder of their own, the built binary, and an eye on every process that comes of it.
//!
//! Deliberately absent: everything about the inside of Torc. A suite sees commands, exit codes, files and processes.

pub mod lab;
