//! Libraries that are put between Torc and the machine, made of a file in `tests/shims` by the compiler that links Rust programs.

use std::path::Path;
use std::process::Command;

use super::TestEnv;

impl TestEnv {
    /// Makes a library of `tests/shims/<source>`, and says where it is.
    pub fn shim(&self, source: &str, library: &str) -> String {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("shims").join(source);
        let made = self.text_path(library);
        let compiler = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o", &made]).arg(source).status();
        assert!(compiler.expect("a compiler").success(), "no library");
        made
    }
}
