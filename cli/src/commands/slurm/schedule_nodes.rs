//! `torc slurm schedule-nodes`: submit allocations of a scheduler.

use clap::Args;
use torc_api::recovery::ScheduleNodesRequest;

use crate::client::Client;
use crate::connection::{ServerConnection, explain_missing, resolve_workflow};
use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::use_cases::background_server::ensure_background_server;

/// Submit allocations of a scheduler of a workflow
#[derive(Debug, Args)]
pub struct ScheduleNodesArgs {
    /// Workflow by name or number (default: the only one in the store)
    #[arg(value_name = "WORKFLOW")]
    pub workflow: Option<String>,
    /// Scheduler to use (default: the only one)
    #[arg(long, value_name = "NAME")]
    pub scheduler: Option<String>,
    /// Number of allocations
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(i64).range(1..=1000))]
    pub num_allocations: i64,
    /// Start one runner per node instead of one per allocation
    #[arg(long)]
    pub start_one_worker_per_node: bool,
    /// Maximum number of parallel jobs, regardless of their requirements
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    pub max_parallel_jobs: Option<i32>,
}

pub async fn run(context: &CommandContext, args: &ScheduleNodesArgs) -> Result<ExitStatus, CliError> {
    let connection = ServerConnection::open(&context.settings, &context.folder).await?;
    let is_served = connection.is_served();
    let result = schedule(context, args, connection.client()).await;
    connection.close().await;
    let workflow = result?;
    if !is_served {
        ensure_background_server(context, &workflow).await?;
    }
    Ok(ExitStatus::Success)
}

async fn schedule(context: &CommandContext, args: &ScheduleNodesArgs, client: &Client) -> Result<String, CliError> {
    let name = resolve_workflow(client, args.workflow.as_deref()).await?;
    let request = ScheduleNodesRequest {
        scheduler: args.scheduler.clone(),
        num_allocations: Some(args.num_allocations),
        start_one_worker_per_node: args.start_one_worker_per_node,
        max_parallel_jobs: args.max_parallel_jobs,
    };
    let scheduled = client.schedule_nodes(&name, &request).await.map_err(explain_missing)?;
    context.output.value(&scheduled, || format!("submitted {}\n", scheduled.allocations.join(", ")))?;
    Ok(name)
}
