//! A real Kubernetes for a suite: started once for a test binary, in a folder of its own, and gone when the binary is.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The script beside this crate that starts it.
fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("kube-lab")
}

/// Where the programs of Kubernetes and Helm are; they are built when they are not there.
pub fn programs() -> &'static Path {
    static PROGRAMS: OnceLock<PathBuf> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        let output = Command::new(script()).arg("build").output().expect("the lab's script");
        assert!(output.status.success(), "kube-lab build: {}", String::from_utf8_lossy(&output.stderr));
        PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())
    })
}

/// Helm, which needs no cluster to render a chart.
pub fn helm(arguments: &[&str]) -> Output {
    let root = script().ancestors().nth(2).expect("the root of the project").to_owned();
    Command::new(programs().join("helm")).args(arguments).current_dir(root).output().expect("helm")
}
