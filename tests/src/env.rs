//! The isolated environment of a test: a folder and the processes started in it. Dropping it kills these processes.

mod c_library;
mod call;
mod disk;
mod overlap;
mod processes;
mod server;
mod wait;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;
use tempfile::TempDir;

pub use call::{Call, Outcome, Running, binary};
pub use disk::SmallDisk;
pub use overlap::{most_at_once, rendezvous, results_by_runner};
pub use processes::{Process, kill, marked as marked_processes};
pub use server::{SERVER, Server};
pub use wait::{eventually, until};

/// The variable that marks every process of a test environment: all descendants inherit it, also detached ones.
const MARK: &str = "TORC_TEST_ENV";
/// The variable by which the harness finds the processes of a test.
pub(crate) const HARNESS_MARK: &str = "TORC_TEST_ID";

/// Returns the root of the repository.
pub fn project_root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a folder above this package")
}

/// Prints why the test cannot run here. The harness counts it as skipped.
#[expect(clippy::print_stdout, reason = "the harness reads the output of a test")]
pub fn skip(reason: &str) {
    println!("skipped ({reason})");
}

/// The folder of a test, and all processes that it has started.
pub struct TestEnv {
    folder: TempDir,
    mark: String,
    calls: AtomicU32,
}

impl Default for TestEnv {
    fn default() -> Self {
        Self::new()
    }
}

impl TestEnv {
    /// Creates an empty folder.
    pub fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("te-").tempdir().expect("a folder for the test");
        for part in [".test", ".test/run"] {
            fs::create_dir(folder.path().join(part)).expect("a folder for the test");
        }
        fs::set_permissions(folder.path().join(".test/run"), fs::Permissions::from_mode(0o700)).expect("permissions");
        let mark = folder.path().to_string_lossy().into_owned();
        Self { folder, mark, calls: AtomicU32::new(0) }
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns a path in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    /// Returns a path in the folder as text.
    pub fn text_path(&self, name: &str) -> String {
        self.path(name).to_string_lossy().into_owned()
    }

    /// Writes a file and creates the folders above it.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a folder above")).expect("folders");
        fs::write(path, content).expect("a file");
    }

    /// Returns the lines of a file, or none if it does not exist.
    pub fn lines(&self, name: &str) -> Vec<String> {
        fs::read_to_string(self.path(name)).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    /// Prepares a call of `torc` with blank-separated arguments.
    pub fn call(&self, line: &str) -> Call {
        self.call_program(binary(), line)
    }

    /// Returns the program `torc-slurm-job-runner`, a link to `torc`.
    pub fn slurm_job_runner(&self) -> PathBuf {
        let link = self.path(".test/torc-slurm-job-runner");
        if !link.exists() {
            fs::create_dir_all(self.path(".test")).expect("a folder");
            std::os::unix::fs::symlink(binary(), &link).expect("a link");
        }
        link
    }

    /// Prepares a call of another executable of `torc`.
    pub fn call_program(&self, program: impl AsRef<Path>, line: &str) -> Call {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        let mut call = Call::new(self.path(&format!(".test/{number}")), program.as_ref());
        for word in line.split_whitespace() {
            call = call.arg(word);
        }
        for (name, value) in self.marks() {
            call = call.env(name, value);
        }
        call.folder(self.folder()).env("HOME", self.folder()).env("XDG_RUNTIME_DIR", self.path(".test/run"))
    }

    /// Returns the variables by which the processes of this environment are found.
    pub fn marks(&self) -> Vec<(&'static str, String)> {
        let of_harness = std::env::var(HARNESS_MARK).ok().map(|id| (HARNESS_MARK, id));
        std::iter::once((MARK, self.mark.clone())).chain(of_harness).collect()
    }

    /// Runs `torc` and waits until it exits.
    pub fn torc(&self, line: &str) -> Outcome {
        self.call(line).run()
    }

    /// Starts `torc` in the background.
    pub fn start(&self, line: &str) -> Running {
        self.call(line).start()
    }

    /// Runs a command with `-o json` and parses its output.
    pub fn json(&self, line: &str) -> Value {
        self.call(line).arg("-o").arg("json").run().exits(0).json()
    }

    /// Returns the items of a list that a command prints.
    pub fn items(&self, line: &str) -> Vec<Value> {
        self.json(line)["items"].as_array().expect("a list").clone()
    }

    /// Returns the state of every job by its name. `workflow` may be empty.
    pub fn states(&self, workflow: &str) -> BTreeMap<String, String> {
        let jobs = self.items(&format!("get jobs {workflow}"));
        jobs.iter().map(|job| (text(job, "name"), text(job, "status"))).collect()
    }

    /// Returns every attempt that has ended, as "job attempt status".
    pub fn attempts(&self, workflow: &str) -> Vec<String> {
        let results = self.items(&format!("get results {workflow}"));
        let mut attempts: Vec<String> = results
            .iter()
            .map(|result| format!("{} {} {}", text(result, "job"), result["attempt"], text(result, "status")))
            .collect();
        attempts.sort();
        attempts
    }

    /// Returns the living processes that were started here.
    pub fn processes(&self) -> Vec<Process> {
        processes::marked(MARK, &self.mark)
    }

    /// Waits until no process that was started here is alive.
    pub fn expect_nothing_left(&self) {
        until(|| self.processes().is_empty(), || format!("these processes are still alive: {:#?}", self.processes()));
    }

    /// Kills the processes of this environment whose command line contains a text. Returns their number.
    pub fn kill_all(&self, command: &str) -> usize {
        let found: Vec<Process> =
            self.processes().into_iter().filter(|process| process.command.contains(command)).collect();
        for process in &found {
            kill(process.pid);
        }
        found.len()
    }
}

impl Drop for TestEnv {
    fn drop(&mut self) {
        // A process may start another one between the listing and the kill, so a few rounds are needed.
        for _ in 0..50 {
            if self.kill_all("") == 0 {
                return;
            }
            wait::pause();
        }
    }
}

/// Returns a text field of a JSON object.
pub fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_else(|| panic!("no text `{field}` in {value:#}")).to_owned()
}
