//! A small file system that a test can fill.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::TestEnv;

/// A tmpfs mounted in a folder of a test environment.
pub struct SmallDisk {
    pub path: PathBuf,
}

impl SmallDisk {
    /// Mounts a disk of this size, e.g. `2m`. Returns nothing if this user may not mount.
    pub fn new(env: &TestEnv, name: &str, size: &str) -> Option<Self> {
        let path = env.path(name);
        fs::create_dir_all(&path).expect("a folder");
        let mounted = nix::unistd::geteuid().is_root()
            && Command::new("mount")
                .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
                .arg(&path)
                .status()
                .is_ok_and(|status| status.success());
        mounted.then_some(Self { path })
    }

    /// Writes until the disk is full.
    pub fn fill(&self) {
        // The write fails once the disk is full.
        let _ = fs::write(self.path.join("filler"), vec![0; 16 << 20]);
    }

    /// Frees the space that `fill` used.
    pub fn empty(&self) {
        fs::remove_file(self.path.join("filler")).expect("it was filled");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A lazy unmount works while a process still has a file open.
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
    }
}
