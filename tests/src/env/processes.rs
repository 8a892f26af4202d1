//! The processes of a test environment, found by the variable that all of them inherit.

use std::fs;

use nix::sys::signal::{Signal, kill as send};
use nix::unistd::Pid;

/// A living process.
#[derive(Clone, Debug)]
pub struct Process {
    pub pid: i32,
    /// The arguments, joined by blanks.
    pub command: String,
}

/// Returns every living process with this variable in its environment.
pub fn marked(name: &str, value: &str) -> Vec<Process> {
    let wanted = format!("{name}={value}");
    let entries = fs::read_dir("/proc").expect("the processes");
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|pid| has_variable(*pid, &wanted)).map(|pid| Process { pid, command: command(pid) }).collect()
}

/// Zombies have no environment and do not count.
fn has_variable(pid: i32, wanted: &str) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
}

fn command(pid: i32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ").trim_end().to_owned()
}

/// Sends SIGKILL. A process that has already exited is no error.
pub fn kill(pid: i32) {
    let _ = send(Pid::from_raw(pid), Signal::SIGKILL);
}
