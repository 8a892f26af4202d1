//! Clusters that are known here: a person's own profiles, those that come with Torc, and what Slurm says about itself.

use std::path::{Path, PathBuf};
use std::time::Duration;

use torc_api::cluster::Partition;
use torc_slurm::error::SlurmError;
use torc_slurm::exec::Slurm;
use torc_slurm::profiles::{self, DETECTED, DetectContext, SiteProfile};
use torc_slurm::retry::{QUESTION, Schedule};
use torc_slurm::{partitions, scontrol, sinfo};

use crate::env;
use crate::error::{CliError, ExitStatus};

/// A person waits for the answer: one more try, and no more.
pub const AT_ONCE: Schedule = Schedule { tries: 2, ..QUESTION };
/// And no longer than this for each. Slurm's own commands give up after ten seconds, unless their site has more patience.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A cluster and who says so.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    /// What is known of it.
    pub profile: SiteProfile,
    /// Where that is from.
    pub origin: ProfileOrigin,
}

/// Where a profile is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProfileOrigin {
    /// It came with Torc.
    BuiltIn,
    /// Somebody wrote it.
    File(PathBuf),
    /// Slurm said so.
    Detected,
}

impl std::fmt::Display for ProfileOrigin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::BuiltIn => f.write_str("built in"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Detected => f.write_str("detected"),
        }
    }
}

/// The Slurm of this machine, or the one that a prefix leads to.
pub fn slurm(prefix: &[String]) -> Slurm {
    Slurm::new(prefix).replaced_by(|name| std::env::var(name).ok())
}

/// Every profile: a person's own come first, so that one of them can replace one that comes with Torc.
pub fn all() -> Result<Vec<Site>, CliError> {
    let mut sites = Vec::new();
    for path in own_files() {
        sites.push(Site { profile: read(&path)?, origin: ProfileOrigin::File(path) });
    }
    let known = profiles::known().map_err(|error| CliError::unexpected("a profile of Torc is wrong", error))?;
    for profile in known {
        if !sites.iter().any(|site| site.profile.name == profile.name) {
            sites.push(Site { profile, origin: ProfileOrigin::BuiltIn });
        }
    }
    Ok(sites)
}

/// Whether this is the cluster that one is on.
pub fn is_here(site: &Site) -> bool {
    let hostname = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok()).unwrap_or_default();
    let here = DetectContext {
        hostname: &hostname,
        variable: &|name| std::env::var(name).ok(),
        file_exists: &|path| Path::new(path).exists(),
    };
    site.profile.matches(&here)
}

/// The cluster with this name, in this file, or the one that one is on; `slurm` is what Slurm says about itself.
pub async fn find(name: Option<&str>, prefix: &[String]) -> Result<Site, CliError> {
    match name {
        Some(DETECTED) => detect(prefix).await,
        Some(path) if Path::new(path).extension().is_some_and(|extension| extension == "toml") => {
            Ok(Site { profile: read(Path::new(path))?, origin: ProfileOrigin::File(path.into()) })
        }
        Some(name) => named(name),
        None => match all()?.into_iter().find(is_here) {
            Some(site) => Ok(site),
            None => detect(prefix).await.map_err(|error| {
                error.hint("or name a profile: `torc hpc list` shows them, `--profile FILE.toml` reads one of your own")
            }),
        },
    }
}

fn named(name: &str) -> Result<Site, CliError> {
    let sites = all()?;
    let names: Vec<String> = sites.iter().map(|site| site.profile.name.clone()).collect();
    sites.into_iter().find(|site| site.profile.name == name).ok_or_else(|| {
        CliError::not_found(format!("there is no profile `{name}`")).hint(format!(
            "there are {} and `{DETECTED}`, which asks the Slurm of this machine; a file of your own ends in .toml",
            names.join(", ")
        ))
    })
}

/// What Slurm says about itself.
pub async fn detect(prefix: &[String]) -> Result<Site, CliError> {
    let partitions = ask_partitions(&slurm(prefix)).await?;
    if partitions.is_empty() {
        return Err(CliError::not_found("Slurm has no partition with nodes").hint("`sinfo` shows what it has"));
    }
    Ok(Site { profile: profiles::detected(partitions), origin: ProfileOrigin::Detected })
}

async fn ask_partitions(slurm: &Slurm) -> Result<Vec<Partition>, CliError> {
    let rules = slurm.ask_again(&scontrol::partitions().within(PATIENCE), AT_ONCE).await.map_err(trouble)?;
    let nodes = slurm.ask_again(&sinfo::nodes().within(PATIENCE), AT_ONCE).await.map_err(trouble)?;
    let nodes = sinfo::read_nodes(&nodes.text).map_err(trouble)?;
    Ok(partitions::detect(&scontrol::read_partitions(&rules.text), &nodes))
}

/// What went wrong with Slurm, and what to do about it.
pub fn trouble(trouble: SlurmError) -> CliError {
    let (kind, hint) = match &trouble {
        SlurmError::Missing { .. } => (
            ExitStatus::NotFound,
            "run it where Slurm's commands are, or say how to get there: --command-prefix \"ssh login1\"",
        ),
        SlurmError::NoAnswer { .. } => {
            (ExitStatus::Unreachable, "`scontrol ping` tells whether Slurm's controller is up")
        }
        SlurmError::Refused { .. } => (ExitStatus::Refused, "the sentence is Slurm's own"),
    };
    CliError::new(kind, trouble.to_string()).hint(hint)
}

fn read(path: &Path) -> Result<SiteProfile, CliError> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        let kind =
            if error.kind() == std::io::ErrorKind::NotFound { ExitStatus::NotFound } else { ExitStatus::Unexpected };
        CliError::new(kind, format!("could not read the profile {}", path.display())).because(error)
    })?;
    SiteProfile::read(&text).map_err(|error| {
        CliError::invalid(format!("{} is no profile", path.display()))
            .because(error)
            .hint("`torc hpc show kestrel` shows what one holds")
    })
}

/// Profiles in the person's configuration folder, in order of their names.
fn own_files() -> Vec<PathBuf> {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = set(env::XDG_CONFIG_HOME).or_else(|| set(env::HOME).map(|home| home.join(".config")));
    let Some(entries) = folder.and_then(|folder| std::fs::read_dir(folder.join("torc/profiles")).ok()) else {
        return Vec::new();
    };
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    files.sort();
    files
}
