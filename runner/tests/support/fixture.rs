//! A runner in a temporary folder, with this test binary as its shim.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use torc_api::execution::{ExecutionConfig, Stdio, StdioMode};
use torc_api::wire::{AttemptKey, FinishedAttempt, Profile, Resources};
use torc_runner::{RunnerConfig, RunnerError, RunnerEvent, RunnerExit};

use crate::fake_server::FakeServer;

/// Timeout of a test: other programs may use both CPUs of a small machine.
pub const DEADLINE: Duration = Duration::from_secs(120);

pub struct RunnerFixture {
    dir: TempDir,
    pub server: FakeServer,
}

impl RunnerFixture {
    pub fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a folder"), server: FakeServer::default() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().expect("a folder").join(name)
    }

    pub fn config(&self) -> RunnerConfig {
        config(&self.path(""))
    }

    pub fn profile(&self) -> Profile {
        profile(&self.path(""))
    }

    pub fn add(&self, command: &str) -> AttemptKey {
        self.server.add(command, self.profile())
    }

    pub fn add_with(&self, command: &str, change: impl FnOnce(&mut Profile)) -> AttemptKey {
        let mut profile = self.profile();
        change(&mut profile);
        self.server.add(command, profile)
    }

    /// Runs until all workflows have settled.
    pub fn run(&self) -> RunnerExit {
        self.run_with(self.config()).expect("a runner that works")
    }

    pub fn run_with(&self, config: RunnerConfig) -> Result<RunnerExit, RunnerError> {
        self.run_until(config, &CancellationToken::new(), |_| {})
    }

    /// Runs until all workflows have settled or the runner is stopped. Panics after the timeout.
    pub fn run_until(
        &self,
        config: RunnerConfig,
        stop: &CancellationToken,
        observer: impl Fn(RunnerEvent) + Send + Sync,
    ) -> Result<RunnerExit, RunnerError> {
        let runtime = runtime();
        let run = torc_runner::run(config, self.server.clone(), stop.clone(), observer);
        let exit = runtime.block_on(async { tokio::time::timeout(DEADLINE, run).await });
        runtime.shutdown_background();
        exit.unwrap_or_else(|_| panic!("the runner did not leave within {DEADLINE:?}"))
    }

    /// Runs a runner beside a test until all workflows have settled.
    pub fn beside(&self, test: impl FnOnce()) -> RunnerExit {
        self.beside_with(self.config(), |_| test())
    }

    /// Runs a runner beside a test, which may stop it. A test that panics stops the runner, too, and fails with its own
    /// message.
    pub fn beside_with(&self, config: RunnerConfig, test: impl FnOnce(&CancellationToken)) -> RunnerExit {
        let (stop, stop_now) = (CancellationToken::new(), config.stop_now.clone());
        std::thread::scope(|scope| {
            let runner = scope.spawn(|| self.run_until(config, &stop, |_| {}));
            let tested = catch_unwind(AssertUnwindSafe(|| test(&stop)));
            if tested.is_err() {
                stop.cancel();
                stop_now.cancel();
            }
            let exit = runner.join();
            if let Err(panic) = tested {
                resume_unwind(panic);
            }
            match exit {
                Ok(exit) => exit.expect("a runner that works"),
                Err(panic) => resume_unwind(panic),
            }
        })
    }

    pub fn finished(&self, key: &AttemptKey) -> FinishedAttempt {
        self.server.buffer().finished.get(key).cloned().expect("a result")
    }

    /// Returns the content of a file that a job writes.
    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default().trim().to_owned()
    }

    /// Returns the number in a file, once it exists.
    pub fn pid_in(&self, name: &str) -> i32 {
        wait_for(&format!("a number in {name}"), || self.read(name).parse().ok())
    }

    /// Returns the names in the folder of logs.
    pub fn logs(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.path("out/job_stdio")).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Returns the files that the shim left in its folder.
    pub fn shim_files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.path("state")).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.retain(|name| name != "shim.lock" && name != "shim.log");
        names.sort();
        names
    }

    /// Returns the shim's process, once it has started.
    pub fn shim(&self) -> i32 {
        wait_for("a shim", || {
            let info: serde_json::Value = serde_json::from_str(&self.read("state/shim.json")).ok()?;
            i32::try_from(info.get("pid")?.as_i64()?).ok()
        })
    }
}

impl Drop for RunnerFixture {
    /// Lets the shim exit by itself, and kills what a failed test has left.
    fn drop(&mut self) {
        let shim = std::fs::read_to_string(self.path("state/shim.json")).ok();
        let info: Option<serde_json::Value> = shim.and_then(|text| serde_json::from_str(&text).ok());
        let shim = info.and_then(|info| i32::try_from(info.get("pid")?.as_i64()?).ok());
        let Some(shim) = shim.filter(|pid| is_alive(*pid)) else { return };
        if !std::thread::panicking() {
            return wait_until("the shim's end", || !is_alive(shim));
        }
        for pid in descendants(shim).into_iter().chain([shim]) {
            if let Some(pid) = rustix::process::Pid::from_raw(pid) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }
}

/// A process that is killed with its test.
pub struct Killed(pub Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the descendants of a process.
fn descendants(pid: i32) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let all: Vec<i32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    let parent = |pid: i32| -> Option<i32> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace().nth(1)?.parse().ok()
    };
    let parents: Vec<(i32, i32)> = all.into_iter().filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let mut found = vec![pid];
    let mut at = 0;
    while let Some(of) = found.get(at).copied() {
        found.extend(parents.iter().filter(|(_, parent)| *parent == of).map(|(child, _)| *child));
        at += 1;
    }
    found.split_off(1)
}

pub fn config(dir: &Path) -> RunnerConfig {
    let exe = std::env::current_exe().expect("an executable");
    let mut config = RunnerConfig::new(dir.join("out"), dir.join("state"), vec![exe.into(), "shim".into()]);
    config.capacity = Resources { cpus: 4, memory_bytes: 1 << 30, gpus: 0, nodes: 1 };
    config
}

pub fn profile(dir: &Path) -> Profile {
    Profile {
        resources: Resources { cpus: 1, memory_bytes: 1 << 20, gpus: 0, nodes: 1 },
        runtime_seconds: 60,
        unlimited: true,
        working_dir: dir.display().to_string(),
        execution_config: Some(ExecutionConfig { sigterm_lead_seconds: Some(1), ..ExecutionConfig::default() }),
        ..Profile::default()
    }
}

pub fn stdio(mode: StdioMode, delete_on_success: bool) -> Option<Stdio> {
    Some(Stdio { mode: Some(mode), delete_on_success: Some(delete_on_success) })
}

pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// Waits until a value is there.
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    wait_for(what, || is_so().then_some(()));
}

/// Returns whether a process exists and has not exited.
pub fn is_alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rfind(')').and_then(|end| stat.get(end + 2..end + 3)).is_some_and(|state| state != "Z" && state != "X")
}

pub fn kill_9(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("killed");
}
