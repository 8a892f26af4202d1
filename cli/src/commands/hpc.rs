//! `torc hpc`: clusters and their partitions, known or detected.

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

/// Clusters and their partitions: which there are, which one this is, where jobs fit.
#[derive(Debug, Args)]
pub struct HpcArgs {
    #[command(subcommand)]
    pub command: HpcCommand,
}

/// What can be asked; each is described where its arguments are.
#[derive(Debug, Subcommand)]
pub enum HpcCommand {
    List(ListArgs),
    Detect(DetectArgs),
    Show(ShowArgs),
    Partitions(partitions::PartitionsArgs),
    Match(matching::MatchArgs),
    Generate(write::GenerateArgs),
}

/// List the clusters that are known.
///
/// Those that come with Torc, and your own: files `NAME.toml` in `~/.config/torc/profiles`.
#[derive(Debug, Args)]
pub struct ListArgs {}

/// Say which cluster this is.
///
/// One that is known, by a variable, the host's name or a file; otherwise what Slurm says about itself.
#[derive(Debug, Args)]
pub struct DetectArgs {
    #[command(flatten)]
    pub way: WayArgs,
}

/// Show what is known of a cluster.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// A profile by name, a file of your own (`.toml`), or `slurm` for what Slurm says; this cluster when absent.
    #[arg(value_name = "PROFILE")]
    pub profile: Option<String>,
    #[command(flatten)]
    pub way: WayArgs,
}

/// How to reach Slurm's commands.
#[derive(Clone, Debug, Default, Args)]
pub struct WayArgs {
    /// Words before every Slurm command, e.g. `ssh login1`.
    #[arg(long, value_name = "WORDS")]
    pub command_prefix: Option<String>,
}

impl WayArgs {
    /// The words.
    pub fn prefix(&self) -> Vec<String> {
        self.command_prefix.as_deref().unwrap_or_default().split_whitespace().map(str::to_owned).collect()
    }
}

/// Which cluster.
#[derive(Clone, Debug, Default, Args)]
pub struct SiteArgs {
    /// A profile by name, a file of your own (`.toml`), or `slurm` for what Slurm says; this cluster when absent.
    #[arg(long, value_name = "PROFILE")]
    pub profile: Option<String>,
    #[command(flatten)]
    pub way: WayArgs,
}

impl SiteArgs {
    /// Finds it.
    pub async fn find(&self) -> Result<Site, CliError> {
        sites::find(self.profile.as_deref(), &self.way.prefix()).await
    }
}

/// Runs the group.
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

/// A cluster for programs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown<'a> {
    name: &'a str,
    title: &'a str,
    origin: String,
    here: bool,
    charge_factor_cpu: f64,
    charge_factor_gpu: f64,
    partitions: &'a [Partition],
}

impl<'a> Shown<'a> {
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
        let title = if self.title == self.origin { "as Slurm describes itself" } else { self.title };
        format!("{}: {title} ({}), {count}\n", self.name, self.origin)
    }
}

async fn detect(context: &CommandContext, args: &DetectArgs) -> Result<(), CliError> {
    let site = sites::find(None, &args.way.prefix()).await?;
    let shown = Shown::of(&site);
    context.output.value(&shown, || {
        let next = "`torc hpc partitions` lists them, `torc hpc generate` writes a SlurmCluster document\n";
        format!("{}{next}", shown.headline())
    })
}

async fn show(context: &CommandContext, args: &ShowArgs) -> Result<(), CliError> {
    let site = sites::find(args.profile.as_deref(), &args.way.prefix()).await?;
    let shown = Shown::of(&site);
    context.output.value(&shown, || {
        let mut text = shown.headline();
        let factors = (shown.charge_factor_cpu, shown.charge_factor_gpu);
        text.push_str(&format!("a node-hour costs {} without GPUs, {} with GPUs\n\n", factors.0, factors.1));
        text.push_str(&context.output.table(&partitions::rows(&site, |_| true)));
        text
    })
}
