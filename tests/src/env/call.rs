//! One call of the binary. Its output goes to files: a pipe would stay open while a background process lives.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::project_root;
use super::wait::until;

/// A prepared command line with its environment.
pub struct Call {
    command: Command,
    files: PathBuf,
    stdin: Option<Vec<u8>>,
}

impl Call {
    /// Returns a call whose output goes to files with this path and different extensions.
    pub(super) fn new(files: PathBuf, program: &Path) -> Self {
        let mut command = Command::new(program);
        command.env_clear().env("NO_COLOR", "1");
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        Self { command, files, stdin: None }
    }

    /// Adds an argument without splitting it.
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.command.arg(argument);
        self
    }

    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Sets the working directory.
    pub fn folder(mut self, folder: impl AsRef<Path>) -> Self {
        self.command.current_dir(folder);
        self
    }

    /// Sets the content of standard input, which is empty otherwise.
    pub fn stdin(mut self, content: impl Into<Vec<u8>>) -> Self {
        self.stdin = Some(content.into());
        self
    }

    /// Runs the command through another program, e.g. one that limits its resources.
    pub fn under(mut self, words: &[&str]) -> Self {
        let inner = std::mem::replace(&mut self.command, Command::new(words[0]));
        self.command.args(&words[1..]).arg(inner.get_program()).args(inner.get_args());
        self.command.env_clear();
        for (name, value) in inner.get_envs() {
            self.command.env(name, value.unwrap_or_default());
        }
        if let Some(folder) = inner.get_current_dir() {
            self.command.current_dir(folder);
        }
        self
    }

    /// Starts the process and returns at once.
    pub fn start(mut self) -> Running {
        let file = |suffix: &str| self.files.with_extension(suffix);
        let stdin = match self.stdin.take() {
            Some(content) => {
                fs::write(file("in"), content).expect("a file to read from");
                Stdio::from(File::open(file("in")).expect("a file to read from"))
            }
            None => Stdio::null(),
        };
        let (out, err) = (file("out"), file("err"));
        let create = |path: &Path| File::create(path).expect("a file for output");
        let child = self.command.stdin(stdin).stdout(create(&out)).stderr(create(&err)).spawn();
        Running { child: child.expect("torc starts"), out, err }
    }

    /// Runs the process to its end.
    pub fn run(self) -> Outcome {
        self.start().finish()
    }
}

/// A started process, killed when dropped.
pub struct Running {
    child: Child,
    out: PathBuf,
    err: PathBuf,
}

impl Running {
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a process number")
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).expect("it lives");
    }

    /// Sends SIGSTOP and waits until every thread has stopped, which `kill` alone does not.
    pub fn freeze(&self) {
        self.signal(Signal::SIGSTOP);
        let tasks = format!("/proc/{}/task", self.pid());
        let is_stopped = |task: fs::DirEntry| {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            // The state follows the name in brackets; a thread that has ended meanwhile runs no more.
            stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
        };
        let all_stopped = || fs::read_dir(&tasks).expect("it lives").flatten().all(is_stopped);
        until(all_stopped, || "the process still runs after SIGSTOP".to_owned());
    }

    /// Returns the standard output so far.
    pub fn stdout(&self) -> String {
        read(&self.out)
    }

    /// Returns the standard error so far.
    pub fn stderr(&self) -> String {
        read(&self.err)
    }

    /// Waits until either stream contains a text.
    pub fn prints(&self, words: &str) {
        until(
            || self.stderr().contains(words) || self.stdout().contains(words),
            || format!("torc did not print `{words}`:\n{}{}", self.stdout(), self.stderr()),
        );
    }

    /// Returns whether the process has exited.
    pub fn has_ended(&mut self) -> bool {
        self.status().is_some()
    }

    fn status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child of ours")
    }

    /// Kills the process alone with SIGKILL. Its children live on.
    pub fn kill(mut self) {
        self.child.kill().expect("it lives");
        self.child.wait().expect("a child of ours");
    }

    /// Waits until the process exits.
    pub fn finish(mut self) -> Outcome {
        let mut status = None;
        let (out, err) = (self.out.clone(), self.err.clone());
        until(
            || {
                status = self.status();
                status.is_some()
            },
            || format!("torc did not end:\n{}{}", read(&out), read(&err)),
        );
        Outcome { code: status.and_then(|status| status.code()), stdout: self.stdout(), stderr: self.stderr() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The exit code and the output of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// `None` if a signal ended the process.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Outcome {
    /// Panics unless the process exited with this code.
    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "\nstdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }

    /// Panics unless either stream contains a text.
    #[track_caller]
    pub fn prints(self, words: &str) -> Self {
        let found = self.stdout.contains(words) || self.stderr.contains(words);
        assert!(found, "`{words}` is missing\nstdout:\n{}\nstderr:\n{}", self.stdout, self.stderr);
        self
    }

    /// Parses the standard output as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}:\n{}\n{}", self.stdout, self.stderr))
    }
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

/// Returns the binary under test: `TORC_BIN`, or else the one that cargo builds now.
pub fn binary() -> PathBuf {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| std::env::var_os("TORC_BIN").map_or_else(build, PathBuf::from)).clone()
}

fn build() -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        // Not `--package torc`: that would compile dependencies again, with other features than the tests'.
        .args(["build", "--quiet", "--locked", "--bins", "--message-format", "json"])
        .current_dir(project_root())
        .output()
        .expect("cargo");
    assert!(output.status.success(), "cargo build: {}", String::from_utf8_lossy(&output.stderr));
    let messages = String::from_utf8_lossy(&output.stdout).into_owned();
    let executables = messages.lines().filter_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        Some(PathBuf::from(message["executable"].as_str()?))
    });
    let torc = executables.into_iter().find(|path| path.file_name().is_some_and(|name| name == "torc"));
    torc.expect("an executable named torc in the messages of cargo")
}
