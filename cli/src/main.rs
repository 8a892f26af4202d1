//! The binary `torc`: one verb a file in `commands`. Deliberately absent here: everything but the start.

mod args;
mod client;
mod commands;
mod connection;
mod documents;
mod env;
mod error;
mod follow;
mod output;
mod place;
mod progress;
mod reference;
mod run_here;
mod settings;
mod standalone;
mod starving;
mod summary;

use std::process::ExitCode;

fn main() -> ExitCode {
    commands::main(std::env::args_os().collect())
}
