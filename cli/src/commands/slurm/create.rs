//! `torc workflows create-slurm`: store a workflow with planned schedulers, without changing its file.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use torc_core::planning::document::write;

use super::generate::{no_schedulable_job, refuse_known};
use super::plan::{SchedulerPlanArgs, plan};
use crate::connection::ServerConnection;
use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::output::{SchedulerRow, human};
use crate::use_cases::submit::{SubmitPurpose, line, submit_workflows};

/// Store a workflow with Slurm schedulers and actions for its jobs, as in Torc 1.0
///
/// Does not change the file and submits nothing. `torc slurm generate FILE` writes the same schedulers and actions into the file;
/// `torc submit` then submits it.
#[derive(Debug, Args)]
pub struct CreateSlurmArgs {
    /// Document with one workflow
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    #[command(flatten)]
    pub plan: SchedulerPlanArgs,
    /// Replace existing schedulers and scheduling actions
    #[arg(long)]
    pub overwrite: bool,
}

/// The outcome in JSON output.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CreatedWorkflow<'a> {
    workflow: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<i64>,
    profile: &'a str,
    schedulers: Vec<SchedulerRow>,
}

pub async fn run(context: &CommandContext, args: &CreateSlurmArgs) -> Result<ExitStatus, CliError> {
    let mut planned = plan(context, &args.file, &args.plan).await?;
    refuse_known(&args.file, &planned, args.overwrite)?;
    if planned.plan.planned.is_empty() {
        return Err(no_schedulable_job(&planned));
    }
    let spec = write(&planned.workflow.document.spec, &planned.expanded, &planned.entries, &planned.plan, true);
    planned.workflow.document.spec = spec;
    if context.settings.url.is_none() {
        crate::connection::create_store_dir(&context.folder)?;
    }
    let connection = ServerConnection::open(&context.settings, &context.folder).await?;
    let stored =
        submit_workflows(context, connection.client(), std::slice::from_ref(&planned.workflow), SubmitPurpose::Store)
            .await;
    connection.close().await;
    let stored = stored?;
    let Some(response) = stored.first() else { return Err(CliError::not_found("the server stored no workflow")) };
    let created = CreatedWorkflow {
        workflow: &response.name,
        id: response.id,
        profile: &planned.site.profile.name,
        schedulers: planned.plan.planned.iter().map(SchedulerRow::of).collect(),
    };
    let allocations: i64 = planned.plan.planned.iter().map(|one| one.allocations).sum();
    let file = args.file.display();
    context.output.value(&created, || {
        format!(
            "{}{}\n{} planned on {}; submit with: torc submit {}\nto write the schedulers into the file instead: \
             `torc slurm generate {file}`, then `torc submit {file}`\n",
            context.output.table(&created.schedulers),
            line(response, SubmitPurpose::Store),
            human::count(allocations, "allocation"),
            created.profile,
            created.workflow,
        )
    })?;
    Ok(ExitStatus::Success)
}
