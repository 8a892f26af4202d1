//! `torc hpc match`: find the partitions that a job fits.

use clap::Args;
use torc_api::quantity::{parse_memory, parse_walltime};
use torc_core::expanded::Requirements;
use torc_core::planning::fit::WalltimeMargin;
use torc_core::planning::partition::{PartitionLimits, choose};

use super::SiteArgs;
use crate::context::CommandContext;
use crate::error::CliError;
use crate::output::MatchRow;
use crate::sites::Site;

/// Show the partitions that a job fits, and the one that Torc would choose
#[derive(Debug, Args)]
pub struct MatchArgs {
    /// CPUs per node
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(i64).range(1..))]
    pub cpus: i64,
    /// Memory per node, e.g. `200g`
    #[arg(long, value_name = "SIZE", default_value = "1m", value_parser = memory)]
    pub memory: i64,
    /// Walltime, e.g. `4h` or `04:00:00`
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = walltime)]
    pub walltime: i64,
    /// GPUs per node
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(i64).range(0..))]
    pub gpus: i64,
    /// Number of nodes
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(i64).range(1..))]
    pub nodes: i64,
    #[command(flatten)]
    pub site: SiteArgs,
}

fn memory(text: &str) -> Result<i64, String> {
    parse_memory(text).map_err(|error| format!("{error}; {}", error.hint()))
}

fn walltime(text: &str) -> Result<i64, String> {
    parse_walltime(text).map_err(|error| format!("{error}; {}", error.hint()))
}

pub(super) async fn run(context: &CommandContext, args: &MatchArgs) -> Result<(), CliError> {
    let site = args.site.find().await?;
    let needs = Requirements {
        num_cpus: args.cpus,
        memory_bytes: args.memory,
        num_gpus: args.gpus,
        num_nodes: args.nodes,
        runtime_seconds: args.walltime,
        ..Requirements::default()
    };
    let partitions = read_partitions(&site)?;
    let chosen = choose(&needs, &partitions, None, WalltimeMargin::default()).map(|partition| partition.name.clone());
    let rows: Vec<MatchRow> = partitions.iter().map(|partition| row(&needs, partition, chosen.as_ref().ok())).collect();
    context.output.list(&rows)?;
    if let Err(reason) = chosen {
        return Err(CliError::not_found(format!("the job fits no partition of {}: {reason}", site.profile.name))
            .hint("request less, or name a partition in the scheduler of the document"));
    }
    Ok(())
}

/// Returns the partitions of a cluster with their values parsed.
pub fn read_partitions(site: &Site) -> Result<Vec<PartitionLimits>, CliError> {
    let read = |partition| {
        PartitionLimits::try_from(partition).map_err(|error| {
            CliError::invalid(format!("the profile {} has an invalid partition", site.profile.name)).because(error)
        })
    };
    site.profile.partitions.iter().map(read).collect()
}

fn row(needs: &Requirements, partition: &PartitionLimits, chosen: Option<&String>) -> MatchRow {
    let mismatch =
        choose(needs, std::slice::from_ref(partition), Some(&partition.name), WalltimeMargin::default()).err();
    MatchRow {
        partition: partition.name.clone(),
        fits: mismatch.is_none(),
        chosen: chosen == Some(&partition.name),
        reason: mismatch
            .map(|reason| reason.to_string())
            .or_else(|| partition.on_request.then(|| "used only if named".to_owned())),
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn a_partition_that_must_be_named_fits_and_is_not_chosen() {
        let partition = |name: &str, cpus: i64, on_request: bool| -> PartitionLimits {
            let value = serde_json::json!({ "name": name, "cpusPerNode": cpus, "memoryMb": 1024, "maxWalltime": "1h", "requiresExplicitRequest": on_request });
            let partition: torc_api::cluster::Partition = serde_json::from_value(value).expect("a partition");
            PartitionLimits::try_from(&partition).expect("a partition")
        };
        let needs = Requirements { num_cpus: 4, runtime_seconds: 60, ..Requirements::default() };
        let chosen = "large".to_owned();
        let shown = |partition: &PartitionLimits| {
            let row = row(&needs, partition, Some(&chosen));
            (row.fits, row.chosen, row.reason)
        };
        assert_eq!(shown(&partition("large", 4, false)), (true, true, None));
        assert_eq!(shown(&partition("other", 4, true)), (true, false, Some("used only if named".to_owned())));
        let (fits, is_chosen, reason) = shown(&partition("small", 3, false));
        assert!(!fits && !is_chosen && reason.is_some_and(|reason| reason.contains('4')));
    }
}
