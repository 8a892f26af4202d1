//! `torc shim`: the process that holds the jobs of a runner.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;
use torc_runner::shim::{self, ShimArgs};

use crate::error::{CliError, ExitStatus};
use crate::output::{OutputFormat, Printer};

/// Hold the jobs of a runner; started by runners
#[derive(Debug, Args)]
pub struct ShimCommandArgs {
    /// Arguments from the runner
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<OsString>,
}

/// Runs the shim until its end.
pub fn main(args: ShimCommandArgs) -> ExitCode {
    match ShimArgs::parse(args.arguments).and_then(|args| shim::main(&args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            Printer::new(OutputFormat::Table).error(&CliError::unexpected("the shim failed", error));
            ExitCode::from(ExitStatus::Unexpected.code())
        }
    }
}
