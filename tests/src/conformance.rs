//! The documents of `tests/conformance`, which standalone Torc and an API server must accept or refuse alike.
//!
//! `accepted` and `refused` have a file for each rule. Files of `planned` break rules that only the planner knows. The head of a file
//! names the field and the message of its problem.

use std::fs;
use std::path::PathBuf;

use crate::env::project_root;

/// A document of the conformance suite.
pub struct Case {
    pub path: PathBuf,
    pub text: String,
}

impl Case {
    /// Returns the documents of a folder, sorted by name.
    pub fn all(folder: &str) -> Vec<Self> {
        let folder = project_root().join("tests/conformance").join(folder);
        let entries = fs::read_dir(folder).expect("a folder of documents");
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a document").path()).collect();
        paths.sort();
        paths.into_iter().map(Self::read).collect()
    }

    /// Reads a document.
    pub fn read(path: PathBuf) -> Self {
        Self { text: fs::read_to_string(&path).expect("a document"), path }
    }

    /// Returns the name of the file without its extension.
    pub fn name(&self) -> String {
        self.path.file_stem().expect("a name").to_string_lossy().into_owned()
    }

    /// Returns a line of the head, e.g. `# says: must not be empty`.
    fn head(&self, key: &str) -> Option<&str> {
        self.text.lines().find_map(|line| line.strip_prefix("# ")?.strip_prefix(key)?.strip_prefix(": "))
    }

    /// Returns the field with the problem.
    pub fn field(&self) -> &str {
        self.head("at").unwrap_or_else(|| panic!("{} has no line `# at: FIELD`", self.path.display()))
    }

    /// Returns the expected message of a program, `torc` or `kubectl`.
    pub fn message(&self, program: &str) -> &str {
        let own = self.head(&format!("{program} says")).or(self.head("says"));
        own.unwrap_or_else(|| panic!("{} has no line `# {program} says: MESSAGE`", self.path.display()))
    }
}
