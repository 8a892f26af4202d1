//! Components that are started once and shared by all tests of a run, although each test is a separate process.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use nix::fcntl::{Flock, FlockArg};

use crate::env::HARNESS_MARK;

/// Text that a test prints when it gets its turn. The harness then restarts the test's time limit.
pub const TURN_TAKEN: &str = "turn taken:";

/// The folder of this run, and the process with whose end all of its components stop.
struct Run {
    folder: PathBuf,
    owner: u32,
}

/// Returns the run that the harness names in variables. Under `cargo test` a run is one test binary.
fn run() -> &'static Run {
    static RUN: OnceLock<Run> = OnceLock::new();
    RUN.get_or_init(|| {
        let of_harness = || {
            let folder = PathBuf::from(std::env::var_os("TORC_TEST_SHARED")?);
            Some(Run { folder, owner: std::env::var("TORC_TEST_HARNESS").ok()?.parse().ok()? })
        };
        of_harness().unwrap_or_else(|| {
            let folder = std::env::temp_dir().join(format!("torc-shared-{}", std::process::id()));
            fs::create_dir_all(&folder).expect("a folder for shared components");
            Run { folder, owner: std::process::id() }
        })
    })
}

/// Returns the folder of this run. It outlives the folders of the tests.
pub fn folder() -> &'static Path {
    &run().folder
}

/// The lifetime of a component of a lab.
#[derive(Clone, Copy)]
pub enum Lifetime {
    /// The component is shared by all tests of the run.
    Run,
    /// The component belongs to the process of one test.
    Process,
}

impl Lifetime {
    /// Prepares a call of a lab's script that starts daemons: names their owner and excludes them from the processes of the test.
    /// Their temporary folder outlives the test, because MariaDB refuses queries without one.
    pub fn apply(self, command: &mut Command) -> &mut Command {
        let owner = match self {
            Self::Run => run().owner,
            Self::Process => std::process::id(),
        };
        command.env("LAB_OWNER", owner.to_string()).env("TMPDIR", &run().folder).env_remove(HARNESS_MARK)
    }
}

/// Returns the folder of a shared component. The first caller starts it; the others wait until it has started.
pub fn once(name: &str, start: impl FnOnce(&Path)) -> PathBuf {
    let folder = run().folder.join(name);
    let _lock = lock(&format!("{name}.start"), FlockArg::LockExclusive);
    let (started, failed) = (run().folder.join(format!("{name}.started")), run().folder.join(format!("{name}.failed")));
    assert!(!failed.exists(), "{name} did not start; the output of the first test that tried has the cause");
    if !started.exists() {
        fs::write(&failed, "").expect("a mark in the shared folder");
        fs::create_dir_all(&folder).expect("a folder for a shared component");
        start(&folder);
        fs::rename(&failed, &started).expect("a mark in the shared folder");
    }
    folder
}

/// The right to use a component, released on drop.
pub struct Turn {
    _lock: Flock<File>,
}

impl Turn {
    /// Waits until no test uses the component exclusively.
    pub fn shared(name: &str) -> Self {
        Self::take(name, FlockArg::LockShared)
    }

    /// Waits until no other test uses the component, and then uses it exclusively.
    pub fn alone(name: &str) -> Self {
        Self::take(name, FlockArg::LockExclusive)
    }

    fn take(name: &str, how: FlockArg) -> Self {
        // A test that wants the component alone holds the queue while it waits: a stream of sharing tests cannot starve it.
        let queue = lock(&format!("{name}.queue"), FlockArg::LockExclusive);
        let turn = Self { _lock: lock(&format!("{name}.turn"), how) };
        drop(queue);
        announce(name);
        turn
    }
}

#[expect(clippy::print_stdout, reason = "the harness reads the output of a test")]
fn announce(name: &str) {
    println!("{TURN_TAKEN} {name}");
}

/// Locks a file of the run.
pub(super) fn lock(name: &str, how: FlockArg) -> Flock<File> {
    let path = run().folder.join(name);
    let file = File::options().create(true).truncate(false).write(true).open(path).expect("a lock file");
    Flock::lock(file, how).map_err(|(_, error)| error).expect("a lock")
}
