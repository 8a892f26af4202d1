//! `torc config`: show the settings and their sources.

use clap::{Args, Subcommand};

use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::output::SettingRow;
use crate::settings::all;

/// Show the settings and their sources
#[derive(Debug, Args)]
pub struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Print every setting with its value and source
    ///
    /// The sources, highest priority first: flags, environment variables, `torc.toml` in this folder or above, the user's
    /// `~/.config/torc/config.toml`, `/etc/torc/config.toml`, and the built-in default.
    Show,
}

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
