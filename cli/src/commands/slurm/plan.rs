//! Planning of schedulers for a document, which `slurm generate`, `slurm plan-allocations` and `create-slurm` share.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use torc_core::expand::{ExpansionLimits, entries_of_jobs};
use torc_core::expanded::Expanded;
use torc_core::planning::fit::{Walltime, WalltimeMargin};
use torc_core::planning::generate::{self, PlanSettings, SchedulerPlan};
use torc_core::planning::groups;

use crate::commands::hpc::{SiteArgs, read_partitions};
use crate::context::CommandContext;
use crate::documents::{self, LoadedWorkflow};
use crate::error::CliError;
use crate::sites::Site;

/// Flags of the planning.
#[derive(Clone, Debug, Default, Args)]
pub struct SchedulerPlanArgs {
    /// Account to charge (default: $SBATCH_ACCOUNT, $SLURM_ACCOUNT or the account in the document)
    #[arg(long)]
    pub account: Option<String>,
    #[command(flatten)]
    pub site: SiteArgs,
    /// Partition for all allocations (default: chosen for each group)
    #[arg(long)]
    pub partition: Option<String>,
    /// Walltime of allocations
    #[arg(long, value_enum, value_name = "STRATEGY", default_value_t)]
    pub walltime_strategy: WalltimeStrategy,
    /// Grouping of jobs into schedulers
    #[arg(long, value_enum, value_name = "WHAT", default_value_t)]
    pub group_by: GroupBy,
    /// Plan one allocation with all nodes instead of one per node
    #[arg(long)]
    pub single_allocation: bool,
}

/// The rule for the walltime of allocations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum WalltimeStrategy {
    /// 1.5 times the runtime of the longest job
    #[default]
    MaxJobRuntime,
    /// The time limit of the partition
    MaxPartitionTime,
}

/// The rule for the grouping of jobs into schedulers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum GroupBy {
    /// One scheduler per partition
    #[default]
    Partition,
    /// One scheduler per set of requirements
    ResourceRequirements,
}

/// A document with the allocations that its jobs need.
pub(super) struct PlannedWorkflow {
    pub workflow: LoadedWorkflow,
    pub expanded: Expanded,
    /// The index of the document entry for each job.
    pub entries: Vec<u32>,
    pub site: Site,
    pub plan: SchedulerPlan,
}

/// Reads a document and plans its allocations.
pub(super) async fn plan(
    context: &CommandContext,
    path: &Path,
    args: &SchedulerPlanArgs,
) -> Result<PlannedWorkflow, CliError> {
    let paths = [PathBuf::from(path)];
    let workflows = documents::read_valid(&paths, context.settings.namespace.as_deref(), context.output)?.workflows;
    let expanded = crate::commands::plan::expand_all(&workflows, context.settings.server.max_jobs)?;
    let mut found = workflows.into_iter().zip(expanded);
    let (Some((workflow, expanded)), None) = (found.next(), found.next()) else {
        let message = format!("{} must contain exactly one workflow", path.display());
        return Err(CliError::invalid(message).hint("select a file with one workflow"));
    };
    let limits = ExpansionLimits { max_jobs: context.settings.server.max_jobs, ..ExpansionLimits::default() };
    let entries = entries_of_jobs(&workflow.document.spec, &limits).unwrap_or_default();
    let account = account(args, &workflow)?;
    let site = args.site.find().await?;
    let partitions = read_partitions(&site)?;
    if let Some(name) = args.partition.as_deref().filter(|name| !partitions.iter().any(|one| one.name == **name)) {
        let names: Vec<&str> = partitions.iter().map(|partition| partition.name.as_str()).collect();
        return Err(CliError::not_found(format!("{} has no partition `{name}`", site.profile.name))
            .hint(format!("available partitions: {}", names.join(", "))));
    }
    let settings = PlanSettings {
        account: &account,
        partition: args.partition.as_deref(),
        by_requirements: args.group_by == GroupBy::ResourceRequirements,
        walltime: match args.walltime_strategy {
            WalltimeStrategy::MaxJobRuntime => Walltime::FromJobs,
            WalltimeStrategy::MaxPartitionTime => Walltime::FromPartition,
        },
        margin: WalltimeMargin::of(workflow.document.spec.execution_config.as_ref()),
        single_allocation: args.single_allocation,
        seconds: None,
        keep_apart: false,
        stamp: None,
    };
    let plan = generate::plan(&groups::pending(&expanded, |_| true), &partitions, settings);
    Ok(PlannedWorkflow { workflow, expanded, entries, site, plan })
}

fn account(args: &SchedulerPlanArgs, workflow: &LoadedWorkflow) -> Result<String, CliError> {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let written = || workflow.document.spec.slurm_schedulers.first().map(|scheduler| scheduler.account.clone());
    args.account
        .clone()
        .or_else(|| set("SBATCH_ACCOUNT"))
        .or_else(|| set("SLURM_ACCOUNT"))
        .or_else(written)
        .filter(|account| !account.is_empty())
        .ok_or_else(|| {
            CliError::usage("missing account").hint(
                "set it with --account; `sacctmgr show associations user=$USER format=account` lists your accounts",
            )
        })
}
