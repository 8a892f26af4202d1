//! Libraries for `LD_PRELOAD`, compiled from `tests/shims` by the C compiler that links Rust programs.

use std::path::Path;
use std::process::Command;

use super::TestEnv;

impl TestEnv {
    /// Compiles `tests/shims/<source>` and returns the path of the library.
    pub fn shim(&self, source: &str, library: &str) -> String {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("shims").join(source);
        let made = self.text_path(library);
        let compiler = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o", &made]).arg(source).status();
        assert!(compiler.expect("a compiler").success(), "cc failed");
        made
    }
}
