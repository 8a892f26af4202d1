//! The shim: a small process, the parent of all jobs of a place, which outlives the agent that decides about them.
//!
//! It starts and ends what it is told to, holds exit statuses until they are acknowledged, and owns the log files. It has one
//! thread and no async runtime, and decides nothing but this: without an agent for too long, it ends the jobs and leaves.

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
use self::place::ShimInfo;
use self::start_log::{StartLog, StartLogHeader};
use crate::process::ProcessId;
use crate::procfs;

mod connection;
pub(crate) mod crash_cleanup;
mod event_loop;
mod jobs;
mod logs;
pub(crate) mod place;
mod rusage;
pub(crate) mod spawn;
mod start_log;

/// What the shim writes to standard output once it can be talked to.
pub(crate) const READY: &str = "ready";

/// What a shim is told at its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShimArgs {
    /// Its place.
    pub dir: PathBuf,
    /// How long jobs go on without an agent.
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

    /// The arguments that [`ShimArgs::parse`] reads.
    pub fn to_args(&self) -> Vec<OsString> {
        let millis = self.orphan_grace.as_millis().to_string();
        vec!["--dir".into(), self.dir.clone().into(), "--orphan-grace-ms".into(), millis.into()]
    }
}

/// Why a shim could not work.
#[derive(Debug, Error)]
pub enum ShimError {
    /// An argument is unknown, incomplete or missing.
    #[error("bad or missing argument {0:?}")]
    Argument(OsString),
    /// Another shim has the place.
    #[error("another shim is at work in {}", .0.display())]
    Occupied(PathBuf),
    /// The place is no use.
    #[error("cannot work in {}", dir.display())]
    Place {
        /// The place.
        dir: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The operating system did not give what is needed.
    #[error("cannot become the parent of jobs")]
    Process(#[source] io::Error),
}

/// The shim in a place, if one lives there.
pub fn living_in(dir: &Path) -> Option<ProcessId> {
    ShimInfo::read(dir).map(|info| info.process()).filter(ProcessId::is_alive)
}

/// The whole life of a shim. To be called before the process has a second thread.
pub fn main(args: &ShimArgs) -> Result<(), ShimError> {
    let place = |source| ShimError::Place { dir: args.dir.clone(), source };
    // Fails only if the process leads a group, e.g. when started by hand: then it stays in its session.
    let _ = rustix::process::setsid();
    DirBuilder::new().recursive(true).mode(0o700).create(&args.dir).map_err(place)?;
    let dir = args.dir.canonicalize().map_err(place)?;
    let _lock = place::lock(&dir).map_err(place)?.ok_or_else(|| ShimError::Occupied(dir.clone()))?;
    std::env::set_current_dir("/").map_err(ShimError::Process)?;
    rustix::process::set_child_subreaper(rustix::process::Pid::from_raw(1))
        .map_err(|errno| ShimError::Process(errno.into()))?;
    let signals = listen_to_signals().map_err(ShimError::Process)?;

    if let Some(info) = ShimInfo::read(&dir) {
        let _ = fs::remove_file(info.socket);
    }
    crash_cleanup::clear(&dir);
    let shim = place::random_name().map_err(ShimError::Process)?;
    let header = StartLogHeader { shim: shim.clone(), boot_id: procfs::boot_id() };
    let start_log = StartLog::create(&dir, &header).map_err(place)?;
    let jobs = JobTable::new(&shim, start_log, place::left_results(&dir));
    let (listener, info) = listen(&shim).map_err(ShimError::Process)?;
    info.write(&dir).map_err(place)?;
    say_ready();

    let shim = Shim::new(jobs, listener, info.token.clone(), signals, args.orphan_grace);
    let (jobs, _agent) = shim.work().map_err(ShimError::Process)?;
    let results = jobs.close();
    let left = place::leave_results(&dir, &results).map_err(place);
    clean_up(&dir, &info);
    left
}

/// Whether a shim is at work in a place, or has left results there.
pub fn has_left(dir: &Path) -> bool {
    ShimInfo::read(dir).is_some_and(|info| info.is_alive()) || !place::left_results(dir).is_empty()
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
    // Handlers rather than a signal mask: a mask would be inherited by every job.
    Ok(Signals { child: pipe(&[SIGCHLD])?, end: pipe(&[SIGTERM, SIGINT, SIGHUP])? })
}

fn listen(shim: &str) -> io::Result<(UnixListener, ShimInfo)> {
    let socket = place::socket_dir()?.join(format!("{shim}.sock"));
    let listener = UnixListener::bind(&socket)?;
    listener.set_nonblocking(true)?;
    let pid = i32::try_from(std::process::id()).unwrap_or_default();
    let start_ticks = procfs::start_ticks(pid).unwrap_or_default();
    let info = ShimInfo { pid, start_ticks, boot_id: procfs::boot_id(), socket, token: place::random_name()? };
    Ok((listener, info))
}

/// Tells whoever started the shim, then lets go of the pipe.
fn say_ready() {
    let mut stdout = io::stdout();
    let _ = stdout.write_all(format!("\n{READY}\n").as_bytes()).and_then(|()| stdout.flush());
    if let Ok(null) = OpenOptions::new().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(null);
    }
}

fn clean_up(dir: &Path, info: &ShimInfo) {
    let _ = fs::remove_file(&info.socket);
    let _ = fs::remove_file(place::info_path(dir));
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
    fn a_card_of_a_dead_process_is_no_shim() {
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
