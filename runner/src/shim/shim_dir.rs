//! The folder of a shim, which is the runner's state folder: its lock, the file with the shim's socket, and results that no
//! agent has acknowledged.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::process::ProcessId;
use crate::procfs;
use crate::protocol::JobExit;

/// The connection data of a shim: `shim.json` in its folder, readable only for its user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ShimInfo {
    pub pid: i32,
    /// The start of the process, in ticks since the machine started.
    pub start_ticks: u64,
    /// The boot ID of the machine.
    pub boot_id: String,
    pub socket: PathBuf,
    /// The token that authenticates agents.
    pub token: String,
}

impl ShimInfo {
    /// Reads the data of the shim in a folder. The shim may have ended.
    pub fn read(dir: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(info_path(dir)).ok()?).ok()
    }

    /// Writes the file atomically.
    pub fn write(&self, dir: &Path) -> io::Result<()> {
        let fresh = dir.join("shim.json.new");
        let _ = fs::remove_file(&fresh);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
        file.write_all(serde_json::to_string(self)?.as_bytes())?;
        fs::rename(fresh, info_path(dir))
    }

    /// Returns whether exactly this process still exists.
    pub fn is_alive(&self) -> bool {
        self.process().is_alive()
    }

    /// Returns the identity of the process.
    pub fn process(&self) -> ProcessId {
        ProcessId { pid: self.pid, start_ticks: self.start_ticks, boot_id: self.boot_id.clone() }
    }
}

/// Returns the path of the connection data.
pub fn info_path(dir: &Path) -> PathBuf {
    dir.join("shim.json")
}

/// Returns the path of the lock.
pub fn lock_path(dir: &Path) -> PathBuf {
    dir.join("shim.lock")
}

/// Takes the lock of a folder, which a shim holds until it exits; none while another shim has it. On file systems
/// without locks every shim gets it.
pub fn lock(dir: &Path) -> io::Result<Option<File>> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(lock_path(dir))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) | Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => Ok(Some(file)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Upper limit of the folder's length: a socket path has at most 108 bytes, and the file name takes 40 of them.
const MAX_SOCKET_DIR_BYTES: usize = 60;

/// Returns a folder for sockets that belongs to this user alone.
pub fn socket_dir() -> io::Result<PathBuf> {
    let uid = rustix::process::getuid().as_raw();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|dir| dir.is_absolute() && dir.as_os_str().len() <= MAX_SOCKET_DIR_BYTES && dir.is_dir());
    let dir = runtime.map_or_else(|| PathBuf::from(format!("/tmp/torc-{uid}")), |runtime| runtime.join("torc"));
    match DirBuilder::new().mode(0o700).create(&dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    // The name can be guessed, so another user may have created the folder, or a link with this name.
    let found = fs::symlink_metadata(&dir)?;
    if !found.is_dir() || found.uid() != uid {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("{} belongs to another user", dir.display()),
        ));
    }
    if found.mode() & 0o077 != 0 {
        fs::set_permissions(&dir, Permissions::from_mode(0o700))?;
    }
    Ok(dir)
}

/// Returns 16 random bytes in hexadecimal digits.
pub fn random_name() -> io::Result<String> {
    let mut bytes = [0_u8; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn results_path(dir: &Path) -> PathBuf {
    dir.join("shim.results")
}

/// A result that no agent has acknowledged, with the time of day of its end: its moments are invalid after a restart of
/// the machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredResult {
    /// The boot ID of its moments.
    pub boot_id: String,
    /// The end, in milliseconds since 1970.
    pub ended_ms: i64,
    pub exit: JobExit,
}

impl StoredResult {
    /// Returns whether the job ended before the machine started.
    pub fn is_of_earlier_boot(&self) -> bool {
        self.boot_id != procfs::boot_id()
    }
}

/// Writes results for the next shim. They are on disk when this returns.
pub fn store_results(dir: &Path, results: &[StoredResult]) -> io::Result<()> {
    if results.is_empty() {
        return match fs::remove_file(results_path(dir)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
    }
    let fresh = dir.join("shim.results.new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
    for result in results {
        file.write_all(format!("{}\n", serde_json::to_string(result)?).as_bytes())?;
    }
    file.sync_all()?;
    fs::rename(fresh, results_path(dir))
}

/// Returns the results of an earlier shim. They stay until they are replaced.
pub fn left_results(dir: &Path) -> Vec<StoredResult> {
    let text = fs::read_to_string(results_path(dir)).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

#[cfg(test)]
mod tests {
    use torc_api::wire::AttemptKey;

    use super::*;
    use crate::clock::BootInstant;
    use crate::protocol::Outcome;

    #[test]
    fn left_results_keep_time_of_day_and_boot_id() {
        let dir = tempfile::tempdir().expect("a folder");
        assert_eq!(left_results(dir.path()), []);
        let exit = JobExit::new(AttemptKey::default(), BootInstant(1), BootInstant(2), Outcome::Exited(3));
        let ours = StoredResult { boot_id: procfs::boot_id(), ended_ms: 1_000, exit };
        let earlier = StoredResult { boot_id: "another".to_owned(), ..ours.clone() };
        store_results(dir.path(), &[ours.clone(), earlier.clone()]).expect("written");
        assert_eq!(left_results(dir.path()), [ours.clone(), earlier.clone()]);
        assert!(!ours.is_of_earlier_boot() && earlier.is_of_earlier_boot());
        store_results(dir.path(), &[]).expect("removed");
        assert_eq!(left_results(dir.path()), []);
    }
}
