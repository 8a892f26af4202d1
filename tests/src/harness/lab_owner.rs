//! A process whose end stops the daemons of all labs. They stop before the folder with their PIDs is removed.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Limit for the shutdown of all labs. A Slurm controller first saves its state.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(60);

/// A process that the labs wait for: they stop when it exits.
pub(super) struct LabOwner {
    process: Child,
    /// Contains one folder for each lab. The lab's guard removes it after the shutdown.
    labs: PathBuf,
}

impl LabOwner {
    /// Starts the process, which exits when the harness does.
    pub fn start(labs: &Path) -> Result<Self> {
        let process = Command::new("tail")
            .args([&format!("--pid={}", std::process::id()), "-s", "0.2", "-f", "/dev/null"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .context("cannot start `tail` as the owner of the labs")?;
        Ok(Self { process, labs: labs.to_owned() })
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    fn has_labs(&self) -> bool {
        let entries = std::fs::read_dir(&self.labs).into_iter().flatten().flatten();
        entries.into_iter().any(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
    }
}

impl Drop for LabOwner {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let deadline = Instant::now() + SHUTDOWN_TIMEOUT;
        while self.has_labs() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_guard_ends_its_lab_before_the_owner_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let lab = folder.path().join("lab");
        std::fs::create_dir(&lab).unwrap();
        let owner = LabOwner::start(folder.path()).unwrap();
        let script = "tail --pid=$1 -s 0.1 -f /dev/null; touch \"$2.ended\"; rm -r \"$2\"";
        let mut guard =
            Command::new("bash").args(["-c", script, "guard", &owner.pid().to_string()]).arg(&lab).spawn().unwrap();
        assert!(lab.exists());
        drop(owner);
        assert!(!lab.exists() && folder.path().join("lab.ended").exists());
        guard.wait().unwrap();
    }
}
