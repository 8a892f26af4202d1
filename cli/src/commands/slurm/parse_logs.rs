//! `torc slurm parse-logs`: find known errors in the logs of Slurm, runners and jobs.

mod patterns;

use std::collections::HashMap;
use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use self::patterns::{LogErrorKind, findings};
use super::allocations::{SlurmJobs, of_workflow};
use crate::client::Client;
use crate::connection::{explain_missing, with_client};
use crate::context::CommandContext;
use crate::error::{CliError, ExitStatus};
use crate::output::Listing;
use torc_api::filter::JobFilter;

/// Find known errors in the logs of a workflow's allocations, runners and jobs
///
/// Finds, among others, memory and time limits, failed nodes, preemption, full disks, missing programs and crashes.
#[derive(Debug, Args)]
pub struct ParseLogsArgs {
    /// Workflow by name or number (default: the only one in the store)
    #[arg(value_name = "WORKFLOW")]
    pub workflow: Option<String>,
    /// Additional folder to search
    #[arg(long, value_name = "FOLDER")]
    pub output_dir: Option<PathBuf>,
    /// List errors but no warnings
    #[arg(long)]
    pub errors_only: bool,
}

/// A line with a known error or warning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LogFinding {
    /// The kind of error.
    pub kind: LogErrorKind,
    /// The severity: `error` or `warning`.
    pub severity: &'static str,
    /// The name of the job, if the file is its log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The attempt in the name of the file, e.g. `wf1_j2_r1_a1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The path of the file.
    pub file: String,
    /// The number of the line, from 1.
    pub line: usize,
    /// The text of the line.
    pub text: String,
}

/// Maximum number of bytes that are read from the end of a file, where the cause of a failure is.
const MAX_READ_BYTES: u64 = 8 << 20;

pub async fn run(context: &CommandContext, args: &ParseLogsArgs) -> Result<ExitStatus, CliError> {
    let (jobs, names) = with_client(&context.settings, &context.folder, async |client: &Client| {
        let jobs = of_workflow(client, args.workflow.as_deref()).await?;
        let list = client.jobs(&jobs.number.to_string(), &JobFilter::default(), None).await.map_err(explain_missing)?;
        let names: HashMap<i64, String> = list.into_iter().map(|job| (job.id, job.name)).collect();
        Ok((jobs, names))
    })
    .await?;
    let mut folders: Vec<PathBuf> = jobs.output_dirs.iter().map(PathBuf::from).collect();
    folders.extend(args.output_dir.iter().map(|folder| context.folder.join(folder)));
    folders.sort();
    folders.dedup();
    let mut found = Vec::new();
    for folder in &folders {
        for file in log_files(folder, &jobs) {
            found.extend(read_file(&file, &names));
        }
    }
    found.retain(|finding| !args.errors_only || finding.severity == "error");
    Listing::new(context.output).print(&found)?;
    Ok(ExitStatus::Success)
}

/// Returns the logs of the Slurm jobs, runners and jobs of a workflow in a folder, sorted.
fn log_files(folder: &Path, jobs: &SlurmJobs) -> Vec<PathBuf> {
    let of_allocation = |name: &str| {
        let is_log = [".out", ".err", ".o", ".e", ".log", ".txt"].iter().any(|end| name.ends_with(end));
        let named = |id: &String| name.split(|c: char| !c.is_ascii_digit()).any(|part| part == id);
        (is_log || name.starts_with("slurm")) && jobs.ids.iter().any(named)
    };
    let list = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let outside = list(folder).filter(|path| path.is_file() && of_allocation(&name(path)));
    let prefix = format!("job_wf{}_", jobs.number);
    let inside = list(&folder.join("job_stdio")).filter(|path| name(path).starts_with(&prefix));
    let mut files: Vec<PathBuf> = outside.chain(inside).collect();
    files.sort();
    files
}

fn read_file(path: &Path, names: &HashMap<i64, String>) -> Vec<LogFinding> {
    let text = read_end(path).unwrap_or_default();
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let step = name.strip_prefix("job_").and_then(|rest| rest.split('.').next()).map(str::to_owned);
    let job = step.as_deref().and_then(job_number).and_then(|number| names.get(&number).cloned());
    let found = findings(&text).into_iter().map(|(kind, line, text)| LogFinding {
        kind,
        severity: if kind.is_error() { "error" } else { "warning" },
        job: job.clone(),
        step: step.clone(),
        file: path.display().to_string(),
        line,
        text,
    });
    found.collect()
}

/// Returns the job id in a label, such as 7 in `wf42_j7_r1_a1`.
fn job_number(label: &str) -> Option<i64> {
    label.split('_').find_map(|part| part.strip_prefix('j')?.parse().ok())
}

/// Returns the end of a file as text.
fn read_end(path: &Path) -> std::io::Result<String> {
    let mut file = fs::File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(MAX_READ_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(MAX_READ_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {

    use super::*;

    fn jobs() -> SlurmJobs {
        SlurmJobs { workflow: "w".to_owned(), number: 4, ids: vec!["77".to_owned()], output_dirs: Vec::new() }
    }

    #[test]
    fn logs_of_the_workflow_are_found_by_their_names() {
        let folder = tempfile::tempdir().expect("a folder");
        let inside = folder.path().join("job_stdio");
        fs::create_dir(&inside).expect("a folder");
        for name in ["slurm-77.out", "slurm-77", "run_77.log", "run_77.dat", "slurm-777.out", "other.log"] {
            fs::write(folder.path().join(name), "").expect("a file");
        }
        for name in ["job_wf4_j1_r1_a1.o", "job_wf4_j1_r1_a1.e", "job_wf44_j1_r1_a1.o"] {
            fs::write(inside.join(name), "").expect("a file");
        }
        let found: Vec<String> = log_files(folder.path(), &jobs())
            .iter()
            .map(|path| path.strip_prefix(folder.path()).expect("inside").display().to_string())
            .collect();
        let expected =
            ["job_stdio/job_wf4_j1_r1_a1.e", "job_stdio/job_wf4_j1_r1_a1.o", "run_77.log", "slurm-77", "slurm-77.out"];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_finding_names_its_job_its_file_and_its_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("job_wf4_j7_r1_a2.e");
        fs::write(&path, "fine\n  Segmentation fault  \n*** JOB 7 ON n1\n").expect("a file");
        let names = HashMap::from([(7, "train".to_owned()), (4, "other".to_owned())]);
        let found = read_file(&path, &names);
        let file = path.display().to_string();
        let expected = |kind, severity, line, text: &str| LogFinding {
            kind,
            severity,
            job: Some("train".to_owned()),
            step: Some("wf4_j7_r1_a2".to_owned()),
            file: file.clone(),
            line,
            text: text.to_owned(),
        };
        assert_eq!(
            found,
            [
                expected(LogErrorKind::Crash, "error", 2, "Segmentation fault"),
                expected(LogErrorKind::Cancelled, "warning", 3, "*** JOB 7 ON n1")
            ]
        );
        let fields = serde_json::json!({ "kind": "Crash", "severity": "error", "job": "train", "step": "wf4_j7_r1_a2", "file": file, "line": 2, "text": "Segmentation fault" });
        assert_eq!(serde_json::json!(found[0]), fields);
        for (label, expected) in [("wf42_j7_r1_a1", Some(7)), ("wf42", None), ("j9", Some(9))] {
            assert_eq!(job_number(label), expected, "{label}");
        }
    }
}
