//! A worker's folder on its machine: logs, the runner's record, and credentials.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use torc_api::remote::WorkerAddress;
use torc_runner::ProcessId;

use super::request::RecordedRunner;
use crate::host::host_name;

/// Returns the path of a worker's folder. Each worker has its own, also on a shared file system.
pub fn path(remote_dir: &Path, output_dir: &Path, workflow: &str, worker: &WorkerAddress) -> PathBuf {
    remote_dir.join(output_dir).join(format!("{workflow}_{}", worker.file_name()))
}

/// The folder of a worker, and the files in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerFolder {
    path: PathBuf,
}

/// Files that are not logs: a runner and its successor need them.
const STATE_FILES: [&str; 4] = ["token", "runner.json", "start.lock", "runner"];
/// The folder of results that the server has not received yet.
const UNDELIVERED: &str = "offline_journal";

impl WorkerFolder {
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the file with the server's token.
    pub fn token_file(&self) -> PathBuf {
        self.path.join("token")
    }

    /// Returns the file with the output and the log of the runner.
    pub fn log_file(&self) -> PathBuf {
        self.path.join("runner.log")
    }

    /// Returns the state folder of the runner and its shim.
    pub fn runner_folder(&self) -> PathBuf {
        self.path.join("runner")
    }

    fn record_file(&self) -> PathBuf {
        self.path.join("runner.json")
    }

    /// Reads the record of the last runner.
    pub fn recorded(&self) -> Option<RecordedRunner> {
        serde_json::from_slice(&fs::read(self.record_file()).ok()?).ok()
    }

    /// Writes the record of the current runner.
    pub fn record(&self, runner: &RecordedRunner) -> io::Result<()> {
        self.write_private("runner.json", serde_json::to_string(runner)?.as_bytes())
    }

    /// Writes the token to a file that only its owner can read.
    pub fn write_token(&self, token: &str) -> io::Result<()> {
        self.write_private("token", format!("{token}\n").as_bytes())
    }

    /// Writes the certificates of the server.
    pub fn write_certificates(&self, certificates: &str) -> io::Result<()> {
        self.write_private("server.crt", certificates.as_bytes())
    }

    /// Returns the file with the certificates of the server.
    pub fn certificates_file(&self) -> PathBuf {
        self.path.join("server.crt")
    }

    fn write_private(&self, name: &str, content: &[u8]) -> io::Result<()> {
        // A temporary file is renamed, so that readers never see partial content.
        let mut file = tempfile::Builder::new().prefix(".torc-").tempfile_in(&self.path)?;
        file.write_all(content)?;
        file.persist(self.path.join(name)).map(drop).map_err(|error| error.error)
    }

    /// Takes the lock that prevents concurrent starts of a runner.
    pub fn lock(&self) -> io::Result<Flock<File>> {
        let path = self.path.join("start.lock");
        let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)?;
        Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, errno)| errno.into())
    }

    /// Returns the process of a running shim.
    pub fn shim(&self) -> Option<ProcessId> {
        torc_runner::shim::living_in(&self.runner_folder())
    }

    /// Lists the logs: files and folders that are not state.
    pub fn logs(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if !STATE_FILES.contains(&name.as_str()) && !name.starts_with(".torc-") {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// Deletes the logs and returns the number of deleted files. Keeps results that the server has not received yet.
    pub fn delete_logs(&self) -> io::Result<u64> {
        let mut files = 0;
        for name in self.logs()?.into_iter().filter(|name| name != UNDELIVERED) {
            files += delete(&self.path.join(name))?;
        }
        Ok(files)
    }
}

/// Writes the start and the end of this runner to the record in its worker's folder.
#[derive(Debug)]
pub struct WorkerRecord {
    folder: WorkerFolder,
    record: RecordedRunner,
}

impl WorkerRecord {
    /// Records this process as the runner of the folder.
    pub fn begin(folder: WorkerFolder) -> io::Result<Self> {
        let record = RecordedRunner {
            process: ProcessId::own(),
            host: host_name(),
            start_time: now(),
            end_time: None,
            end_reason: None,
        };
        folder.record(&record)?;
        Ok(Self { folder, record })
    }

    /// Records a regular end.
    pub fn end(mut self, reason: &str) -> io::Result<()> {
        self.record.end_time = Some(now());
        self.record.end_reason = Some(reason.to_owned());
        self.folder.record(&self.record)
    }
}

fn now() -> String {
    jiff::Timestamp::now().round(jiff::Unit::Second).unwrap_or_default().to_string()
}

/// Deletes a file or a folder without following links; returns the number of deleted files.
fn delete(path: &Path) -> io::Result<u64> {
    if !fs::symlink_metadata(path)?.is_dir() {
        fs::remove_file(path)?;
        return Ok(1);
    }
    let mut files = 0;
    for entry in fs::read_dir(path)? {
        files += delete(&entry?.path())?;
    }
    fs::remove_dir(path)?;
    Ok(files)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn folder() -> (tempfile::TempDir, WorkerFolder) {
        let root = tempfile::tempdir().unwrap();
        let folder = WorkerFolder::new(root.path().to_owned());
        (root, folder)
    }

    #[test]
    fn every_worker_of_every_workflow_has_its_own_folder() {
        let worker = "a@n1:22".parse().unwrap();
        let at = |output: &str| path(Path::new("/home/ada"), Path::new(output), "sweep", &worker);
        assert_eq!(at("torc_output"), Path::new("/home/ada/torc_output/sweep_a@n1_22"));
        assert_eq!(at("/logs"), Path::new("/logs/sweep_a@n1_22"));
    }

    // J04
    #[test]
    fn only_the_owner_can_read_the_token() {
        let (_root, folder) = folder();
        folder.write_token("secret").unwrap();
        let mode = fs::metadata(folder.token_file()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    // J04
    #[test]
    fn only_logs_are_deleted() {
        let (_root, folder) = folder();
        folder.write_token("secret").unwrap();
        for name in ["runner", "job_stdio", "offline_journal"] {
            fs::create_dir(folder.path().join(name)).unwrap();
            fs::write(folder.path().join(name).join("file"), "x").unwrap();
        }
        fs::write(folder.log_file(), "x").unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        fs::write(elsewhere.path().join("precious"), "x").unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), folder.path().join("job_stdio/link")).unwrap();
        assert_eq!(folder.logs().unwrap(), ["job_stdio", "offline_journal", "runner.log"]);
        assert_eq!(folder.delete_logs().unwrap(), 3);
        assert_eq!(folder.logs().unwrap(), ["offline_journal"]);
        assert!(folder.token_file().exists() && folder.path().join("runner/file").exists());
        assert!(elsewhere.path().join("precious").exists());
    }
}
