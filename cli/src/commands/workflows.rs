//! `torc workflows`: the verbs on workflows, grouped as Torc 1.0 grouped them. Each is a spelling of a verb that has its own
//! file; nothing is decided here.

use clap::{Args, Subcommand};
use serde_json::json;
use torc_api::document::Document;

use super::control::CancelArgs;
use super::correct_resources::CorrectResourcesArgs;
use super::delete::DeleteArgs;
use super::describe::DescribeArgs;
use super::get::GetArgs;
use super::reconcile::ReconcileArgs;
use super::restart::{InitArgs, ReinitArgs};
use super::retry::RetryArgs;
use super::slurm::create::{self, CreateSlurmArgs};
use super::status::StatusArgs;
use super::sync_status::SyncStatusArgs;
use super::{control, correct_resources, delete, describe, get, reconcile, restart, retry, status, sync_status};
use crate::client::Client;
use crate::connection::{explain_missing, resolve_workflow, with_client};
use crate::context::Context;
use crate::error::{CommandError, ExitStatus};

/// Workflows: list, status, cancel, delete and more, as in Torc 1.0.
#[derive(Debug, Args)]
pub struct WorkflowsArgs {
    #[command(subcommand)]
    pub command: WorkflowsCommand,
}

/// What can be done with workflows; each is described where its arguments are.
#[derive(Debug, Subcommand)]
pub enum WorkflowsCommand {
    List(ListArgs),
    Get(OneArgs),
    Status(StatusArgs),
    Cancel(CancelArgs),
    Delete(DeleteArgs),
    Init(InitArgs),
    Reinit(ReinitArgs),
    ResetStatus(ResetStatusArgs),
    Export(ExportArgs),
    Reconcile(ReconcileArgs),
    ListActions(ListActionsArgs),
    SyncStatus(SyncStatusArgs),
    CorrectResources(CorrectResourcesArgs),
    CreateSlurm(CreateSlurmArgs),
}

/// List workflows, as `torc get workflows`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Go on printing what changes.
    #[arg(short = 'w', long)]
    pub watch: bool,
    /// At most so many.
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
}

/// Show one workflow in detail, as `torc describe workflow`.
#[derive(Debug, Args)]
pub struct OneArgs {
    /// The workflow, by name or number; may be left out where the store holds one.
    #[arg(value_name = "WORKFLOW")]
    pub workflow: Option<String>,
}

/// Put jobs back to the start, as `torc retry`.
///
/// All jobs as a new run; with --failed-only those that failed, were terminated or cancelled, and what depends on them.
/// `torc run` starts them.
#[derive(Debug, Args)]
pub struct ResetStatusArgs {
    /// The workflow, by name or number; may be left out where the store holds one.
    #[arg(value_name = "WORKFLOW")]
    pub workflow: Option<String>,
    /// Only jobs that did not succeed.
    #[arg(long)]
    pub failed_only: bool,
}

/// Print a workflow's document, so that it can be applied elsewhere.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// The workflow, by name or number; may be left out where the store holds one.
    #[arg(value_name = "WORKFLOW")]
    pub workflow: Option<String>,
}

/// List the actions of a workflow, as `torc get actions`.
#[derive(Debug, Args)]
pub struct ListActionsArgs {
    /// The workflow, by name or number; may be left out where the store holds one.
    #[arg(value_name = "WORKFLOW")]
    pub workflow: Option<String>,
}

/// Runs the group.
pub async fn run(context: &Context, args: WorkflowsArgs) -> Result<ExitStatus, CommandError> {
    match args.command {
        WorkflowsCommand::List(args) => get::run(context, &list(args)).await,
        WorkflowsCommand::Get(args) => describe::run(context, &one(args)).await,
        WorkflowsCommand::Status(args) => status::run(context, &args).await,
        WorkflowsCommand::Cancel(args) => control::cancel(context, &args).await,
        WorkflowsCommand::Delete(args) => delete::run(context, &args).await,
        WorkflowsCommand::Init(args) => restart::init(context, &args).await,
        WorkflowsCommand::Reinit(args) => restart::reinit(context, &args).await,
        WorkflowsCommand::ResetStatus(args) => retry::run(context, &reset(args)).await,
        WorkflowsCommand::Export(args) => export(context, &args).await,
        WorkflowsCommand::Reconcile(args) => reconcile::run(context, &args).await,
        WorkflowsCommand::SyncStatus(args) => sync_status::run(context, &args).await,
        WorkflowsCommand::CorrectResources(args) => correct_resources::run(context, &args).await,
        WorkflowsCommand::CreateSlurm(args) => create::run(context, &args).await,
        WorkflowsCommand::ListActions(args) => get::run(context, &list_actions(args)).await,
    }
}

fn list(args: ListArgs) -> GetArgs {
    GetArgs { resource: "workflows".to_owned(), watch: args.watch, limit: args.limit, ..GetArgs::default() }
}

fn one(args: OneArgs) -> DescribeArgs {
    DescribeArgs { resource: "workflow".to_owned(), name: args.workflow, workflow: None }
}

fn list_actions(args: ListActionsArgs) -> GetArgs {
    GetArgs { resource: "actions".to_owned(), workflow: args.workflow, ..GetArgs::default() }
}

fn reset(args: ResetStatusArgs) -> RetryArgs {
    RetryArgs { workflow: args.workflow, all: !args.failed_only, ..RetryArgs::default() }
}

async fn export(context: &Context, args: &ExportArgs) -> Result<ExitStatus, CommandError> {
    let document = with_client(&context.settings, &context.folder, async |client: &Client| {
        let name = resolve_workflow(client, args.workflow.as_deref()).await?;
        Ok(client.workflow(&name).await.map_err(explain_missing)?.document)
    })
    .await?;
    context.output.document(&json!(document.map(Document::Workflow)))?;
    Ok(ExitStatus::Success)
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn each_spelling_asks_for_what_was_typed() {
        let listed = list(ListArgs { watch: true, limit: Some(3) });
        assert_eq!((listed.resource.as_str(), listed.watch, listed.limit), ("workflows", true, Some(3)));
        let shown = one(OneArgs { workflow: Some("w".to_owned()) });
        assert_eq!((shown.resource.as_str(), shown.name.as_deref(), shown.workflow), ("workflow", Some("w"), None));
        let actions = list_actions(ListActionsArgs { workflow: Some("w".to_owned()) });
        assert_eq!((actions.resource.as_str(), actions.workflow.as_deref()), ("actions", Some("w")));
        for failed_only in [true, false] {
            let put_back = reset(ResetStatusArgs { workflow: Some("w".to_owned()), failed_only });
            assert_eq!(
                (put_back.workflow.as_deref(), put_back.all, put_back.changed, put_back.dry_run),
                (Some("w"), !failed_only, false, false)
            );
        }
    }
}
