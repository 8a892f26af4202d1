//! `torc hpc`: show clusters and their partitions, from profiles or from Slurm.

mod matching;
mod partitions;
mod write;

use clap::{Args, Subcommand};
use serde::Serialize;
use torc_api::cluster::Partition;

pub use matching::read_partitions;

use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::output::{SiteRow, human};
use crate::sites::{self, Site};

/// Show clusters and partitions, and find where jobs fit
#[derive(Debug, Args)]
pub struct HpcArgs {
    #[command(subcommand)]
    pub command: HpcCommand,
}

#[derive(Debug, Subcommand)]
pub enum HpcCommand {
    List(ListArgs),
    Detect(DetectArgs),
    Show(ShowClusterArgs),
    Partitions(partitions::PartitionsArgs),
    Match(matching::MatchArgs),
    Generate(write::GenerateClusterArgs),
}

/// List the known clusters
///
/// Lists the profiles that come with Torc and your own: files `NAME.toml` in `~/.config/torc/profiles`.
#[derive(Debug, Args)]
pub struct ListArgs {}

/// Detect the cluster of this machine
///
/// Recognizes a known cluster by a variable, the host name or a file. Otherwise queries Slurm.
#[derive(Debug, Args)]
pub struct DetectArgs {
    #[command(flatten)]
    pub prefix: CommandPrefixArgs,
}

/// Show a cluster in detail
#[derive(Debug, Args)]
pub struct ShowClusterArgs {
    /// Profile name, profile file (`.toml`), or `slurm` to query Slurm (default: this cluster)
    #[arg(value_name = "PROFILE")]
    pub profile: Option<String>,
    #[command(flatten)]
    pub prefix: CommandPrefixArgs,
}

/// Flags for the call of Slurm commands.
#[derive(Clone, Debug, Default, Args)]
pub struct CommandPrefixArgs {
    /// Prefix of every Slurm command, e.g. `ssh login1` (default: none)
    #[arg(long, value_name = "WORDS")]
    pub command_prefix: Option<String>,
}

impl CommandPrefixArgs {
    /// Returns the words of the prefix.
    pub fn words(&self) -> Vec<String> {
        self.command_prefix.as_deref().unwrap_or_default().split_whitespace().map(str::to_owned).collect()
    }
}

/// Flags that select a cluster.
#[derive(Clone, Debug, Default, Args)]
pub struct SiteArgs {
    /// Profile name, profile file (`.toml`), or `slurm` to query Slurm (default: this cluster)
    #[arg(long, value_name = "PROFILE")]
    pub profile: Option<String>,
    #[command(flatten)]
    pub prefix: CommandPrefixArgs,
}

impl SiteArgs {
    pub async fn find(&self) -> Result<Site, CliError> {
        sites::find(self.profile.as_deref(), &self.prefix.words()).await
    }
}

pub async fn run(context: &CommandContext, args: HpcArgs) -> Result<ExitStatus, CliError> {
    match args.command {
        HpcCommand::List(_) => list(context)?,
        HpcCommand::Detect(args) => detect(context, &args).await?,
        HpcCommand::Show(args) => show(context, &args).await?,
        HpcCommand::Partitions(args) => partitions::run(context, &args).await?,
        HpcCommand::Match(args) => matching::run(context, &args).await?,
        HpcCommand::Generate(args) => write::run(context, &args).await?,
    }
    Ok(ExitStatus::Success)
}

fn list(context: &CommandContext) -> Result<(), CliError> {
    let rows: Vec<SiteRow> = sites::all()?.iter().map(row).collect();
    context.output.list(&rows)
}

fn row(site: &Site) -> SiteRow {
    SiteRow {
        name: site.profile.name.clone(),
        title: site.profile.title.clone(),
        partitions: site.profile.partitions.len(),
        here: sites::is_here(site),
        origin: site.origin.to_string(),
    }
}

/// A cluster in JSON output.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ClusterDetails<'a> {
    name: &'a str,
    title: &'a str,
    origin: String,
    here: bool,
    charge_factor_cpu: f64,
    charge_factor_gpu: f64,
    partitions: &'a [Partition],
}

impl<'a> ClusterDetails<'a> {
    fn of(site: &'a Site) -> Self {
        let profile = &site.profile;
        Self {
            name: &profile.name,
            title: &profile.title,
            origin: site.origin.to_string(),
            here: site.origin == sites::ProfileOrigin::Detected || sites::is_here(site),
            charge_factor_cpu: profile.charge_factor_cpu,
            charge_factor_gpu: profile.charge_factor_gpu,
            partitions: &profile.partitions,
        }
    }

    fn headline(&self) -> String {
        let count = human::count(i64::try_from(self.partitions.len()).unwrap_or(i64::MAX), "partition");
        let title = if self.title == self.origin { "detected from Slurm" } else { self.title };
        format!("{}: {title} ({}), {count}\n", self.name, self.origin)
    }
}

async fn detect(context: &CommandContext, args: &DetectArgs) -> Result<(), CliError> {
    let site = sites::find(None, &args.prefix.words()).await?;
    let shown = ClusterDetails::of(&site);
    context.output.value(&shown, || {
        let next =
            "list its partitions with `torc hpc partitions`; write a SlurmCluster document with `torc hpc generate`\n";
        format!("{}{next}", shown.headline())
    })
}

async fn show(context: &CommandContext, args: &ShowClusterArgs) -> Result<(), CliError> {
    let site = sites::find(args.profile.as_deref(), &args.prefix.words()).await?;
    let shown = ClusterDetails::of(&site);
    context.output.value(&shown, || {
        let mut text = shown.headline();
        let factors = (shown.charge_factor_cpu, shown.charge_factor_gpu);
        text.push_str(&format!("a node-hour costs {} without GPUs, {} with GPUs\n\n", factors.0, factors.1));
        text.push_str(&context.output.table(&partitions::rows(&site, |_| true)));
        text
    })
}
