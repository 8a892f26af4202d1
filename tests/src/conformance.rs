//! The documents of `tests/conformance`, which standalone Torc and an API server must judge alike.
//!
//! `accepted` and `refused` have a file for each rule. Files of `planned` break rules that only the planner can know. The head of a file
//! says which field it is about and which message it gets.

use std::fs;
use std::path::PathBuf;

use crate::env::project_root;

/// A document of the conformance suite.
pub struct Case {
    pub path: PathBuf,
    pub text: String,
}

impl Case {
    /// The documents of a folder, by name.
    pub fn all(folder: &str) -> Vec<Self> {
        let folder = project_root().join("tests/conformance").join(folder);
        let entries = fs::read_dir(folder).expect("a folder of documents");
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a document").path()).collect();
        paths.sort();
        paths.into_iter().map(Self::read).collect()
    }

    /// A document that a test has written.
    pub fn read(path: PathBuf) -> Self {
        Self { text: fs::read_to_string(&path).expect("a document"), path }
    }

    /// The name of the file without its ending.
    pub fn name(&self) -> String {
        self.path.file_stem().expect("a name").to_string_lossy().into_owned()
    }

    /// A line of the head, e.g. `# says: must not be empty`.
    fn head(&self, key: &str) -> Option<&str> {
        self.text.lines().find_map(|line| line.strip_prefix("# ")?.strip_prefix(key)?.strip_prefix(": "))
    }

    /// The field that the document is about.
    pub fn field(&self) -> &str {
        self.head("at").unwrap_or_else(|| panic!("{} does not say which field it is about", self.path.display()))
    }

    /// The message of a program, `torc` or `kubectl`.
    pub fn message(&self, program: &str) -> &str {
        let own = self.head(&format!("{program} says")).or(self.head("says"));
        own.unwrap_or_else(|| panic!("{} does not say what {program} says", self.path.display()))
    }
}
