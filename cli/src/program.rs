//! The frame around every command: logging, settings, the async runtime, and the exit code.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::logging::{self, Log};
use crate::output::{OutputFormat, Printer};
use crate::settings::backend::is_plugin;
use crate::settings::{self, EnvCredentials, Environment, Layers};

/// Prints a parse error, help or version. clap selects the output stream.
pub fn refuse(error: &clap::Error) -> ExitCode {
    let _ = error.print();
    let status = if error.use_stderr() { ExitStatus::Usage } else { ExitStatus::Success };
    ExitCode::from(status.code())
}

/// Starts logging, resolves the settings, runs the command, and prints its error.
pub fn start(
    log: Log,
    flags: Layers,
    command: impl FnOnce(&CommandContext) -> Result<ExitStatus, CliError>,
) -> ExitCode {
    logging::start(log);
    let format = flags.get("client.format").and_then(|value| OutputFormat::from_name(&value.text).ok());
    let fallback = Printer::new(format.unwrap_or_default());
    let outcome = prepare(flags).map(|context| command(&context).map_err(|error| (context.output, error)));
    let status = match outcome {
        Ok(Ok(status)) => status,
        Ok(Err((output, error))) => report_error(output, &error),
        Err(error) => report_error(fallback, &error),
    };
    ExitCode::from(status.code())
}

fn report_error(output: Printer, error: &CliError) -> ExitStatus {
    output.error(error);
    if error.silent { ExitStatus::Success } else { error.kind }
}

fn prepare(flags: Layers) -> Result<CommandContext, CliError> {
    let folder = std::env::current_dir()
        .map_err(|error| CliError::unexpected("could not determine the current folder", error))?;
    let variable = |name: &str| std::env::var(name).ok();
    let environment = Environment { variable: &variable, folder: &folder, system: Path::new("/etc") };
    let (layers, warnings) = settings::gather(flags, &environment)?;
    let program = std::env::args_os().next().map(PathBuf::from);
    let handed = EnvCredentials { plugin: is_plugin(program.as_deref()), ..EnvCredentials::from(&variable) };
    let settings = settings::resolve(&layers, handed)?;
    let output = Printer::new(settings.format);
    for warning in warnings {
        output.warning(&warning);
    }
    Ok(CommandContext { settings, output, folder, in_cluster: false })
}

/// Runs an asynchronous command.
pub fn block_on(command: impl Future<Output = Result<ExitStatus, CliError>>) -> Result<ExitStatus, CliError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::unexpected("could not start the async runtime", error))?;
    let result = runtime.block_on(command);
    // A task that still waits, e.g. for standard input, must not keep the process alive.
    runtime.shutdown_background();
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_decides_the_exit_code_unless_it_is_silent() {
        let output = Printer::new(OutputFormat::Table);
        for status in ExitStatus::ALL {
            assert_eq!(report_error(output, &CliError::new(status, "m")), status);
            let silent = CliError { silent: true, ..CliError::new(status, "m") };
            assert_eq!(report_error(output, &silent), ExitStatus::Success);
        }
    }
}
