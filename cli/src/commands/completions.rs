//! `torc completions`: a completion script for a shell.

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use super::Context;
use crate::args::Cli;
use crate::error::{CommandError, ExitStatus};
use crate::spellings;

/// Print a completion script for a shell.
///
/// For bash: `torc completions bash > ~/.local/share/bash-completion/completions/torc`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Runs the verb.
pub fn run(context: &Context, args: &CompletionsArgs) -> Result<ExitStatus, CommandError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut spellings::add_to(Cli::command()), "torc", &mut script);
    context.output.raw(&script)?;
    Ok(ExitStatus::Success)
}
