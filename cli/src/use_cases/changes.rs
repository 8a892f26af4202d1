//! Which jobs have to run again because of their files: looks at the files where they can be seen, reads what it must, and
//! leaves the decision to the core.

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
use torc_runner::files::{look, sha256};

use crate::client::Client;
use crate::error::{CliError, ExitStatus};
use crate::output::{Printer, human};

/// A job that has to run again, and why.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Reason {
    /// The job's name.
    pub job: String,
    /// What has happened.
    pub reason: Why,
    /// To which file or data.
    pub what: String,
}

/// What has happened to something that a job uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Why {
    /// What it reads is not what it read.
    InputChanged,
    /// What it reads is gone.
    InputGone,
    /// What it wrote is gone.
    OutputGone,
    /// Data that it reads has another value.
    DataChanged,
}

impl From<Change> for Why {
    fn from(change: Change) -> Self {
        match change {
            Change::InputChanged => Self::InputChanged,
            Change::InputGone => Self::InputGone,
            Change::OutputGone => Self::OutputGone,
        }
    }
}

/// Everything that makes completed jobs of a workflow run again.
pub async fn reasons(client: &Client, workflow: &Workflow, output: Printer) -> Result<Vec<Reason>, CliError> {
    let name = workflow.id.to_string();
    let uses = client.file_uses(&name).await?;
    let folder = PathBuf::from(&workflow.working_dir);
    if !uses.is_empty() && !folder.is_dir() {
        return Err(unseen(&folder));
    }
    let looked = tokio::task::spawn_blocking(move || of_files(&folder, &uses, output));
    let mut reasons = looked.await.map_err(|error| CliError::unexpected("could not look at the files", error))?;
    let data = client.staleness(&name).await?.changed_data;
    reasons.extend(data.into_iter().map(|used| Reason { job: used.job, reason: Why::DataChanged, what: used.data }));
    reasons.sort();
    Ok(reasons)
}

fn unseen(folder: &Path) -> CliError {
    let message = format!("the files cannot be seen here: there is no folder {}", folder.display());
    CliError::new(ExitStatus::NotFound, message).hint("run this where the workflow's files are")
}

fn of_files(folder: &Path, uses: &[FileUse], output: Printer) -> Vec<Reason> {
    let paths: BTreeSet<&str> = uses.iter().map(|used| used.path.as_str()).collect();
    let found: HashMap<&str, FileStat> =
        paths.iter().filter_map(|path| Some((*path, look(folder, path).ok()?))).collect();
    let mut reader = Reader::new(folder, output, to_read(uses, &found));
    let mut reasons = BTreeSet::new();
    for used in uses {
        let change = compare(used, found.get(used.path.as_str()), || reader.hash(&used.path));
        if let Some(change) = change {
            reasons.insert(Reason { job: used.job.clone(), reason: change.into(), what: used.path.clone() });
        }
    }
    reader.finish();
    reasons.into_iter().collect()
}

/// Bytes of the files whose time alone has changed.
fn to_read(uses: &[FileUse], found: &HashMap<&str, FileStat>) -> u64 {
    let mut sizes: BTreeMap<&str, i64> = BTreeMap::new();
    for used in uses {
        // Asked without reading: what would be read is what makes a difference then.
        if let Some(now) = found.get(used.path.as_str())
            && compare(used, Some(now), || used.sha256.clone()) != compare(used, Some(now), || None)
        {
            sizes.insert(&used.path, now.size_bytes);
        }
    }
    sizes.values().map(|size| u64::try_from(*size).unwrap_or(0)).sum()
}

/// Reads files for their hashes, each once, and shows how far it has come.
struct Reader<'a> {
    folder: &'a Path,
    known: HashMap<String, Option<String>>,
    bar: Option<ProgressBar>,
}

impl<'a> Reader<'a> {
    fn new(folder: &'a Path, output: Printer, bytes: u64) -> Self {
        let bar = (bytes > 0 && std::io::stderr().is_terminal()).then(|| {
            let style = ProgressStyle::with_template("reading {msg} {wide_bar} {bytes}/{total_bytes} [{eta}]");
            ProgressBar::new(bytes).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        if bytes > (64 << 20) && bar.is_none() {
            let size = human::bytes(i64::try_from(bytes).unwrap_or(i64::MAX));
            output.progress(&format!("reading {size} of files whose time has changed"));
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

/// Files that have to be there before a workflow starts and are not, and data without a value, in words.
pub async fn missing(client: &Client, workflow: &Workflow) -> Result<Vec<String>, CliError> {
    let name = workflow.id.to_string();
    let folder = Path::new(&workflow.working_dir);
    let files = client.files(&name).await?;
    let required = files.iter().filter(|file| file.produced_by.is_empty() && file.readers > 0);
    let absent = required.filter(|file| look(folder, &file.path).is_err());
    let mut missing: Vec<String> =
        absent.map(|file| format!("input file {} ({}) does not exist", file.path, file.name)).collect();
    for used in client.staleness(&name).await?.missing_data {
        missing.push(format!("user data `{}`, which job '{}' reads, has no value", used.data, used.job));
    }
    Ok(missing)
}

/// Output files that are there already, of jobs that are going to write them.
pub async fn existing_outputs(client: &Client, workflow: &Workflow) -> Result<Vec<String>, CliError> {
    let files = client.files(&workflow.id.to_string()).await?;
    let folder = Path::new(&workflow.working_dir);
    let written = files.into_iter().filter(|file| !file.produced_by.is_empty());
    Ok(written.filter(|file| look(folder, &file.path).is_ok()).map(|file| file.path).collect())
}

/// Why jobs run again, for people: a line for each reason, the first twenty.
pub fn describe(reasons: &[Reason]) -> String {
    const SHOWN: usize = 20;
    let line = |reason: &Reason| {
        let words = match reason.reason {
            Why::InputChanged => format!("input {} has changed", reason.what),
            Why::InputGone => format!("input {} is gone", reason.what),
            Why::OutputGone => format!("output {} is gone", reason.what),
            Why::DataChanged => format!("user data `{}` has changed", reason.what),
        };
        format!("  {}: {words}\n", reason.job)
    };
    let mut text: String = reasons.iter().take(SHOWN).map(line).collect();
    if reasons.len() > SHOWN {
        text.push_str(&format!("  … and {} more reasons (-o json lists them)\n", reasons.len() - SHOWN));
    }
    text
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn every_reason_has_its_sentence_and_twenty_are_told() {
        let reason = |job: &str, reason| Reason { job: job.to_owned(), reason, what: "f".to_owned() };
        for (why, line, word) in [
            (Why::InputChanged, "  a: input f has changed\n", "inputChanged"),
            (Why::InputGone, "  a: input f is gone\n", "inputGone"),
            (Why::OutputGone, "  a: output f is gone\n", "outputGone"),
            (Why::DataChanged, "  a: user data `f` has changed\n", "dataChanged"),
        ] {
            assert_eq!(describe(&[reason("a", why)]), line);
            assert_eq!(
                serde_json::json!(reason("a", why)),
                serde_json::json!({ "job": "a", "reason": word, "what": "f" })
            );
        }
        let many: Vec<Reason> = (0..21).map(|n| reason(&format!("j{n}"), Why::InputGone)).collect();
        assert!(!describe(&many[..20]).contains("more"));
        assert!(describe(&many).ends_with("  … and 1 more reasons (-o json lists them)\n"));
        for (change, why) in [
            (Change::InputChanged, Why::InputChanged),
            (Change::InputGone, Why::InputGone),
            (Change::OutputGone, Why::OutputGone),
        ] {
            assert_eq!(Why::from(change), why);
        }
        assert_eq!(unseen(Path::new("/f")).kind, ExitStatus::NotFound);
    }
}
