//! Decides which jobs run again because of their files. The caller reads the files.

use std::collections::{BTreeMap, BTreeSet};

use torc_api::data::{File, FileRole, FileStatus, FileUse};
use torc_api::state::JobState;
use torc_api::wire::FileStat;

use crate::expanded::ExpandedFile;
use crate::rows::{FileRow, JobProfile, JobRow};
use crate::time::rfc3339;

/// Returns a job's files with what it saw of them. `seen` are the rows of this job.
pub fn uses(job: &JobRow, profile: &JobProfile, seen: &[FileRow]) -> Vec<FileUse> {
    let of = |role: FileRole, path: &String| {
        let row = seen.iter().find(|row| row.path == *path);
        FileUse {
            job: job.name.clone(),
            job_status: job.state,
            path: path.clone(),
            role,
            size_bytes: row.map(|row| row.size_bytes),
            modified_ms: row.map(|row| row.modified_ms),
            sha256: row.and_then(|row| row.sha256.clone()),
        }
    };
    let inputs = profile.input_files.iter().map(|path| of(FileRole::Input, path));
    inputs.chain(profile.output_files.iter().map(|path| of(FileRole::Output, path))).collect()
}

/// The files of a workflow as they were last seen, in the order of the document.
#[derive(Debug, Default)]
pub struct FileList {
    files: BTreeMap<String, KnownFile>,
}

#[derive(Clone, Debug, Default)]
struct KnownFile {
    seen: Option<(FileRow, String)>,
    writers: BTreeSet<String>,
    readers: i64,
}

impl FileList {
    /// Takes a job in.
    pub fn add(&mut self, job: &JobRow, profile: &JobProfile, seen: &[FileRow]) {
        for path in &profile.input_files {
            self.files.entry(path.clone()).or_default().readers += 1;
        }
        for path in &profile.output_files {
            self.files.entry(path.clone()).or_default().writers.insert(job.name.clone());
        }
        for row in seen {
            let known = self.files.entry(row.path.clone()).or_default();
            let is_newer = known.seen.as_ref().is_none_or(|(before, _)| before.seen_ms < row.seen_ms);
            if is_newer {
                known.seen = Some((row.clone(), job.name.clone()));
            }
        }
    }

    /// Returns the declared files in order, each with its status and writers.
    pub fn finish(self, declared: Vec<ExpandedFile>) -> Vec<File> {
        let file = |declared: ExpandedFile| {
            let known = self.files.get(&declared.path).cloned().unwrap_or_default();
            let status = match (&known.seen, known.writers.is_empty()) {
                (Some(_), _) => FileStatus::Present,
                (None, true) => FileStatus::Required,
                (None, false) => FileStatus::Expected,
            };
            let (row, seen_by) = known.seen.unzip();
            File {
                name: declared.name,
                path: declared.path,
                status,
                size_bytes: row.as_ref().map(|row| row.size_bytes),
                modified_time: row.as_ref().map(|row| rfc3339(row.modified_ms)),
                seen_time: row.as_ref().map(|row| rfc3339(row.seen_ms)),
                sha256: row.and_then(|row| row.sha256),
                seen_by,
                produced_by: known.writers.into_iter().collect(),
                readers: known.readers,
            }
        };
        declared.into_iter().map(file).collect()
    }
}

/// The reason why a job runs again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// An input file has changed.
    InputChanged,
    /// An input file is missing.
    InputGone,
    /// An output file is missing.
    OutputGone,
}

/// Compares a file with what a job saw of it. `content` reads the file, which is done only if size and time differ: a
/// file that was touched or copied has not changed.
pub fn compare(seen: &FileUse, now: Option<&FileStat>, content: impl FnOnce() -> Option<String>) -> Option<Change> {
    // A job that has not completed runs anyway, or needs a manual decision.
    if seen.job_status != JobState::Completed {
        return None;
    }
    let Some(now) = now else {
        return Some(match seen.role {
            FileRole::Input => Change::InputGone,
            FileRole::Output => Change::OutputGone,
        });
    };
    // A changed output does not rerun its writer, only its readers.
    let (Some(size), Some(modified)) = (seen.size_bytes, seen.modified_ms) else { return None };
    if seen.role == FileRole::Output || (size, modified) == (now.size_bytes, now.modified_ms) {
        return None;
    }
    let same_content = || seen.sha256.is_some() && content() == seen.sha256;
    (size != now.size_bytes || !same_content()).then_some(Change::InputChanged)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(role: FileRole) -> FileUse {
        FileUse {
            job: "j".into(),
            job_status: JobState::Completed,
            path: "f".into(),
            role,
            size_bytes: Some(3),
            modified_ms: Some(10),
            sha256: Some("abc".into()),
        }
    }

    fn now(size_bytes: i64, modified_ms: i64) -> FileStat {
        FileStat { path: "f".into(), size_bytes, modified_ms, sha256: None }
    }

    #[test]
    fn content_decides_where_time_alone_does_not() {
        let input = seen(FileRole::Input);
        let unread = || panic!("it must not be read");
        assert_eq!(compare(&input, Some(&now(3, 10)), unread), None);
        assert_eq!(compare(&input, Some(&now(4, 10)), unread), Some(Change::InputChanged));
        assert_eq!(compare(&input, None, unread), Some(Change::InputGone));
        let touched = now(3, 11);
        assert_eq!(compare(&input, Some(&touched), || Some("abc".into())), None, "touched only");
        assert_eq!(compare(&input, Some(&touched), || Some("abd".into())), Some(Change::InputChanged));
        assert_eq!(compare(&input, Some(&touched), || None), Some(Change::InputChanged), "unreadable");
        let large = FileUse { sha256: None, ..input.clone() };
        assert_eq!(compare(&large, Some(&touched), || None), Some(Change::InputChanged), "never hashed");
        let unknown = FileUse { size_bytes: None, modified_ms: None, sha256: None, ..input.clone() };
        assert_eq!(compare(&unknown, Some(&touched), unread), None, "its earlier size is unknown");
        let failed = FileUse { job_status: JobState::Failed, ..input };
        assert_eq!(compare(&failed, None, unread), None);
    }

    #[test]
    fn a_writer_runs_again_only_when_its_output_is_gone() {
        let output = seen(FileRole::Output);
        assert_eq!(compare(&output, Some(&now(9, 99)), || None), None);
        assert_eq!(compare(&output, None, || None), Some(Change::OutputGone));
    }

    #[test]
    fn the_latest_look_at_a_file_is_shown() {
        let mut list = FileList::default();
        let job = |name: &str| JobRow {
            id: crate::ids::JobId(1),
            workflow: crate::ids::WorkflowId(1),
            name: name.into(),
            command: String::new(),
            profile: crate::ids::ProfileId(1),
            priority: 0,
            hash: [0; 32],
            depends_on: Vec::new(),
            state: JobState::Completed,
            run: 1,
            attempt: 1,
            lease_id: 1,
            runner: None,
            started_ms: None,
        };
        let row = |seen_ms| FileRow { path: "f".into(), size_bytes: seen_ms, seen_ms, ..FileRow::default() };
        let writes = JobProfile { output_files: vec!["f".into()], ..JobProfile::default() };
        let reads = JobProfile { input_files: vec!["f".into(), "raw".into()], ..JobProfile::default() };
        list.add(&job("reader"), &reads, &[row(7)]);
        list.add(&job("writer"), &writes, &[row(5)]);
        list.add(&job("later"), &JobProfile { output_files: vec!["end".into()], ..JobProfile::default() }, &[]);
        let declared = ["f", "raw", "end"].map(|path| ExpandedFile {
            name: format!("the_{path}"),
            path: path.into(),
            identifier: None,
        });
        let files = list.finish(declared.to_vec());
        let shown: Vec<_> = files
            .iter()
            .map(|file| (file.name.as_str(), file.status, file.size_bytes, file.seen_by.as_deref(), file.readers))
            .collect();
        assert_eq!(
            shown,
            [
                ("the_f", FileStatus::Present, Some(7), Some("reader"), 1),
                ("the_raw", FileStatus::Required, None, None, 1),
                ("the_end", FileStatus::Expected, None, None, 0),
            ]
        );
        assert_eq!(files[0].produced_by, ["writer"]);
    }
}
