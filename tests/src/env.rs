//! The isolated environment of a test: a folder with everything that the test starts. Dropping it ends and removes what is left.

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
/// The mark that the harness gives to a test.
pub(crate) const HARNESS_MARK: &str = "TORC_TEST_ID";

/// The root of the project.
pub fn project_root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a folder above this package")
}

/// Says why the test cannot run here. The harness counts it as skipped.
#[expect(clippy::print_stdout, reason = "the harness reads the output of a test")]
pub fn skip(reason: &str) {
    println!("skipped ({reason})");
}

/// A folder of a test, and all processes that it has started.
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
    /// An empty folder.
    pub fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("te-").tempdir().expect("a folder for the test");
        for part in [".test", ".test/run"] {
            fs::create_dir(folder.path().join(part)).expect("a folder for the test");
        }
        fs::set_permissions(folder.path().join(".test/run"), fs::Permissions::from_mode(0o700)).expect("permissions");
        let mark = folder.path().to_string_lossy().into_owned();
        Self { folder, mark, calls: AtomicU32::new(0) }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    /// A path in it, as text.
    pub fn text_path(&self, name: &str) -> String {
        self.path(name).to_string_lossy().into_owned()
    }

    /// Writes a file, with the folders above it.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a folder above")).expect("folders");
        fs::write(path, content).expect("a file");
    }

    /// The lines of a file; none where it does not exist yet.
    pub fn lines(&self, name: &str) -> Vec<String> {
        fs::read_to_string(self.path(name)).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    /// A call of `torc`; words are separated by blanks.
    pub fn call(&self, line: &str) -> Call {
        self.call_program(binary(), line)
    }

    /// The runner of a Slurm allocation: `torc` under another name.
    pub fn slurm_job_runner(&self) -> PathBuf {
        let link = self.path(".test/torc-slurm-job-runner");
        if !link.exists() {
            fs::create_dir_all(self.path(".test")).expect("a folder");
            std::os::unix::fs::symlink(binary(), &link).expect("a link");
        }
        link
    }

    /// A call of a program that is `torc`.
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

    /// The variables by which the processes of this environment are found.
    pub fn marks(&self) -> Vec<(&'static str, String)> {
        let of_harness = std::env::var(HARNESS_MARK).ok().map(|id| (HARNESS_MARK, id));
        std::iter::once((MARK, self.mark.clone())).chain(of_harness).collect()
    }

    /// Runs `torc` to its end.
    pub fn torc(&self, line: &str) -> Outcome {
        self.call(line).run()
    }

    /// Starts `torc` and lets it run.
    pub fn start(&self, line: &str) -> Running {
        self.call(line).start()
    }

    /// What a verb prints for programs.
    pub fn json(&self, line: &str) -> Value {
        self.call(line).arg("-o").arg("json").run().exits(0).json()
    }

    /// The items of a list.
    pub fn items(&self, line: &str) -> Vec<Value> {
        self.json(line)["items"].as_array().expect("a list").clone()
    }

    /// Every job's state by its name; `line` may name a workflow.
    pub fn states(&self, workflow: &str) -> BTreeMap<String, String> {
        let jobs = self.items(&format!("get jobs {workflow}"));
        jobs.iter().map(|job| (text(job, "name"), text(job, "status"))).collect()
    }

    /// Every attempt that ended, as "job attempt status".
    pub fn attempts(&self, workflow: &str) -> Vec<String> {
        let results = self.items(&format!("get results {workflow}"));
        let mut attempts: Vec<String> = results
            .iter()
            .map(|result| format!("{} {} {}", text(result, "job"), result["attempt"], text(result, "status")))
            .collect();
        attempts.sort();
        attempts
    }

    /// Everything that was started here and lives.
    pub fn processes(&self) -> Vec<Process> {
        processes::marked(MARK, &self.mark)
    }

    /// Waits until nothing lives that was started here.
    pub fn expect_nothing_left(&self) {
        until(|| self.processes().is_empty(), || format!("processes left over: {:#?}", self.processes()));
    }

    /// Kills everything that was started here and whose command line contains a text; says how many there were.
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
        // A process may start another one between the look and the kill; a few rounds catch it.
        for _ in 0..50 {
            if self.kill_all("") == 0 {
                return;
            }
            wait::pause();
        }
    }
}

/// A field that is text.
pub fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_else(|| panic!("no text `{field}` in {value:#}")).to_owned()
}
