//! Tokens of jobs: one for each workflow, in a file that only its owner can read. The runner never gives its own token
//! to jobs.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use torc_api::wire::JobToken;

/// The folder of the files within the runner's state folder.
pub const FOLDER: &str = "tokens";

/// Returns the file of a workflow's token.
pub fn path(folder: &str, workflow: i64) -> String {
    format!("{folder}/wf{workflow}")
}

/// The token files of a runner.
pub struct Tokens {
    folder: PathBuf,
    kept: Mutex<HashMap<i64, String>>,
}

impl Tokens {
    /// Returns the token files of the runner with this state folder. Nothing is written yet.
    pub fn new(state_dir: &Path) -> Self {
        Self { folder: state_dir.join(FOLDER), kept: Mutex::default() }
    }

    /// Writes new and changed tokens.
    pub fn keep(&self, tokens: Vec<JobToken>) -> io::Result<()> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        for JobToken { workflow, token } in tokens {
            if kept.get(&workflow) != Some(&token) {
                self.write(workflow, &token)?;
                kept.insert(workflow, token);
            }
        }
        Ok(())
    }

    fn write(&self, workflow: i64, token: &str) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let name = path(&self.folder.to_string_lossy(), workflow);
        let aside = format!("{name}.new");
        // The file is never readable for others, and never incomplete.
        let _ = fs::remove_file(&aside);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&aside)?;
        writeln!(file, "{token}")?;
        fs::rename(aside, name)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_for_each_workflow_that_only_its_owner_reads() {
        let folder = tempfile::tempdir().unwrap();
        let tokens = Tokens::new(folder.path());
        let token = |workflow, text: &str| JobToken { workflow, token: text.to_owned() };
        tokens.keep(vec![token(1, "a"), token(2, "b")]).unwrap();
        tokens.keep(vec![token(1, "c")]).unwrap();
        for (name, content) in [("wf1", "c\n"), ("wf2", "b\n")] {
            let file = folder.path().join(FOLDER).join(name);
            assert_eq!(fs::read_to_string(&file).unwrap(), content);
            assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert_eq!(fs::metadata(folder.path().join(FOLDER)).unwrap().permissions().mode() & 0o777, 0o700);
        // An unchanged token is not written again.
        fs::remove_file(folder.path().join("tokens/wf1")).unwrap();
        tokens.keep(vec![token(1, "c")]).unwrap();
        assert!(!folder.path().join("tokens/wf1").exists());
    }
}
