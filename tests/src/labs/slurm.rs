//! A real Slurm for a suite, started once for all of its tests.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use nix::fcntl::FlockArg;

use super::shared::{self, Lifetime};

/// Slurm takes its time: it looks at time limits every half minute, and this machine may be busy.
const DEADLINE: Duration = Duration::from_secs(300);

/// A Slurm with four nodes; `tests/slurm-lab` says what it has.
pub struct SlurmLab {
    folder: PathBuf,
}

impl SlurmLab {
    /// The Slurm that all tests of a suite share, with four CPUs on each node.
    pub fn shared(suite: &str) -> Self {
        Self { folder: shared::once(&format!("slurm-{suite}"), |folder| Self::start(folder, 4, Lifetime::Run)) }
    }

    /// A Slurm of this process alone, with this many CPUs on each node. It goes when the process does.
    pub fn with_cpus(cpus: usize) -> Self {
        // Not a folder that removes itself: the lab's guard removes it.
        let folder = tempfile::Builder::new().prefix("torc-slurm-").tempdir().expect("a folder for Slurm").keep();
        Self::start(&folder, cpus, Lifetime::Process);
        Self { folder }
    }

    fn start(folder: &Path, cpus: usize, lifetime: Lifetime) {
        // One after another: each looks for free ports before it takes them.
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

    /// Something else that the lab's script can do, e.g. `node-down 3`.
    pub fn run(&self, verb: &str, argument: &str) {
        let status = Lifetime::Run.apply(self.tool(verb).arg(argument)).status().expect("the lab's script");
        assert!(status.success(), "slurm-lab {verb} {argument}");
    }

    /// Slurm's configuration: whoever sees it as `SLURM_CONF` speaks with this Slurm.
    pub fn conf(&self) -> PathBuf {
        self.folder.join("slurm.conf")
    }

    /// Words that lead a command to this Slurm.
    pub fn prefix(&self) -> Vec<String> {
        vec!["env".to_owned(), format!("SLURM_CONF={}", self.conf().display())]
    }

    /// A command of Slurm's that may come too late.
    pub fn attempt(&self, program: &str, arguments: &[&str]) -> Output {
        let output = Command::new(program).args(arguments).env("SLURM_CONF", self.conf()).env("TZ", "UTC").output();
        output.expect("a program of Slurm's")
    }

    /// A command of Slurm's, as a person would give it; its output.
    pub fn command(&self, program: &str, arguments: &[&str]) -> String {
        let output = self.attempt(program, arguments);
        assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// Looks again and again until there is something, with the patience that Slurm needs.
pub fn patiently<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < DEADLINE, "waited {DEADLINE:?} for {what}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Looks again and again until there is something; what is looked at is Slurm, so not too often.
pub async fn until_found<T, F: Future<Output = Option<T>>>(what: &str, mut look: impl FnMut() -> F) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(start.elapsed() < DEADLINE, "waited {DEADLINE:?} for {what}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
