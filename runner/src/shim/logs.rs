//! Log files of jobs. To save file operations, a job writes to a scratch file that is already open. The file gets the
//! job's name when it has content, or when the job runs for long. The scratch file of a job without output is used
//! again.
//!
//! With packed logs no job needs a file: the content of its scratch file is added to a pack, and the scratch file is
//! used again.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use torc_api::execution::StdioMode;

use self::packing::Packing;
use crate::packs;

mod packing;

/// Larger outputs are not packed: they are few, and copying them would delay the next jobs.
const MAX_PACKED_BYTES: u64 = 1 << 20;

/// The stream that a file receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogStream {
    Out,
    Err,
    /// Standard output and standard error together.
    Both,
}

/// Free scratch files, by folder.
#[derive(Debug)]
pub struct LogSlots {
    shim: String,
    opened: u64,
    idle: HashMap<PathBuf, Vec<(PathBuf, File)>>,
    packing: Packing,
}

/// The log file of one stream of a job.
#[derive(Debug)]
pub struct JobLog {
    stream: LogStream,
    path: PathBuf,
    name: PathBuf,
    file: File,
    /// The label in the pack; absent for a log with a file of its own.
    packed_as: Option<String>,
}

/// The logs that a job left.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct LogOutcome {
    /// The file or pack reference of its output.
    pub stdout: Option<PathBuf>,
    /// The file or pack reference of its error output.
    pub stderr: Option<PathBuf>,
    /// The error while the logs were kept.
    pub problem: Option<String>,
}

/// Returns the streams that a mode keeps; each gets a file.
fn streams(mode: StdioMode) -> &'static [LogStream] {
    match mode {
        StdioMode::Separate | StdioMode::Packed => &[LogStream::Out, LogStream::Err],
        StdioMode::Combined => &[LogStream::Both],
        StdioMode::NoStdout => &[LogStream::Err],
        StdioMode::NoStderr => &[LogStream::Out],
        StdioMode::None => &[],
    }
}

/// Returns the name of a log in its folder.
fn log_name(name: &str, stream: LogStream) -> String {
    let extension = match stream {
        LogStream::Out => "o",
        LogStream::Err => "e",
        LogStream::Both => "log",
    };
    format!("{name}.{extension}")
}

/// Returns a log name that is not in use. A task of a lost runner runs again under the same attempt number, so its
/// plain name may be in use.
pub fn free_log_name(dir: &Path, name: &str) -> String {
    let is_used = |name: &str| {
        [LogStream::Out, LogStream::Err, LogStream::Both]
            .into_iter()
            .any(|stream| dir.join(log_name(name, stream)).exists())
    };
    let numbered = (2..).map(|number| format!("{name}_{number}"));
    std::iter::once(name.to_owned()).chain(numbered).find(|name| !is_used(name)).unwrap_or_default()
}

fn scratch_prefix(shim: &str) -> String {
    format!(".torc_scratch_{shim}_")
}

impl LogSlots {
    /// Creates slots without open files.
    pub fn new(shim: &str) -> Self {
        Self { shim: shim.to_owned(), opened: 0, idle: HashMap::new(), packing: Packing::new(shim) }
    }

    /// Returns the files of a job with this log name.
    pub fn take(&mut self, dir: &Path, mode: StdioMode, name: &str) -> io::Result<Vec<JobLog>> {
        let mut logs = Vec::new();
        for stream in streams(mode) {
            let scratch = self.idle.get_mut(dir).and_then(Vec::pop).map_or_else(|| self.open(dir), Ok);
            match scratch {
                Ok((path, file)) => {
                    // Only jobs are packed: tasks are rare, and users look for their logs by name.
                    let packed_as = name.strip_prefix("job_").filter(|_| mode == StdioMode::Packed).map(str::to_owned);
                    let name = dir.join(log_name(name, *stream));
                    logs.push(JobLog { stream: *stream, path, name, file, packed_as });
                }
                Err(error) => {
                    self.finish(logs, true);
                    return Err(error);
                }
            }
        }
        Ok(logs)
    }

    fn open(&mut self, dir: &Path) -> io::Result<(PathBuf, File)> {
        self.opened += 1;
        let path = dir.join(format!("{}{}", scratch_prefix(&self.shim), self.opened));
        let open = || OpenOptions::new().read(true).append(true).create_new(true).open(&path);
        match open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(dir)?;
                Ok((path.clone(), open()?))
            }
            opened => Ok((path.clone(), opened?)),
        }
    }

    /// Keeps the logs of a job that has ended. Scratch files that are empty or packed are used again, if no other
    /// process can still write to them.
    pub fn finish(&mut self, logs: Vec<JobLog>, reusable: bool) -> LogOutcome {
        let mut kept = LogOutcome::default();
        for mut log in logs {
            let length = log.file.metadata().map_or(0, |metadata| metadata.len());
            if length > 0 {
                let path = self.keep(&mut log, length, &mut kept);
                match log.stream {
                    LogStream::Out | LogStream::Both => kept.stdout = Some(path),
                    LogStream::Err => kept.stderr = Some(path),
                }
                if log.packed_as.is_some() {
                    self.release_log(log, reusable);
                }
            } else {
                self.release_log(log, reusable);
            }
        }
        kept
    }

    /// Drops the logs of a job.
    pub fn discard(&mut self, logs: Vec<JobLog>, reusable: bool) {
        logs.into_iter().for_each(|log| self.release_log(log, reusable));
    }

    /// Moves an output to its final place: a pack, or a file of its own. If the pack cannot be written, it gets a file.
    fn keep(&mut self, log: &mut JobLog, length: u64, kept: &mut LogOutcome) -> PathBuf {
        if let Some(label) = log.packed_as.take().filter(|_| length <= MAX_PACKED_BYTES) {
            match self.pack(log, &label, length) {
                Ok(reference) => {
                    log.packed_as = Some(label);
                    return PathBuf::from(reference);
                }
                Err(error) => kept.problem = Some(format!("cannot pack the log {}: {error}", log.name.display())),
            }
        }
        if let Err(error) = log.promote() {
            kept.problem = Some(format!("cannot rename the log {}: {error}", log.name.display()));
        }
        log.path.clone()
    }

    fn pack(&mut self, log: &JobLog, label: &str, length: u64) -> io::Result<String> {
        let mut output = vec![0; usize::try_from(length).unwrap_or(0)];
        log.file.read_exact_at(&mut output, 0)?;
        let stream = if log.stream == LogStream::Err { packs::Stream::Err } else { packs::Stream::Out };
        self.packing.add(log.dir(), label, stream, &output)
    }

    /// Frees a scratch file. It is deleted if it already has the job's name, or if another process may still write to
    /// it.
    fn release_log(&mut self, log: JobLog, reusable: bool) {
        let emptied = || log.packed_as.is_none() || log.file.set_len(0).is_ok();
        if log.is_promoted() || !reusable || !emptied() {
            let _ = fs::remove_file(&log.path);
        } else {
            self.idle.entry(log.dir().to_path_buf()).or_default().push((log.path, log.file));
        }
    }

    /// Deletes all free scratch files.
    pub fn remove(self) {
        for (path, _) in self.idle.into_values().flatten() {
            let _ = fs::remove_file(path);
        }
    }
}

impl JobLog {
    /// Renames the file to the job's name. The job continues to write to it.
    pub fn promote(&mut self) -> io::Result<()> {
        if !self.is_promoted() {
            fs::rename(&self.path, &self.name)?;
            self.path.clone_from(&self.name);
        }
        Ok(())
    }

    fn dir(&self) -> &Path {
        self.name.parent().unwrap_or(Path::new("/"))
    }

    fn is_promoted(&self) -> bool {
        self.path == self.name
    }

    /// Returns current and final path, for the start log.
    pub fn record(&self) -> (PathBuf, PathBuf) {
        (self.path.clone(), self.name.clone())
    }
}

/// Returns the standard output and standard error of a process.
pub fn outputs(logs: &[JobLog]) -> io::Result<(Stdio, Stdio)> {
    let stdio = |wanted: LogStream| {
        let log = logs.iter().find(|log| log.stream == wanted || log.stream == LogStream::Both);
        log.map_or_else(|| Ok(Stdio::null()), |log| log.file.try_clone().map(Stdio::from))
    };
    Ok((stdio(LogStream::Out)?, stdio(LogStream::Err)?))
}

/// Moves the output of a dead shim's jobs to their logs, and deletes its empty scratch files.
pub fn adopt(shim: &str, records: impl IntoIterator<Item = (PathBuf, PathBuf)>) {
    let mut dirs = Vec::new();
    for (scratch, name) in records {
        let has_output = fs::metadata(&scratch).is_ok_and(|metadata| metadata.len() > 0);
        if has_output {
            let _ = fs::rename(&scratch, &name);
        }
        dirs.extend(name.parent().map(Path::to_path_buf));
    }
    dirs.sort();
    dirs.dedup();
    let prefix = scratch_prefix(shim);
    for entry in dirs.iter().filter_map(|dir| fs::read_dir(dir).ok()).flatten().flatten() {
        let is_scratch = entry.file_name().to_string_lossy().starts_with(&prefix);
        if is_scratch && entry.metadata().is_ok_and(|metadata| metadata.len() == 0) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests;
