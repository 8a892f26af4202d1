//! A real Slurm that all tests of a suite share.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use nix::fcntl::FlockArg;

use super::shared::{self, Lifetime};

/// Long enough for a busy machine: Slurm checks time limits only every 30 s.
const DEADLINE: Duration = Duration::from_secs(300);

/// A Slurm with four nodes, as `tests/slurm-lab` describes it.
pub struct SlurmLab {
    folder: PathBuf,
}

impl SlurmLab {
    /// Returns the Slurm that all tests of a suite share, with four CPUs on each node.
    pub fn shared(suite: &str) -> Self {
        Self { folder: shared::once(&format!("slurm-{suite}"), |folder| Self::start(folder, 4, Lifetime::Run)) }
    }

    /// Starts a Slurm for this process alone, with this many CPUs on each node. It stops with the process.
    pub fn with_cpus(cpus: usize) -> Self {
        // Kept, because the lab's guard removes it.
        let folder = tempfile::Builder::new().prefix("torc-slurm-").tempdir().expect("a folder for Slurm").keep();
        Self::start(&folder, cpus, Lifetime::Process);
        Self { folder }
    }

    fn start(folder: &Path, cpus: usize, lifetime: Lifetime) {
        // One at a time: each searches free ports before it uses them.
        let _turn = shared::lock("slurm-ports", FlockArg::LockExclusive);
        let mut command = Self { folder: folder.to_owned() }.tool("up");
        let output = lifetime.apply(command.env("LAB_CPUS", cpus.to_string())).output().expect("the lab's script");
        assert!(output.status.success(), "no Slurm: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn tool(&self, verb: &str) -> Command {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("slurm-lab");
        let mut command = Command::new(script);
        command.arg(verb).arg(&self.folder);
        command
    }

    /// Runs another command of the lab's script, e.g. `node-down 3`.
    pub fn run(&self, verb: &str, argument: &str) {
        let status = Lifetime::Run.apply(self.tool(verb).arg(argument)).status().expect("the lab's script");
        assert!(status.success(), "slurm-lab {verb} {argument}");
    }

    /// Returns Slurm's configuration, the value of `SLURM_CONF`.
    pub fn conf(&self) -> PathBuf {
        self.folder.join("slurm.conf")
    }

    /// Returns the words before a command that make it use this Slurm.
    pub fn prefix(&self) -> Vec<String> {
        vec!["env".to_owned(), format!("SLURM_CONF={}", self.conf().display())]
    }

    /// Runs a command of Slurm, which may fail.
    pub fn attempt(&self, program: &str, arguments: &[&str]) -> Output {
        let output = Command::new(program).args(arguments).env("SLURM_CONF", self.conf()).env("TZ", "UTC").output();
        output.expect("a program of Slurm")
    }

    /// Runs a command of Slurm, which must succeed, and returns its output.
    pub fn command(&self, program: &str, arguments: &[&str]) -> String {
        let output = self.attempt(program, arguments);
        assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// Waits until `look` returns a value, long enough for Slurm.
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < DEADLINE, "waited {DEADLINE:?} for {what}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Waits until `look` returns a value. Polls Slurm five times a second.
pub async fn wait_for_async<T, F: Future<Output = Option<T>>>(what: &str, mut look: impl FnMut() -> F) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(start.elapsed() < DEADLINE, "waited {DEADLINE:?} for {what}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
