//! The shim: a small process that is the parent of all jobs of a runner, and outlives the agent.
//!
//! It starts and ends jobs on order, keeps exit statuses until they are acknowledged, and owns the log files. It has
//! one thread and no async runtime. Its only decision: without an agent for too long, it ends the jobs and exits.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use thiserror::Error;

use self::event_loop::{Shim, Signals};
use self::jobs::JobTable;
use self::shim_dir::ShimInfo;
use self::start_log::{StartLog, StartLogHeader};
use crate::process::ProcessId;
use crate::procfs;

mod connection;
pub(crate) mod crash_cleanup;
mod event_loop;
mod jobs;
mod logs;
mod rusage;
pub(crate) mod shim_dir;
pub(crate) mod spawn;
mod start_log;

/// The line that the shim writes to standard output when it accepts connections.
pub(crate) const READY: &str = "ready";

/// The arguments of a shim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShimArgs {
    /// The state folder of the runner.
    pub dir: PathBuf,
    /// Time without an agent after which the shim ends its jobs.
    pub orphan_grace: Duration,
}

impl ShimArgs {
    /// Reads `--dir DIR` and `--orphan-grace-ms N`.
    pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Self, ShimError> {
        let mut args = args.into_iter();
        let (mut dir, mut orphan_grace) = (None, Duration::from_secs(60));
        while let Some(name) = args.next() {
            let value = args.next().ok_or_else(|| ShimError::Argument(name.clone()))?;
            match name.to_str() {
                Some("--dir") => dir = Some(PathBuf::from(value)),
                Some("--orphan-grace-ms") => {
                    let millis = value.to_str().and_then(|text| text.parse().ok());
                    orphan_grace = Duration::from_millis(millis.ok_or(ShimError::Argument(value))?);
                }
                _ => return Err(ShimError::Argument(name)),
            }
        }
        Ok(Self { dir: dir.ok_or_else(|| ShimError::Argument("--dir".into()))?, orphan_grace })
    }

    /// Returns the arguments that [`ShimArgs::parse`] reads.
    pub fn to_args(&self) -> Vec<OsString> {
        let millis = self.orphan_grace.as_millis().to_string();
        vec!["--dir".into(), self.dir.clone().into(), "--orphan-grace-ms".into(), millis.into()]
    }
}

/// The error of a shim.
#[derive(Debug, Error)]
pub enum ShimError {
    /// An argument is unknown, incomplete or missing.
    #[error("invalid or missing argument {0:?}")]
    Argument(OsString),
    /// Another shim uses the folder.
    #[error("another shim uses the folder {}", .0.display())]
    Occupied(PathBuf),
    /// The folder cannot be used.
    #[error("cannot use the folder {}", dir.display())]
    Dir {
        dir: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The operating system refused a required call.
    #[error("cannot become the parent of jobs")]
    Process(#[source] io::Error),
}

/// Returns the shim that uses a folder, if it is alive.
pub fn living_in(dir: &Path) -> Option<ProcessId> {
    ShimInfo::read(dir).map(|info| info.process()).filter(ProcessId::is_alive)
}

/// Runs a shim until it exits. The process must have a single thread.
pub fn main(args: &ShimArgs) -> Result<(), ShimError> {
    let dir_error = |source| ShimError::Dir { dir: args.dir.clone(), source };
    // This fails only for a process group leader, e.g. a shim that was started by hand; it stays in its session.
    let _ = rustix::process::setsid();
    DirBuilder::new().recursive(true).mode(0o700).create(&args.dir).map_err(dir_error)?;
    let dir = args.dir.canonicalize().map_err(dir_error)?;
    let _lock = shim_dir::lock(&dir).map_err(dir_error)?.ok_or_else(|| ShimError::Occupied(dir.clone()))?;
    std::env::set_current_dir("/").map_err(ShimError::Process)?;
    rustix::process::set_child_subreaper(rustix::process::Pid::from_raw(1))
        .map_err(|errno| ShimError::Process(errno.into()))?;
    let signals = listen_to_signals().map_err(ShimError::Process)?;

    if let Some(info) = ShimInfo::read(&dir) {
        let _ = fs::remove_file(info.socket);
    }
    crash_cleanup::clear(&dir);
    let shim = shim_dir::random_name().map_err(ShimError::Process)?;
    let header = StartLogHeader { shim: shim.clone(), boot_id: procfs::boot_id() };
    let start_log = StartLog::create(&dir, &header).map_err(dir_error)?;
    let jobs = JobTable::new(&shim, start_log, shim_dir::left_results(&dir));
    let (listener, info) = listen(&shim).map_err(ShimError::Process)?;
    info.write(&dir).map_err(dir_error)?;
    signal_ready();

    let shim = Shim::new(jobs, listener, info.token.clone(), signals, args.orphan_grace);
    let (jobs, _agent) = shim.work().map_err(ShimError::Process)?;
    let results = jobs.close();
    let left = shim_dir::store_results(&dir, &results).map_err(dir_error);
    clean_up(&dir, &info);
    left
}

/// Returns whether a shim uses a folder, or has left results there.
pub fn has_left(dir: &Path) -> bool {
    ShimInfo::read(dir).is_some_and(|info| info.is_alive()) || !shim_dir::left_results(dir).is_empty()
}

fn listen_to_signals() -> io::Result<Signals> {
    let pipe = |signals: &[i32]| {
        let (readable, writable) = UnixStream::pair()?;
        readable.set_nonblocking(true)?;
        for signal in signals {
            signal_hook::low_level::pipe::register(*signal, writable.try_clone()?)?;
        }
        Ok::<_, io::Error>(readable)
    };
    // Signal handlers are used instead of a signal mask, which every job would inherit.
    Ok(Signals { child: pipe(&[SIGCHLD])?, end: pipe(&[SIGTERM, SIGINT, SIGHUP])? })
}

fn listen(shim: &str) -> io::Result<(UnixListener, ShimInfo)> {
    let socket = shim_dir::socket_dir()?.join(format!("{shim}.sock"));
    let listener = UnixListener::bind(&socket)?;
    listener.set_nonblocking(true)?;
    let pid = i32::try_from(std::process::id()).unwrap_or_default();
    let start_ticks = procfs::start_ticks(pid).unwrap_or_default();
    let info = ShimInfo { pid, start_ticks, boot_id: procfs::boot_id(), socket, token: shim_dir::random_name()? };
    Ok((listener, info))
}

/// Signals readiness to the process that started the shim, and closes the pipe to it.
fn signal_ready() {
    let mut stdout = io::stdout();
    let _ = stdout.write_all(format!("\n{READY}\n").as_bytes()).and_then(|()| stdout.flush());
    if let Ok(null) = OpenOptions::new().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(null);
    }
}

fn clean_up(dir: &Path, info: &ShimInfo) {
    let _ = fs::remove_file(&info.socket);
    let _ = fs::remove_file(shim_dir::info_path(dir));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_round_trip() {
        let args = ShimArgs { dir: "/a b".into(), orphan_grace: Duration::from_millis(1500) };
        assert_eq!(ShimArgs::parse(args.to_args()).expect("parses"), args);
        for bad in [&["--dir"][..], &[], &["--what", "x"], &["--dir", "x", "--orphan-grace-ms", "y"]] {
            assert!(ShimArgs::parse(bad.iter().map(OsString::from)).is_err(), "{bad:?}");
        }
    }

    // J04
    #[test]
    fn data_of_a_dead_process_is_no_shim() {
        let dir = tempfile::tempdir().expect("a folder");
        assert_eq!(living_in(dir.path()), None);
        let own = ProcessId::own();
        let info = |pid| ShimInfo {
            pid,
            start_ticks: own.start_ticks,
            boot_id: own.boot_id.clone(),
            socket: "/none".into(),
            token: String::new(),
        };
        info(own.pid).write(dir.path()).expect("written");
        assert_eq!((living_in(dir.path()), has_left(dir.path())), (Some(own.clone()), true));
        info(i32::MAX).write(dir.path()).expect("written");
        assert_eq!((living_in(dir.path()), has_left(dir.path())), (None, false));
    }
}
