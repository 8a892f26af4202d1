//! `torc reference`: print the generated pages of docs/reference.

use clap::{Args, Command, ValueEnum};

use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::reference;

/// Print a generated reference page
#[derive(Debug, Args)]
pub struct ReferenceArgs {
    /// Page to print
    #[arg(value_enum)]
    pub page: ReferencePage,
}

/// A generated reference page.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum ReferencePage {
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

pub fn run(context: &CommandContext, args: &ReferenceArgs, command: Command) -> Result<ExitStatus, CliError> {
    let page = match args.page {
        ReferencePage::Cli => reference::command_line(command),
        ReferencePage::Crds => reference::definitions::page(),
        ReferencePage::Environment => reference::environment(),
        ReferencePage::Events => torc_controller::events_page(),
        ReferencePage::Http => torc_controller::reference_page(),
        ReferencePage::Openapi => format!("{:#}\n", torc_controller::openapi_document()),
    };
    context.output.raw(page.as_bytes())?;
    Ok(ExitStatus::Success)
}
