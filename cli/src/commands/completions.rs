//! `torc completions`: a completion script for a shell.

use clap::Args;
use clap_complete::Shell;

use crate::context::Context;
use crate::error::{CommandError, ExitStatus};

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
pub fn run(context: &Context, args: &CompletionsArgs, mut command: clap::Command) -> Result<ExitStatus, CommandError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "torc", &mut script);
    context.output.raw(&script)?;
    Ok(ExitStatus::Success)
}
