//! Log files without their price. A job writes to a scratch file that is already open; the file gets the job's name when there
//! is something in it, or when the job runs for long. A silent job costs no file at all: its scratch is used again.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use torc_api::execution::StdioMode;
use torc_api::wire::AttemptKey;

/// Which output a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
    /// Both.
    Both,
}

/// Scratch files that wait for a job, by folder.
#[derive(Debug)]
pub struct Scratches {
    keeper: String,
    opened: u64,
    idle: HashMap<PathBuf, Vec<(PathBuf, File)>>,
}

/// Where one job's output goes.
#[derive(Debug)]
pub struct Log {
    stream: Stream,
    /// Where the file is now.
    path: PathBuf,
    /// Where it belongs.
    name: PathBuf,
    file: File,
}

/// What a job left.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Where its output is.
    pub stdout: Option<PathBuf>,
    /// Where its error output is.
    pub stderr: Option<PathBuf>,
    /// What went wrong with them.
    pub problem: Option<String>,
}

/// The streams that a mode keeps, each a file.
fn streams(mode: StdioMode) -> &'static [Stream] {
    match mode {
        // Packing happens elsewhere; until then a packed job's output is kept in files of its own.
        StdioMode::Separate | StdioMode::Packed => &[Stream::Out, Stream::Err],
        StdioMode::Combined => &[Stream::Both],
        StdioMode::NoStdout => &[Stream::Err],
        StdioMode::NoStderr => &[Stream::Out],
        StdioMode::None => &[],
    }
}

/// A log's name in its folder.
fn log_name(key: &AttemptKey, stream: Stream) -> String {
    let extension = match stream {
        Stream::Out => "o",
        Stream::Err => "e",
        Stream::Both => "log",
    };
    format!("job_{}.{extension}", key.label())
}

fn scratch_prefix(keeper: &str) -> String {
    format!(".torc_scratch_{keeper}_")
}

impl Scratches {
    /// None are open yet.
    pub fn new(keeper: &str) -> Self {
        Self { keeper: keeper.to_owned(), opened: 0, idle: HashMap::new() }
    }

    /// Files for a job.
    pub fn take(&mut self, dir: &Path, mode: StdioMode, key: &AttemptKey) -> io::Result<Vec<Log>> {
        let mut logs = Vec::new();
        for stream in streams(mode) {
            let scratch = self.idle.get_mut(dir).and_then(Vec::pop).map_or_else(|| self.open(dir), Ok);
            match scratch {
                Ok((path, file)) => {
                    logs.push(Log { stream: *stream, path, name: dir.join(log_name(key, *stream)), file });
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
        let path = dir.join(format!("{}{}", scratch_prefix(&self.keeper), self.opened));
        let open = || OpenOptions::new().append(true).create_new(true).open(&path);
        match open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(dir)?;
                Ok((path.clone(), open()?))
            }
            opened => Ok((path.clone(), opened?)),
        }
    }

    /// The job has ended. Scratches that it left empty are used again if nobody else can still write to them.
    pub fn finish(&mut self, logs: Vec<Log>, reusable: bool) -> Kept {
        let mut kept = Kept::default();
        for mut log in logs {
            let has_output = log.file.metadata().is_ok_and(|metadata| metadata.len() > 0);
            if has_output {
                if let Err(error) = log.promote() {
                    kept.problem = Some(format!("cannot name the log {}: {error}", log.name.display()));
                }
                match log.stream {
                    Stream::Out | Stream::Both => kept.stdout = Some(log.path),
                    Stream::Err => kept.stderr = Some(log.path),
                }
            } else if log.is_promoted() || !reusable {
                let _ = fs::remove_file(&log.path);
            } else {
                let dir = log.name.parent().unwrap_or(Path::new("/")).to_path_buf();
                self.idle.entry(dir).or_default().push((log.path, log.file));
            }
        }
        kept
    }

    /// Nothing is left of them.
    pub fn remove(self) {
        for (path, _) in self.idle.into_values().flatten() {
            let _ = fs::remove_file(path);
        }
    }
}

impl Log {
    /// Gives the file the job's name; the job goes on writing to it.
    pub fn promote(&mut self) -> io::Result<()> {
        if !self.is_promoted() {
            fs::rename(&self.path, &self.name)?;
            self.path.clone_from(&self.name);
        }
        Ok(())
    }

    fn is_promoted(&self) -> bool {
        self.path == self.name
    }

    /// For the notes: where it is and where it belongs.
    pub fn note(&self) -> (PathBuf, PathBuf) {
        (self.path.clone(), self.name.clone())
    }
}

/// What a process gets as standard output and standard error.
pub fn outputs(logs: &[Log]) -> io::Result<(Stdio, Stdio)> {
    let stdio = |wanted: Stream| {
        let log = logs.iter().find(|log| log.stream == wanted || log.stream == Stream::Both);
        log.map_or_else(|| Ok(Stdio::null()), |log| log.file.try_clone().map(Stdio::from))
    };
    Ok((stdio(Stream::Out)?, stdio(Stream::Err)?))
}

/// Puts the output of a dead keeper's jobs where it belongs, and removes its empty scratches.
pub fn adopt(keeper: &str, notes: impl IntoIterator<Item = (PathBuf, PathBuf)>) {
    let mut dirs = Vec::new();
    for (scratch, name) in notes {
        let has_output = fs::metadata(&scratch).is_ok_and(|metadata| metadata.len() > 0);
        if has_output {
            let _ = fs::rename(&scratch, &name);
        }
        dirs.extend(name.parent().map(Path::to_path_buf));
    }
    dirs.sort();
    dirs.dedup();
    let prefix = scratch_prefix(keeper);
    for entry in dirs.iter().filter_map(|dir| fs::read_dir(dir).ok()).flatten().flatten() {
        let is_scratch = entry.file_name().to_string_lossy().starts_with(&prefix);
        if is_scratch && entry.metadata().is_ok_and(|metadata| metadata.len() == 0) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests;
