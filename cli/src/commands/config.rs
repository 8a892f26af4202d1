//! `torc config`: settings and where they come from.

use clap::{Args, Subcommand};

use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::output::SettingRow;
use crate::settings::all;

/// Settings and where they come from.
#[derive(Debug, Args)]
pub struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Print every setting with its value and where that comes from.
    ///
    /// Flags win over environment variables, these over `torc.toml` in this folder or above, that over the user's
    /// `~/.config/torc/config.toml`, that over `/etc/torc/config.toml`, and that over what is built in.
    Show,
}

/// Runs the verb.
pub fn run(context: &CommandContext, args: &ConfigArgs) -> Result<ExitStatus, CliError> {
    let ConfigCommand::Show = args.command;
    let rows: Vec<SettingRow> = all()
        .map(|setting| {
            let value = context.settings.layers.get(setting.key);
            SettingRow {
                key: setting.key,
                value: value.map(|value| value.text.clone()),
                origin: value.map(|value| value.origin.to_string()),
            }
        })
        .collect();
    context.output.list(&rows)?;
    Ok(ExitStatus::Success)
}
