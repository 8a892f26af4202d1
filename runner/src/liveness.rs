//! Liveness of a runner's processes on this machine: the agent that registered, its shim, and those of its jobs.
//!
//! A process counts as ended only if the check sees all processes that could be it. A process that this user may not
//! inspect is unknown.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use torc_api::recovery::ProcessState;
use torc_api::wire::ProcessIdentity;

use crate::procfs;
use crate::shim::crash_cleanup;
use crate::shim::shim_dir::{self, ShimInfo};

/// The state of a runner's folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunnerDirState {
    /// The shim, which holds the jobs.
    pub shim: ProcessState,
    /// Processes of jobs that run although their shim has ended.
    pub left_processes: usize,
    /// Number of results that no agent has acknowledged.
    pub left_results: usize,
}

/// Returns whether the PID of a process is valid here: same boot and same PID namespace.
pub fn is_of_this_machine(process: &ProcessIdentity) -> bool {
    is_of_this_boot(process) && process.pid_namespace == procfs::pid_namespace() && !process.pid_namespace.is_empty()
}

/// Returns whether a process was started since this machine's last boot, in any namespace.
pub fn is_of_this_boot(process: &ProcessIdentity) -> bool {
    process.boot_id == procfs::boot_id() && !process.boot_id.is_empty()
}

/// Returns the state of a process of this machine.
pub fn process_state(pid: i64, process: &ProcessIdentity) -> ProcessState {
    let Some(pid) = i32::try_from(pid).ok().filter(|pid| *pid > 0) else { return ProcessState::Unknown };
    // Unlike /proc, a signal also finds processes that are hidden from this user.
    if Pid::from_raw(pid).is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH)) {
        return ProcessState::Ended;
    }
    match procfs::start_ticks(pid) {
        Some(ticks) if process.start_ticks > 0 && ticks != process.start_ticks => ProcessState::Ended,
        Some(_) if process.start_ticks == 0 => ProcessState::Unknown,
        Some(_) if procfs::is_zombie(pid) => ProcessState::Ended,
        Some(_) => ProcessState::Running,
        None => ProcessState::Unknown,
    }
}

/// Returns the state of the folder of a runner of this machine.
pub fn place_state(dir: &Path) -> RunnerDirState {
    let unknown = RunnerDirState { shim: ProcessState::Unknown, left_processes: 0, left_results: 0 };
    if has_shim_process(dir) {
        return RunnerDirState { shim: ProcessState::Running, ..unknown };
    }
    match fs::metadata(dir) {
        Ok(_) if !is_own(dir) => unknown,
        Ok(_) if is_locked(dir) || ShimInfo::read(dir).is_some_and(|info| info.is_alive()) => {
            RunnerDirState { shim: ProcessState::Running, ..unknown }
        }
        Ok(_) => RunnerDirState {
            shim: ProcessState::Ended,
            left_processes: crash_cleanup::count(dir),
            left_results: shim_dir::left_results(dir).len(),
        },
        // A shim survives the deletion of its folder. Then only a complete list of processes is conclusive.
        Err(error) if error.kind() == io::ErrorKind::NotFound && shows_all_processes() => {
            RunnerDirState { shim: ProcessState::Ended, ..unknown }
        }
        Err(_) => unknown,
    }
}

/// Ends the processes of jobs whose shim has ended, as the next shim in the folder would. Does nothing while a shim may
/// be alive.
pub fn end_left_processes(dir: &Path) -> io::Result<()> {
    if !is_own(dir) || has_shim_process(dir) {
        return Ok(());
    }
    // The lock keeps another shim from starting.
    if let Some(_lock) = shim_dir::lock(dir)? {
        crash_cleanup::clear(dir);
    }
    Ok(())
}

/// Returns whether this user owns the folder, so that a runner of this user wrote the PIDs in it. Other PIDs must not
/// be signaled.
fn is_own(dir: &Path) -> bool {
    let uid = rustix::process::getuid().as_raw();
    fs::symlink_metadata(dir).is_ok_and(|found| found.is_dir() && found.uid() == uid && found.mode() & 0o022 == 0)
}

/// Returns whether a process has this folder as the argument of a shim.
fn has_shim_process(dir: &Path) -> bool {
    let is_told = |arguments: &[Vec<u8>]| {
        let mut pairs = arguments.windows(2);
        pairs.any(|pair| pair[0] == b"--dir" && pair[1] == dir.as_os_str().as_bytes())
    };
    let own = i32::try_from(std::process::id()).ok();
    let others = procfs::processes().into_iter().filter(|pid| Some(*pid) != own);
    others.filter(|pid| is_told(&procfs::arguments(*pid))).any(|pid| !procfs::is_zombie(pid))
}

/// Returns whether /proc shows processes of other users. Where it hides them, it hides process 1, too.
fn shows_all_processes() -> bool {
    procfs::start_ticks(1).is_some()
}

/// Returns whether a shim holds the lock of a folder.
fn is_locked(dir: &Path) -> bool {
    let Ok(file) = OpenOptions::new().write(true).open(shim_dir::lock_path(dir)) else { return false };
    flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::process::ProcessId;

    fn own() -> (i64, ProcessIdentity) {
        (i64::from(std::process::id()), ProcessId::own().identity())
    }

    fn private_folder() -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a folder");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).expect("permissions");
        dir
    }

    #[test]
    fn a_machine_is_known_by_its_boot_and_namespace() {
        let (_, process) = own();
        assert!(is_of_this_machine(&process) && is_of_this_boot(&process));
        let contained = ProcessIdentity { pid_namespace: "pid:[1]".to_owned(), ..process.clone() };
        assert!(!is_of_this_machine(&contained) && is_of_this_boot(&contained));
        for other in [ProcessIdentity { boot_id: "b".to_owned(), ..process }, ProcessIdentity::default()] {
            assert!(!is_of_this_machine(&other) && !is_of_this_boot(&other), "{other:?}");
        }
    }

    #[test]
    fn a_process_is_known_by_its_pid_and_start() {
        let (pid, process) = own();
        let started = |start_ticks| ProcessIdentity { start_ticks, ..process.clone() };
        assert_eq!(process_state(pid, &process), ProcessState::Running);
        assert_eq!(process_state(pid, &started(process.start_ticks + 1)), ProcessState::Ended, "a reused PID");
        assert_eq!(process_state(pid, &started(0)), ProcessState::Unknown);
        assert_eq!(process_state(i64::from(i32::MAX), &process), ProcessState::Ended);
        for nonsense in [0, -1, i64::MAX] {
            assert_eq!(process_state(nonsense, &process), ProcessState::Unknown);
        }
    }

    #[test]
    fn a_held_lock_is_a_living_shim() {
        let dir = private_folder();
        assert_eq!(place_state(dir.path()).shim, ProcessState::Ended);
        let lock = shim_dir::lock(dir.path()).expect("a file").expect("free");
        assert_eq!(place_state(dir.path()).shim, ProcessState::Running);
        drop(lock);
        assert_eq!(place_state(dir.path()).shim, ProcessState::Ended);
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o722)).expect("permissions");
        assert_eq!(place_state(dir.path()).shim, ProcessState::Unknown, "others may write there");
    }

    #[test]
    fn a_shim_is_found_without_its_folder() {
        let dir = private_folder();
        let gone = dir.path().join("gone");
        let mut shim = Command::new("sh")
            .args(["-c", "echo; read line", "shim", "--dir"])
            .arg(&gone)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        // The kernel shows the arguments of a process shortly after its start.
        shim.stdout.as_mut().expect("a pipe").read_exact(&mut [0]).expect("a line");
        assert_eq!(place_state(&gone).shim, ProcessState::Running);
        drop(shim.stdin.take());
        shim.wait().expect("an end");
        let expected = if shows_all_processes() { ProcessState::Ended } else { ProcessState::Unknown };
        assert_eq!(place_state(&gone).shim, expected);
    }
}
