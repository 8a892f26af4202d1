//! The program `torc`. All of its code is in the library of this crate.

use std::process::ExitCode;

fn main() -> ExitCode {
    torc::main(std::env::args_os().collect())
}
