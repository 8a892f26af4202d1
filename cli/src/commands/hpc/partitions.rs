//! `torc hpc partitions`: list the partitions of a cluster.

use clap::Args;
use torc_api::cluster::Partition;

use super::SiteArgs;
use crate::context::CommandContext;
use crate::error::CliError;
use crate::output::PartitionRow;
use crate::sites::{self, Site};

/// List the partitions of a cluster
#[derive(Debug, Args)]
pub struct PartitionsArgs {
    /// Profile name, profile file (`.toml`), or `slurm` to query Slurm (default: this cluster)
    #[arg(value_name = "PROFILE", conflicts_with = "profile")]
    pub name: Option<String>,
    #[command(flatten)]
    pub site: SiteArgs,
    /// List only partitions with GPUs
    #[arg(long)]
    pub gpu: bool,
    /// List only partitions with shared nodes
    #[arg(long)]
    pub shared: bool,
}

pub(super) async fn run(context: &CommandContext, args: &PartitionsArgs) -> Result<(), CliError> {
    let name = args.name.as_deref().or(args.site.profile.as_deref());
    let site = sites::find(name, &args.site.prefix.words()).await?;
    let wanted = |partition: &Partition| {
        (!args.gpu || partition.gpus_per_node.unwrap_or(0) > 0) && (!args.shared || partition.shared == Some(true))
    };
    context.output.list(&rows(&site, wanted))
}

/// Returns the rows of selected partitions.
pub(super) fn rows(site: &Site, wanted: impl Fn(&Partition) -> bool) -> Vec<PartitionRow> {
    site.profile.partitions.iter().filter(|partition| wanted(partition)).cloned().map(PartitionRow).collect()
}
