//! `torc shim`: the process that holds a runner's jobs. Started by runners, never by people.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Args;
use torc_runner::shim::{self, ShimArgs};

use crate::error::{CliError, ExitStatus};
use crate::output::{OutputFormat, Printer};

/// The process that holds a runner's jobs.
#[derive(Debug, Args)]
pub struct ShimVerbArgs {
    /// What the runner says.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<OsString>,
}

/// Lives the shim's whole life.
pub fn main(args: ShimVerbArgs) -> ExitCode {
    match ShimArgs::parse(args.arguments).and_then(|args| shim::main(&args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            Printer::new(OutputFormat::Table).error(&CliError::unexpected("the shim failed", error));
            ExitCode::from(ExitStatus::Unexpected.code())
        }
    }
}
