//! The program `torc`. Deliberately absent here: everything but the start.

use std::process::ExitCode;

fn main() -> ExitCode {
    torc::main(std::env::args_os().collect())
}
