//! `torc cancel`, `torc suspend`, `torc resume`: control of whole workflows. The next apply does not undo them.

use clap::Args;

use crate::client::{Client, WorkflowControl};
use crate::connection::{explain_missing, resolve_workflow, with_client};
use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::output::ItemList;

/// Cancel workflows: end their running jobs and start no more
#[derive(Debug, Args)]
pub struct CancelArgs {
    /// Workflows by name or number (default: the only one in the store)
    #[arg(value_name = "WORKFLOW")]
    pub workflows: Vec<String>,
}

/// Suspend workflows: start no more jobs; running jobs continue
#[derive(Debug, Args)]
pub struct SuspendArgs {
    /// Workflows by name or number (default: the only one in the store)
    #[arg(value_name = "WORKFLOW")]
    pub workflows: Vec<String>,
}

/// Resume suspended or canceled workflows
#[derive(Debug, Args)]
pub struct ResumeArgs {
    /// Workflows by name or number (default: the only one in the store)
    #[arg(value_name = "WORKFLOW")]
    pub workflows: Vec<String>,
}

pub async fn cancel(context: &CommandContext, args: &CancelArgs) -> Result<ExitStatus, CliError> {
    control(context, &args.workflows, WorkflowControl::Cancel, "canceled").await
}

pub async fn suspend(context: &CommandContext, args: &SuspendArgs) -> Result<ExitStatus, CliError> {
    control(context, &args.workflows, WorkflowControl::Suspend, "suspended").await
}

pub async fn resume(context: &CommandContext, args: &ResumeArgs) -> Result<ExitStatus, CliError> {
    control(context, &args.workflows, WorkflowControl::Resume, "resumed").await
}

async fn control(
    context: &CommandContext,
    names: &[String],
    control: WorkflowControl,
    word: &str,
) -> Result<ExitStatus, CliError> {
    with_client(&context.settings, &context.folder, async |client: &Client| {
        let mut items = Vec::new();
        for name in named(names) {
            let name = resolve_workflow(client, name).await?;
            items.push(client.control(&name, control).await.map_err(explain_missing)?);
        }
        let text = items.iter().map(|workflow| format!("workflow/{} {word}\n", workflow.name)).collect();
        context.output.value(&ItemList { items: &items }, || text)
    })
    .await?;
    Ok(ExitStatus::Success)
}

/// Returns the given names, or `None` for the only workflow.
pub fn named(names: &[String]) -> Vec<Option<&str>> {
    if names.is_empty() { vec![None] } else { names.iter().map(|name| Some(name.as_str())).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_means_the_only_workflow() {
        let names: Vec<String> = ["a", "b"].map(str::to_owned).to_vec();
        assert_eq!(named(&names), [Some("a"), Some("b")]);
        assert_eq!(named(&[]), [None]);
    }
}
