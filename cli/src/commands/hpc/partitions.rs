//! `torc hpc partitions`: what a cluster's partitions have.

use clap::Args;
use torc_api::cluster::Partition;

use super::SiteArgs;
use crate::context::CommandContext;
use crate::error::CliError;
use crate::output::PartitionRow;
use crate::sites::{self, Site};

/// List the partitions of a cluster.
#[derive(Debug, Args)]
pub struct PartitionsArgs {
    /// A profile by name, a file of your own (`.toml`), or `slurm` for what Slurm says; this cluster when absent.
    #[arg(value_name = "PROFILE", conflicts_with = "profile")]
    pub name: Option<String>,
    #[command(flatten)]
    pub site: SiteArgs,
    /// Only those with GPUs.
    #[arg(long)]
    pub gpu: bool,
    /// Only those whose nodes are shared.
    #[arg(long)]
    pub shared: bool,
}

pub(super) async fn run(context: &CommandContext, args: &PartitionsArgs) -> Result<(), CliError> {
    let name = args.name.as_deref().or(args.site.profile.as_deref());
    let site = sites::find(name, &args.site.way.prefix()).await?;
    let wanted = |partition: &Partition| {
        (!args.gpu || partition.gpus_per_node.unwrap_or(0) > 0) && (!args.shared || partition.shared == Some(true))
    };
    context.output.list(&rows(&site, wanted))
}

/// Rows of the partitions that are wanted.
pub(super) fn rows(site: &Site, wanted: impl Fn(&Partition) -> bool) -> Vec<PartitionRow> {
    site.profile.partitions.iter().filter(|partition| wanted(partition)).cloned().map(PartitionRow).collect()
}
