//! Runs tests as processes, several at the same time.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use super::catalog::Test;
use super::lab_owner::LabOwner;
use super::processes::{clear_leftovers, kill_all};
use super::report::{Outcome, TestResult};
use crate::env::HARNESS_MARK;
use crate::labs::shared::TURN_TAKEN;

const POLL_INTERVAL: Duration = Duration::from_millis(4);
/// Variables of the caller that tests of the fast tier get: compilers and linkers need them.
const KEPT_VARIABLES: [&str; 3] = ["PATH", "LD_LIBRARY_PATH", "RUST_BACKTRACE"];

/// Limits of a run.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Tests that run at the same time.
    pub jobs: usize,
    /// Time after which a test counts as hung.
    pub test_timeout: Duration,
}

/// Runs tests in folders below a temporary one, which is removed on drop.
pub struct Runner {
    limits: Limits,
    /// The `torc` under test.
    torc: PathBuf,
    /// Lab tests keep the environment: they call package managers, cargo and Go.
    keeps_environment: bool,
    /// Declared before the folder, so that the labs stop before it is removed.
    lab_owner: LabOwner,
    folder: TempDir,
}

impl Runner {
    pub fn new(limits: Limits, torc: PathBuf, keeps_environment: bool) -> Result<Self> {
        // The name is short because socket paths have at most 107 bytes.
        let folder = tempfile::Builder::new().prefix("tt-").tempdir().context("a folder for the tests")?;
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).context("a folder for the tests")?;
        fs::create_dir(folder.path().join("shared")).context("a folder for shared components")?;
        let lab_owner = LabOwner::start(&folder.path().join("shared"))?;
        Ok(Self { limits, torc, keeps_environment, lab_owner, folder })
    }

    /// Runs all tests and calls `report` when each of them ends.
    pub fn run(&self, tests: &[Test], report: impl FnMut(&TestResult) + Send) -> Vec<TestResult> {
        let next = AtomicUsize::new(0);
        let done = Mutex::new((Vec::with_capacity(tests.len()), report));
        std::thread::scope(|scope| {
            for _ in 0..self.limits.jobs {
                scope.spawn(|| {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        let Some(test) = tests.get(number) else { return };
                        let result = self.run_one(number, test);
                        let mut done = done.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                        (done.1)(&result);
                        done.0.push(result);
                    }
                });
            }
        });
        done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner).0
    }

    fn run_one(&self, number: usize, test: &Test) -> TestResult {
        let start = Instant::now();
        let folder = self.folder.path().join(number.to_string());
        let outcome = self.attempt(&folder, test);
        let output = read_output(&folder);
        let outcome = outcome.unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")));
        // Ignores a folder that cannot be removed now: the run's folder is removed at the end.
        let _ = fs::remove_dir_all(&folder);
        TestResult { test: test.clone(), outcome, duration: start.elapsed(), output }
    }

    fn attempt(&self, folder: &Path, test: &Test) -> Result<Outcome> {
        for part in ["home", "tmp", "run"] {
            fs::create_dir_all(folder.join(part)).context("a folder for the test")?;
        }
        fs::set_permissions(folder.join("run"), Permissions::from_mode(0o700)).context("a folder for the test")?;
        let id = folder.to_string_lossy().into_owned();
        let mut child = self.command(folder, test, &id)?.spawn().context("the test binary")?;
        let status = wait(&mut child, folder, self.limits.test_timeout)?;
        if status.is_none() {
            // Killed first, so that it starts no other process.
            let _ = child.kill();
            let _ = child.wait();
            kill_all(&id);
            let limit = self.limits.test_timeout.as_secs_f64();
            return Ok(Outcome::Failed(format!("hung: killed by the harness after {limit} s")));
        }
        let left = clear_leftovers(&id);
        Ok(outcome_of(status, &read_output(folder), left.iter().map(|process| process.command.as_str())))
    }

    fn command(&self, folder: &Path, test: &Test, id: &str) -> Result<Command> {
        let output = File::create(folder.join("output")).context("a file for the output")?;
        let mut command = Command::new(&test.binary.executable);
        if !self.keeps_environment {
            command.env_clear().env("HOME", folder.join("home")).env("XDG_RUNTIME_DIR", folder.join("run"));
            for name in KEPT_VARIABLES {
                if let Some(value) = std::env::var_os(name) {
                    command.env(name, value);
                }
            }
        }
        command
            .args([&test.name, "--exact", "--nocapture", "--test-threads=1"])
            .current_dir(&test.binary.package_folder)
            .env("CARGO_MANIFEST_DIR", &test.binary.package_folder)
            .env("TMPDIR", folder.join("tmp"))
            .env("TORC_BIN", &self.torc)
            .env("TORC_TEST_SHARED", self.folder.path().join("shared"))
            .env("TORC_TEST_HARNESS", self.lab_owner.pid().to_string())
            .env(HARNESS_MARK, id)
            .stdin(Stdio::null())
            .stderr(output.try_clone().context("a file for the output")?)
            .stdout(output)
            .process_group(0);
        Ok(command)
    }
}

/// The time limit of a test. It restarts when the test gets a shared component: waiting for other tests does not count.
struct Watchdog {
    timeout: Duration,
    start: Instant,
    turns_taken: usize,
}

impl Watchdog {
    fn is_expired(&self, now: Instant) -> bool {
        now.duration_since(self.start) > self.timeout
    }

    /// Returns whether an expired test hangs. `turns_taken` is the number of shared components that it has got so far.
    fn is_hung(&mut self, now: Instant, turns_taken: usize) -> bool {
        let waited = turns_taken > self.turns_taken;
        if waited {
            self.turns_taken = turns_taken;
            self.start = now;
        }
        !waited
    }
}

/// Waits until a test exits. Returns nothing if it hangs.
fn wait(child: &mut Child, folder: &Path, timeout: Duration) -> Result<Option<ExitStatus>> {
    let mut watchdog = Watchdog { timeout, start: Instant::now(), turns_taken: 0 };
    loop {
        if let Some(status) = child.try_wait().context("a child of the harness")? {
            return Ok(Some(status));
        }
        let now = Instant::now();
        if watchdog.is_expired(now) && watchdog.is_hung(now, read_output(folder).matches(TURN_TAKEN).count()) {
            return Ok(None);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Determines the outcome of a test from its exit status, its output and the processes that it left behind.
fn outcome_of<'a>(status: Option<ExitStatus>, output: &str, left: impl Iterator<Item = &'a str>) -> Outcome {
    let left: Vec<&str> = left.collect();
    match status {
        Some(status) if !status.success() => Outcome::Failed(status.to_string()),
        _ if !left.is_empty() => Outcome::Failed(format!("processes left behind: {}", left.join("; "))),
        // libtest also exits with 0 if no test matches the name.
        _ if !output.contains("running 1 test") => Outcome::Failed("the binary did not run the test".to_owned()),
        _ => match skip_reason(output) {
            Some(reason) => Outcome::Skipped(reason.to_owned()),
            None => Outcome::Passed,
        },
    }
}

/// Returns the reason in a line such as `skipped (needs root)`. libtest prints the name of the test before it on the same line.
fn skip_reason(output: &str) -> Option<&str> {
    output.lines().find_map(|line| line.split_once("skipped (")?.1.strip_suffix(')'))
}

fn read_output(folder: &Path) -> String {
    String::from_utf8_lossy(&fs::read(folder.join("output")).unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests;
