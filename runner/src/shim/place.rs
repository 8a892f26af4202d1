//! The place of a shim: a folder with its lock, its file that says where it is, and the results nobody has taken yet.

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

/// How a shim is found: `shim.json` in its place, readable for its user only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ShimInfo {
    /// Its process.
    pub pid: i32,
    /// When that process started.
    pub start_ticks: u64,
    /// Which start of the machine that was.
    pub boot_id: String,
    /// Where it listens.
    pub socket: PathBuf,
    /// What proves a right to talk to it.
    pub token: String,
}

impl ShimInfo {
    /// The file of the shim in a place, dead or alive.
    pub fn read(dir: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(info_path(dir)).ok()?).ok()
    }

    /// Writes it whole or not at all.
    pub fn write(&self, dir: &Path) -> io::Result<()> {
        let fresh = dir.join("shim.json.new");
        let _ = fs::remove_file(&fresh);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
        file.write_all(serde_json::to_string(self)?.as_bytes())?;
        fs::rename(fresh, info_path(dir))
    }

    /// Whether exactly this process is still there.
    pub fn is_alive(&self) -> bool {
        self.process().is_alive()
    }

    /// Its process.
    pub fn process(&self) -> ProcessId {
        ProcessId { pid: self.pid, start_ticks: self.start_ticks, boot_id: self.boot_id.clone() }
    }
}

/// The file's file.
pub fn info_path(dir: &Path) -> PathBuf {
    dir.join("shim.json")
}

/// The file of the lock.
pub fn lock_path(dir: &Path) -> PathBuf {
    dir.join("shim.lock")
}

/// Held by a shim as long as it lives; absent while another one has it. File systems without locks are trusted.
pub fn lock(dir: &Path) -> io::Result<Option<File>> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(lock_path(dir))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) | Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) => Ok(Some(file)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The name of a socket has to fit into 108 bytes; ours takes 40 of them.
const SOCKET_DIR_BYTES: usize = 60;

/// A folder for sockets that belongs to this user alone.
pub fn socket_dir() -> io::Result<PathBuf> {
    let uid = rustix::process::getuid().as_raw();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|dir| dir.is_absolute() && dir.as_os_str().len() <= SOCKET_DIR_BYTES && dir.is_dir());
    let dir = runtime.map_or_else(|| PathBuf::from(format!("/tmp/torc-{uid}")), |runtime| runtime.join("torc"));
    match DirBuilder::new().mode(0o700).create(&dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    // The name is known to everybody: it may be somebody else's folder, or a link to one.
    let found = fs::symlink_metadata(&dir)?;
    if !found.is_dir() || found.uid() != uid {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("{} belongs to somebody else", dir.display()),
        ));
    }
    if found.mode() & 0o077 != 0 {
        fs::set_permissions(&dir, Permissions::from_mode(0o700))?;
    }
    Ok(dir)
}

/// Sixteen random bytes in hex.
pub fn random_name() -> io::Result<String> {
    let mut bytes = [0_u8; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn results_path(dir: &Path) -> PathBuf {
    dir.join("shim.results")
}

/// A result that nobody has taken, with the time of day at which it ended: its moments mean nothing once the machine has restarted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeftResult {
    /// Which start of the machine its moments are of.
    pub boot_id: String,
    /// When it ended, in milliseconds since 1970.
    pub ended_ms: i64,
    /// The result.
    pub exit: JobExit,
}

impl LeftResult {
    /// It ended before the machine started.
    pub fn is_of_earlier_boot(&self) -> bool {
        self.boot_id != procfs::boot_id()
    }
}

/// Leaves results for the next shim, on the disk before this returns.
pub fn leave_results(dir: &Path, results: &[LeftResult]) -> io::Result<()> {
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

/// Results that an earlier shim left. They stay until they are replaced.
pub fn left_results(dir: &Path) -> Vec<LeftResult> {
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
    fn results_wait_with_the_time_of_day_and_know_their_start_of_the_machine() {
        let dir = tempfile::tempdir().expect("a folder");
        assert_eq!(left_results(dir.path()), []);
        let exit = JobExit::new(AttemptKey::default(), BootInstant(1), BootInstant(2), Outcome::Exited(3));
        let ours = LeftResult { boot_id: procfs::boot_id(), ended_ms: 1_000, exit };
        let earlier = LeftResult { boot_id: "another".to_owned(), ..ours.clone() };
        leave_results(dir.path(), &[ours.clone(), earlier.clone()]).expect("written");
        assert_eq!(left_results(dir.path()), [ours.clone(), earlier.clone()]);
        assert!(!ours.is_of_earlier_boot() && earlier.is_of_earlier_boot());
        leave_results(dir.path(), &[]).expect("removed");
        assert_eq!(left_results(dir.path()), []);
    }
}
