//! `torc completions`: print a completion script for a shell.

use clap::Args;
use clap_complete::Shell;

use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};

/// Print a completion script for a shell
///
/// For bash: `torc completions bash > ~/.local/share/bash-completion/completions/torc`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// Shell to complete in
    #[arg(value_enum)]
    pub shell: Shell,
}

pub fn run(
    context: &CommandContext,
    args: &CompletionsArgs,
    mut command: clap::Command,
) -> Result<ExitStatus, CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "torc", &mut script);
    context.output.raw(&script)?;
    Ok(ExitStatus::Success)
}
