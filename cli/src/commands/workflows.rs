//! `torc workflows`: commands on workflows, in the group of Torc 1.0. [`crate::spellings`] adds those that have another name
//! here.

use clap::{Args, Subcommand};
use serde_json::json;
use torc_api::document::Document;

use super::correct_resources::CorrectResourcesArgs;
use super::reconcile::ReconcileArgs;
use super::restart::{InitArgs, ReinitArgs};
use super::slurm::create::{self, CreateSlurmArgs};
use super::sync_status::SyncStatusArgs;
use super::{correct_resources, reconcile, restart, sync_status};
use crate::client::Client;
use crate::connection::{explain_missing, resolve_workflow, with_client};
use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};

/// List, restart, repair and export workflows, as in Torc 1.0
#[derive(Debug, Args)]
pub struct WorkflowsArgs {
    #[command(subcommand)]
    pub command: WorkflowsCommand,
}

#[derive(Debug, Subcommand)]
pub enum WorkflowsCommand {
    Init(InitArgs),
    Reinit(ReinitArgs),
    Export(ExportArgs),
    Reconcile(ReconcileArgs),
    SyncStatus(SyncStatusArgs),
    CorrectResources(CorrectResourcesArgs),
    CreateSlurm(CreateSlurmArgs),
}

/// Print the document of a workflow
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// Workflow by name or number (default: the only one in the store)
    #[arg(value_name = "WORKFLOW")]
    pub workflow: Option<String>,
}

pub async fn run(context: &CommandContext, args: WorkflowsArgs) -> Result<ExitStatus, CliError> {
    match args.command {
        WorkflowsCommand::Init(args) => restart::init(context, &args).await,
        WorkflowsCommand::Reinit(args) => restart::reinit(context, &args).await,
        WorkflowsCommand::Export(args) => export(context, &args).await,
        WorkflowsCommand::Reconcile(args) => reconcile::run(context, &args).await,
        WorkflowsCommand::SyncStatus(args) => sync_status::run(context, &args).await,
        WorkflowsCommand::CorrectResources(args) => correct_resources::run(context, &args).await,
        WorkflowsCommand::CreateSlurm(args) => create::run(context, &args).await,
    }
}

async fn export(context: &CommandContext, args: &ExportArgs) -> Result<ExitStatus, CliError> {
    let document = with_client(&context.settings, &context.folder, async |client: &Client| {
        let name = resolve_workflow(client, args.workflow.as_deref()).await?;
        Ok(client.workflow(&name).await.map_err(explain_missing)?.document)
    })
    .await?;
    context.output.document(&json!(document.map(Document::Workflow)))?;
    Ok(ExitStatus::Success)
}
