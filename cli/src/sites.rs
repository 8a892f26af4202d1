//! Known Slurm sites: the user's profiles, built-in profiles, and the site that Slurm describes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use torc_api::cluster::Partition;
use torc_slurm::error::SlurmError;
use torc_slurm::exec::Slurm;
use torc_slurm::profiles::{self, DETECTED, DetectContext, SiteProfile};
use torc_slurm::retry::{QUERY_RETRIES, RetrySchedule};
use torc_slurm::{partitions, scontrol, sinfo};

use crate::env;
use crate::error::{CliError, ExitStatus};

/// The retries of Slurm queries in a command: one, because the user waits for the result.
pub const COMMAND_SCHEDULE: RetrySchedule = RetrySchedule { tries: 2, ..QUERY_RETRIES };
/// The timeout of one Slurm query. Slurm's commands themselves time out after 10 s by default (`MessageTimeout`).
pub const QUERY_TIMEOUT: Duration = Duration::from_secs(20);

/// A profile with its origin.
#[derive(Clone, Debug, PartialEq)]
pub struct Site {
    pub profile: SiteProfile,
    pub origin: ProfileOrigin,
}

/// The source of a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProfileOrigin {
    /// A profile that comes with Torc.
    BuiltIn,
    /// A file of the user.
    File(PathBuf),
    /// The partitions that Slurm reported.
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

/// Returns the Slurm of this machine, or the one reached through a command prefix.
pub fn slurm(prefix: &[String]) -> Slurm {
    Slurm::new(prefix).replaced_by(|name| std::env::var(name).ok())
}

/// Returns all profiles. A profile of the user replaces a built-in profile of the same name.
pub fn all() -> Result<Vec<Site>, CliError> {
    let mut sites = Vec::new();
    for path in own_files() {
        sites.push(Site { profile: read(&path)?, origin: ProfileOrigin::File(path) });
    }
    let known = profiles::known().map_err(|error| CliError::unexpected("a built-in profile is invalid", error))?;
    for profile in known {
        if !sites.iter().any(|site| site.profile.name == profile.name) {
            sites.push(Site { profile, origin: ProfileOrigin::BuiltIn });
        }
    }
    Ok(sites)
}

/// Returns whether this machine belongs to a site.
pub fn is_here(site: &Site) -> bool {
    let hostname = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok()).unwrap_or_default();
    let here = DetectContext {
        hostname: &hostname,
        variable: &|name| std::env::var(name).ok(),
        file_exists: &|path| Path::new(path).exists(),
    };
    site.profile.matches(&here)
}

/// Finds a site by name or profile file; without a name, the site of this machine. The name `slurm` queries Slurm.
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
                error.hint("or name a profile: list them with `torc hpc list`, or read one with `--profile FILE.toml`")
            }),
        },
    }
}

fn named(name: &str) -> Result<Site, CliError> {
    let sites = all()?;
    let names: Vec<String> = sites.iter().map(|site| site.profile.name.clone()).collect();
    sites.into_iter().find(|site| site.profile.name == name).ok_or_else(|| {
        CliError::not_found(format!("profile `{name}` does not exist")).hint(format!(
                    "profiles: {} and `{DETECTED}` (queries the Slurm of this machine); the name of a profile file ends in .toml",
            names.join(", ")
        ))
    })
}

/// Queries Slurm for its partitions.
pub async fn detect(prefix: &[String]) -> Result<Site, CliError> {
    let partitions = query_partitions(&slurm(prefix)).await?;
    if partitions.is_empty() {
        return Err(CliError::not_found("Slurm has no partition with nodes").hint("list its partitions with `sinfo`"));
    }
    Ok(Site { profile: profiles::detected(partitions), origin: ProfileOrigin::Detected })
}

async fn query_partitions(slurm: &Slurm) -> Result<Vec<Partition>, CliError> {
    let rules = slurm
        .query_with_retries(&scontrol::partitions().within(QUERY_TIMEOUT), COMMAND_SCHEDULE)
        .await
        .map_err(slurm_error)?;
    let nodes =
        slurm.query_with_retries(&sinfo::nodes().within(QUERY_TIMEOUT), COMMAND_SCHEDULE).await.map_err(slurm_error)?;
    let nodes = sinfo::read_nodes(&nodes.text).map_err(slurm_error)?;
    Ok(partitions::detect(&scontrol::read_partitions(&rules.text), &nodes))
}

/// Converts an error of Slurm, with a hint.
pub fn slurm_error(error: SlurmError) -> CliError {
    let (kind, hint) = match &error {
        SlurmError::Missing { .. } => (
            ExitStatus::NotFound,
            "run this on a machine with Slurm's commands, or reach one with --command-prefix \"ssh login1\"",
        ),
        SlurmError::NoAnswer { .. } => (ExitStatus::Unreachable, "check Slurm's controller with `scontrol ping`"),
        SlurmError::Refused { .. } => (ExitStatus::Refused, "the message is Slurm's"),
    };
    CliError::new(kind, error.to_string()).hint(hint)
}

fn read(path: &Path) -> Result<SiteProfile, CliError> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        let kind =
            if error.kind() == std::io::ErrorKind::NotFound { ExitStatus::NotFound } else { ExitStatus::Unexpected };
        CliError::new(kind, format!("could not read the profile {}", path.display())).because(error)
    })?;
    SiteProfile::read(&text).map_err(|error| {
        CliError::invalid(format!("{} is not a profile", path.display()))
            .because(error)
            .hint("print an example with `torc hpc show kestrel`")
    })
}

/// Returns the profile files in the user's configuration folder, sorted by name.
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
