//! `torc slurm`: allocations for jobs, and reports about them. One file per subcommand.

pub mod allocations;
pub mod create;
mod generate;
pub mod parse_logs;
mod plan;
mod plan_allocations;
pub mod regenerate;
mod rows;
pub mod sacct;
pub mod schedule_nodes;
pub mod stats;
pub mod usage;

use clap::{Args, Subcommand};

use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};

/// Plan and submit Slurm allocations, and report their usage
#[derive(Debug, Args)]
pub struct SlurmArgs {
    #[command(subcommand)]
    pub command: SlurmCommand,
}

#[derive(Debug, Subcommand)]
pub enum SlurmCommand {
    Generate(generate::GenerateSchedulersArgs),
    PlanAllocations(plan_allocations::PlanAllocationsArgs),
    Regenerate(regenerate::RegenerateArgs),
    ScheduleNodes(schedule_nodes::ScheduleNodesArgs),
    Stats(stats::StatsArgs),
    Sacct(sacct::SacctArgs),
    Usage(usage::UsageArgs),
    ParseLogs(parse_logs::ParseLogsArgs),
}

pub async fn run(context: &CommandContext, args: SlurmArgs) -> Result<ExitStatus, CliError> {
    match args.command {
        SlurmCommand::Generate(args) => generate::run(context, &args).await,
        SlurmCommand::PlanAllocations(args) => plan_allocations::run(context, &args).await,
        SlurmCommand::Regenerate(args) => regenerate::run(context, &args).await,
        SlurmCommand::ScheduleNodes(args) => schedule_nodes::run(context, &args).await,
        SlurmCommand::Stats(args) => stats::run(context, &args).await,
        SlurmCommand::Sacct(args) => sacct::run(context, &args).await,
        SlurmCommand::Usage(args) => usage::run(context, &args).await,
        SlurmCommand::ParseLogs(args) => parse_logs::run(context, &args).await,
    }
}
