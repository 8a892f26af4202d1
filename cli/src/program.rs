//! The frame around every command: logging, settings, the async runtime, and the exit code.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::context::Context;
use crate::error::{CommandError, ExitStatus};
use crate::logging::{self, Log};
use crate::output::{Format, Output};
use crate::settings::backend::is_plugin;
use crate::settings::{self, Handed, Layers, Surroundings};

/// What cannot be parsed, and help and versions, which are no errors: clap knows which stream they belong to.
pub fn refuse(error: &clap::Error) -> ExitCode {
    let _ = error.print();
    let status = if error.use_stderr() { ExitStatus::Usage } else { ExitStatus::Success };
    ExitCode::from(status.code())
}

/// Begins to log, settles the settings, does what was asked for, and tells what went wrong.
pub fn start(log: Log, flags: Layers, verb: impl FnOnce(&Context) -> Result<ExitStatus, CommandError>) -> ExitCode {
    logging::start(log);
    let format = flags.get("client.format").and_then(|value| Format::from_name(&value.text).ok());
    let fallback = Output::new(format.unwrap_or_default());
    let outcome = prepare(flags).map(|context| verb(&context).map_err(|error| (context.output, error)));
    let status = match outcome {
        Ok(Ok(status)) => status,
        Ok(Err((output, error))) => tell(output, &error),
        Err(error) => tell(fallback, &error),
    };
    ExitCode::from(status.code())
}

fn tell(output: Output, error: &CommandError) -> ExitStatus {
    output.error(error);
    if error.silent { ExitStatus::Success } else { error.kind }
}

fn prepare(flags: Layers) -> Result<Context, CommandError> {
    let folder = std::env::current_dir()
        .map_err(|error| CommandError::unexpected("could not find the current folder", error))?;
    let variable = |name: &str| std::env::var(name).ok();
    let surroundings = Surroundings { variable: &variable, folder: &folder, system: Path::new("/etc") };
    let (layers, warnings) = settings::gather(flags, &surroundings)?;
    let program = std::env::args_os().next().map(PathBuf::from);
    let handed = Handed { plugin: is_plugin(program.as_deref()), ..Handed::from(&variable) };
    let settings = settings::resolve(&layers, handed)?;
    let output = Output::new(settings.format);
    for warning in warnings {
        output.warning(&warning);
    }
    Ok(Context { settings, output, folder, in_cluster: false })
}

/// Runs a verb that waits for others.
pub fn block_on(verb: impl Future<Output = Result<ExitStatus, CommandError>>) -> Result<ExitStatus, CommandError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| CommandError::unexpected("could not start", error))?;
    let result = runtime.block_on(verb);
    // Whatever still waits, e.g. for standard input, must not hold the process.
    runtime.shutdown_background();
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_decides_the_exit_code_unless_nobody_reads_it() {
        let output = Output::new(Format::Table);
        for status in ExitStatus::ALL {
            assert_eq!(tell(output, &CommandError::new(status, "m")), status);
            let silent = CommandError { silent: true, ..CommandError::new(status, "m") };
            assert_eq!(tell(output, &silent), ExitStatus::Success);
        }
    }
}
