//! `torc reference`: the generated pages of docs/reference.

use clap::{Args, Command, ValueEnum};

use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::reference;

/// Print the generated reference pages.
#[derive(Debug, Args)]
pub struct ReferenceArgs {
    /// Which page.
    #[arg(value_enum)]
    pub page: Page,
}

/// A generated page.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Page {
    /// docs/reference/cli.md
    Cli,
    /// docs/reference/crds.md
    Crds,
    /// docs/reference/environment.md
    Environment,
    /// docs/reference/events.md
    Events,
    /// docs/reference/http-routes.md
    Http,
    /// docs/reference/openapi.json
    Openapi,
}

/// Runs the verb.
pub fn run(context: &CommandContext, args: &ReferenceArgs, command: Command) -> Result<ExitStatus, CliError> {
    let page = match args.page {
        Page::Cli => reference::command_line(command),
        Page::Crds => reference::definitions::page(),
        Page::Environment => reference::environment(),
        Page::Events => torc_controller::events_page(),
        Page::Http => torc_controller::reference_page(),
        Page::Openapi => format!("{:#}\n", torc_controller::openapi_document()),
    };
    context.output.raw(page.as_bytes())?;
    Ok(ExitStatus::Success)
}
