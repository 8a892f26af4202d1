//! A small file system of its own, as a disk that can be full.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::TestEnv;

/// A disk in a folder of a test environment.
pub struct SmallDisk {
    /// Where it is.
    pub path: PathBuf,
}

impl SmallDisk {
    /// A disk of this size, e.g. `2m`; nothing, and an empty folder, for a user who may not mount.
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

    /// Takes all the room there is.
    pub fn fill(&self) {
        // It ends with an error when the disk is full, which is the point.
        let _ = fs::write(self.path.join("filler"), vec![0; 16 << 20]);
    }

    /// Gives it back.
    pub fn empty(&self) {
        fs::remove_file(self.path.join("filler")).expect("it was filled");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A lazy unmount works while somebody still has a file open.
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
    }
}
