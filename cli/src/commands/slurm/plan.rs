//! What `slurm generate` and `slurm plan-allocations` have in common: from a document and a cluster to schedulers.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use torc_core::expand::{Limits, entries_of_jobs};
use torc_core::expanded::Expanded;
use torc_core::planning::fit::{Walltime, WalltimeMargin};
use torc_core::planning::generate::{self, Plan, Settings};
use torc_core::planning::groups;

use crate::commands::hpc::{SiteArgs, read_partitions};
use crate::context::CommandContext;
use crate::documents::{self, LoadedWorkflow};
use crate::error::CliError;
use crate::sites::Site;

/// How allocations are planned.
#[derive(Clone, Debug, Default, Args)]
pub struct PlanArgs {
    /// The account that is charged ($SBATCH_ACCOUNT, $SLURM_ACCOUNT or that of the document's schedulers when absent).
    #[arg(long)]
    pub account: Option<String>,
    #[command(flatten)]
    pub site: SiteArgs,
    /// Use this partition for everything.
    #[arg(long)]
    pub partition: Option<String>,
    /// How long allocations are: one and a half times the longest job, or as long as the partition allows.
    #[arg(long, value_enum, value_name = "STRATEGY", default_value_t)]
    pub walltime_strategy: WalltimeStrategy,
    /// A scheduler for each partition, or for each set of requirements.
    #[arg(long, value_enum, value_name = "WHAT", default_value_t)]
    pub group_by: GroupBy,
    /// One allocation with all nodes, and not one for each node.
    #[arg(long)]
    pub single_allocation: bool,
}

/// How long allocations are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum WalltimeStrategy {
    /// One and a half times the longest job.
    #[default]
    MaxJobRuntime,
    /// As long as the partition allows.
    MaxPartitionTime,
}

/// What a scheduler is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum GroupBy {
    /// All jobs of a partition.
    #[default]
    Partition,
    /// All jobs with the same requirements.
    ResourceRequirements,
}

/// A document, and the allocations that its jobs need.
pub(super) struct Planned {
    pub workflow: LoadedWorkflow,
    pub expanded: Expanded,
    /// For each job the entry that it is from.
    pub entries: Vec<u32>,
    pub site: Site,
    pub plan: Plan,
}

/// Reads a document and plans for it.
pub(super) async fn plan(context: &CommandContext, path: &Path, args: &PlanArgs) -> Result<Planned, CliError> {
    let paths = [PathBuf::from(path)];
    let workflows = documents::read_valid(&paths, context.settings.namespace.as_deref(), context.output)?.workflows;
    let expanded = crate::commands::plan::expand_all(&workflows, context.settings.server.max_jobs)?;
    let mut found = workflows.into_iter().zip(expanded);
    let (Some((workflow, expanded)), None) = (found.next(), found.next()) else {
        let message = format!("{} must hold one workflow", path.display());
        return Err(CliError::invalid(message).hint("name a file with one workflow"));
    };
    let limits = Limits { max_jobs: context.settings.server.max_jobs, ..Limits::default() };
    let entries = entries_of_jobs(&workflow.document.spec, &limits).unwrap_or_default();
    let account = account(args, &workflow)?;
    let site = args.site.find().await?;
    let partitions = read_partitions(&site)?;
    if let Some(name) = args.partition.as_deref().filter(|name| !partitions.iter().any(|one| one.name == **name)) {
        let names: Vec<&str> = partitions.iter().map(|partition| partition.name.as_str()).collect();
        return Err(CliError::not_found(format!("{} has no partition `{name}`", site.profile.name))
            .hint(format!("it has {}", names.join(", "))));
    }
    let settings = Settings {
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
    Ok(Planned { workflow, expanded, entries, site, plan })
}

fn account(args: &PlanArgs, workflow: &LoadedWorkflow) -> Result<String, CliError> {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let written = || workflow.document.spec.slurm_schedulers.first().map(|scheduler| scheduler.account.clone());
    args.account
        .clone()
        .or_else(|| set("SBATCH_ACCOUNT"))
        .or_else(|| set("SLURM_ACCOUNT"))
        .or_else(written)
        .filter(|account| !account.is_empty())
        .ok_or_else(|| {
            CliError::usage("an account is needed")
                .hint("give it with --account; `sacctmgr show associations user=$USER format=account` lists yours")
        })
}
