//! Jobs that must run again because their files have changed. Reads the files of this machine; the core decides.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use torc_api::api::Workflow;
use torc_api::data::FileUse;
use torc_api::wire::FileStat;
use torc_core::files::{Change, compare};
use torc_runner::files::{sha256, stat_file};

use crate::client::Client;
use crate::error::{CliError, ExitStatus};
use crate::output::{Printer, human};

/// A job that must run again, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StaleJob {
    /// The name of the job.
    pub job: String,
    /// The kind of change.
    pub reason: ChangeKind,
    /// The name of the changed file or data.
    pub what: String,
}

/// A change of something that a job uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ChangeKind {
    /// An input file differs from the one that the job has read.
    InputChanged,
    /// An input file is missing.
    InputGone,
    /// An output file is missing.
    OutputGone,
    /// A value of user data has changed.
    DataChanged,
}

impl From<Change> for ChangeKind {
    fn from(change: Change) -> Self {
        match change {
            Change::InputChanged => Self::InputChanged,
            Change::InputGone => Self::InputGone,
            Change::OutputGone => Self::OutputGone,
        }
    }
}

/// Returns the completed jobs of a workflow that must run again.
pub async fn stale_jobs(client: &Client, workflow: &Workflow, output: Printer) -> Result<Vec<StaleJob>, CliError> {
    let name = workflow.id.to_string();
    let uses = client.file_uses(&name).await?;
    let folder = PathBuf::from(&workflow.working_dir);
    if !uses.is_empty() && !folder.is_dir() {
        return Err(folder_missing(&folder));
    }
    let looked = tokio::task::spawn_blocking(move || stale_by_files(&folder, &uses, output));
    let mut reasons = looked.await.map_err(|error| CliError::unexpected("could not read the files", error))?;
    let data = client.staleness(&name).await?.changed_data;
    reasons.extend(data.into_iter().map(|used| StaleJob {
        job: used.job,
        reason: ChangeKind::DataChanged,
        what: used.data,
    }));
    reasons.sort();
    Ok(reasons)
}

fn folder_missing(folder: &Path) -> CliError {
    let message = format!("the folder of the workflow does not exist on this machine: {}", folder.display());
    CliError::new(ExitStatus::NotFound, message).hint("run this command on the machine with the files of the workflow")
}

fn stale_by_files(folder: &Path, uses: &[FileUse], output: Printer) -> Vec<StaleJob> {
    let paths: BTreeSet<&str> = uses.iter().map(|used| used.path.as_str()).collect();
    let found: HashMap<&str, FileStat> =
        paths.iter().filter_map(|path| Some((*path, stat_file(folder, path).ok()?))).collect();
    let mut reader = FileHasher::new(folder, output, to_read(uses, &found));
    let mut reasons = BTreeSet::new();
    for used in uses {
        let change = compare(used, found.get(used.path.as_str()), || reader.hash(&used.path));
        if let Some(change) = change {
            reasons.insert(StaleJob { job: used.job.clone(), reason: change.into(), what: used.path.clone() });
        }
    }
    reader.finish();
    reasons.into_iter().collect()
}

/// Returns the size of the files that must be hashed because only their time has changed.
fn to_read(uses: &[FileUse], found: &HashMap<&str, FileStat>) -> u64 {
    let mut sizes: BTreeMap<&str, i64> = BTreeMap::new();
    for used in uses {
        // A file must be hashed if the comparison depends on its hash.
        if let Some(now) = found.get(used.path.as_str())
            && compare(used, Some(now), || used.sha256.clone()) != compare(used, Some(now), || None)
        {
            sizes.insert(&used.path, now.size_bytes);
        }
    }
    sizes.values().map(|size| u64::try_from(*size).unwrap_or(0)).sum()
}

/// Hashes each file once and shows the progress.
struct FileHasher<'a> {
    folder: &'a Path,
    known: HashMap<String, Option<String>>,
    bar: Option<ProgressBar>,
}

impl<'a> FileHasher<'a> {
    fn new(folder: &'a Path, output: Printer, bytes: u64) -> Self {
        let bar = (bytes > 0 && std::io::stderr().is_terminal()).then(|| {
            let style = ProgressStyle::with_template("reading {msg} {wide_bar} {bytes}/{total_bytes} [{eta}]");
            ProgressBar::new(bytes).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        if bytes > (64 << 20) && bar.is_none() {
            let size = human::bytes(i64::try_from(bytes).unwrap_or(i64::MAX));
            output.progress(&format!("reading {size} of files with a changed modification time"));
        }
        Self { folder, known: HashMap::new(), bar }
    }

    fn hash(&mut self, path: &str) -> Option<String> {
        if let Some(known) = self.known.get(path) {
            return known.clone();
        }
        let bar = self.bar.clone();
        if let Some(bar) = &bar {
            bar.set_message(path.to_owned());
        }
        let mut advance = |count: u64| bar.iter().for_each(|bar| bar.inc(count));
        let hash = File::open(self.folder.join(path)).and_then(|mut file| sha256(&mut file, &mut advance)).ok();
        self.known.insert(path.to_owned(), hash.clone());
        hash
    }

    fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Describes the missing input files and the user data without a value.
pub async fn missing(client: &Client, workflow: &Workflow) -> Result<Vec<String>, CliError> {
    let name = workflow.id.to_string();
    let folder = Path::new(&workflow.working_dir);
    let files = client.files(&name).await?;
    let required = files.iter().filter(|file| file.produced_by.is_empty() && file.readers > 0);
    let absent = required.filter(|file| stat_file(folder, &file.path).is_err());
    let mut missing: Vec<String> =
        absent.map(|file| format!("input file {} ({}) does not exist", file.path, file.name)).collect();
    for used in client.staleness(&name).await?.missing_data {
        missing.push(format!("user data `{}`, an input of job '{}', has no value", used.data, used.job));
    }
    Ok(missing)
}

/// Returns the existing output files of a workflow.
pub async fn existing_outputs(client: &Client, workflow: &Workflow) -> Result<Vec<String>, CliError> {
    let files = client.files(&workflow.id.to_string()).await?;
    let folder = Path::new(&workflow.working_dir);
    let written = files.into_iter().filter(|file| !file.produced_by.is_empty());
    Ok(written.filter(|file| stat_file(folder, &file.path).is_ok()).map(|file| file.path).collect())
}

/// Describes the first reasons, one line each.
pub fn describe(reasons: &[StaleJob]) -> String {
    const MAX_SHOWN_REASONS: usize = 20;
    let line = |reason: &StaleJob| {
        let words = match reason.reason {
            ChangeKind::InputChanged => format!("input {} has changed", reason.what),
            ChangeKind::InputGone => format!("input {} is missing", reason.what),
            ChangeKind::OutputGone => format!("output {} is missing", reason.what),
            ChangeKind::DataChanged => format!("user data `{}` has changed", reason.what),
        };
        format!("  {}: {words}\n", reason.job)
    };
    let mut text: String = reasons.iter().take(MAX_SHOWN_REASONS).map(line).collect();
    if reasons.len() > MAX_SHOWN_REASONS {
        text.push_str(&format!("  … and {} more (-o json lists all)\n", reasons.len() - MAX_SHOWN_REASONS));
    }
    text
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn twenty_reasons_are_described() {
        let reason = |job: &str, reason| StaleJob { job: job.to_owned(), reason, what: "f".to_owned() };
        for (why, line, word) in [
            (ChangeKind::InputChanged, "  a: input f has changed\n", "inputChanged"),
            (ChangeKind::InputGone, "  a: input f is missing\n", "inputGone"),
            (ChangeKind::OutputGone, "  a: output f is missing\n", "outputGone"),
            (ChangeKind::DataChanged, "  a: user data `f` has changed\n", "dataChanged"),
        ] {
            assert_eq!(describe(&[reason("a", why)]), line);
            assert_eq!(
                serde_json::json!(reason("a", why)),
                serde_json::json!({ "job": "a", "reason": word, "what": "f" })
            );
        }
        let many: Vec<StaleJob> = (0..21).map(|n| reason(&format!("j{n}"), ChangeKind::InputGone)).collect();
        assert!(!describe(&many[..20]).contains("more"));
        assert!(describe(&many).ends_with("  … and 1 more (-o json lists all)\n"));
        for (change, why) in [
            (Change::InputChanged, ChangeKind::InputChanged),
            (Change::InputGone, ChangeKind::InputGone),
            (Change::OutputGone, ChangeKind::OutputGone),
        ] {
            assert_eq!(ChangeKind::from(change), why);
        }
        assert_eq!(folder_missing(Path::new("/f")).kind, ExitStatus::NotFound);
    }
}
