//! Reads configuration files, from near to far.

use std::path::{Path, PathBuf};

use toml::{Table, Value};
use torc_api::nearest::nearest;

use super::{Environment, Layers, SettingOrigin, all};
use crate::env;
use crate::error::CliError;

/// Keys of Torc 1.0's documentation with the current keys.
pub(super) const OLDER_NAMES: &[(&str, &str)] = &[
    ("client.job_completion_poll_interval", "client.run.poll_interval"),
    ("client.run.job_completion_poll_interval", "client.run.poll_interval"),
    ("client.slurm.job_completion_poll_interval", "client.slurm.poll_interval"),
];

/// Returns the files to read, the nearest first.
pub fn config_files(environment: &Environment<'_>) -> Vec<PathBuf> {
    let project = environment.folder.ancestors().map(|folder| folder.join("torc.toml")).find(|path| path.is_file());
    let user = (environment.variable)(env::XDG_CONFIG_HOME)
        .filter(|folder| !folder.is_empty())
        .map(PathBuf::from)
        .or_else(|| (environment.variable)(env::HOME).map(|home| PathBuf::from(home).join(".config")))
        .map(|folder| folder.join("torc/config.toml"));
    let system = environment.system.join("torc/config.toml");
    [project, user, Some(system)].into_iter().flatten().filter(|path| path.is_file()).collect()
}

/// Adds the values of a file below the known ones; returns warnings.
pub fn add(layers: &mut Layers, path: &Path) -> Result<Vec<String>, CliError> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        CliError::invalid(format!("could not read the configuration file {}", path.display())).because(error)
    })?;
    let table: Table = text.parse().map_err(|error: toml::de::Error| {
        let (line, column) = position(&text, error.span().map_or(0, |span| span.start));
        CliError::invalid(format!("{}:{line}:{column}: {}", path.display(), error.message()))
    })?;
    let mut warnings = Vec::new();
    walk(layers, path, "", &table, &mut warnings)?;
    Ok(warnings)
}

fn walk(
    layers: &mut Layers,
    path: &Path,
    prefix: &str,
    table: &Table,
    warnings: &mut Vec<String>,
) -> Result<(), CliError> {
    for (name, value) in table {
        let full = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        let newer = OLDER_NAMES.iter().find(|(older, _)| *older == full).map(|(_, newer)| *newer);
        if let Some(newer) = newer {
            let page = "docs/reference/configuration.md";
            warnings.push(format!("{}: the setting `{full}` is now called `{newer}` ({page})", path.display()));
        }
        let known = all().find(|setting| setting.key == newer.unwrap_or(&full));
        match (known, value) {
            (Some(setting), value) => {
                layers.below(setting.key, scalar(path, &full, value)?, SettingOrigin::File(path.to_owned()))
            }
            (None, Value::Table(inner)) => walk(layers, path, &full, inner, warnings)?,
            (None, _) => warnings.push(unknown(path, &full)),
        }
    }
    Ok(())
}

fn scalar(path: &Path, key: &str, value: &Value) -> Result<String, CliError> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Float(number) => Ok(number.to_string()),
        Value::Boolean(flag) => Ok(flag.to_string()),
        _ => Err(CliError::invalid(format!("{}: `{key}` must be one value", path.display()))),
    }
}

fn unknown(path: &Path, key: &str) -> String {
    let known = nearest(key, all().map(|known| known.key));
    let hint = known.map(|known| format!("; did you mean `{known}`?")).unwrap_or_default();
    format!("{}: unknown setting `{key}`{hint}", path.display())
}

fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |last| last.chars().count()) + 1;
    (line, column)
}
