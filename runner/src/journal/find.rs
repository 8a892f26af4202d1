//! The search for the journals of a run below a folder.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{FOLDER, PREFIX};

/// The result of a search.
#[derive(Debug, Default)]
pub struct FoundJournals {
    /// Journals of the run, sorted.
    pub journals: Vec<PathBuf>,
    /// Folders that could not be read, with the errors.
    pub unreadable: Vec<(PathBuf, std::io::Error)>,
}

/// Returns all journals of a run in a folder and below it. Links to folders are followed, and every folder is read
/// once. `progress` gets the number of folders that were read.
pub fn find(base: &Path, workflow: i64, run: i32, progress: impl Fn(usize)) -> FoundJournals {
    let name = format!("{PREFIX}wf{workflow}_r{run}_");
    let mut found = FoundJournals::default();
    let mut seen = HashSet::new();
    let mut open = vec![base.to_owned()];
    while let Some(folder) = open.pop() {
        match search_folder(&folder, &name, &mut seen, &mut found.journals) {
            Ok(inner) => open.extend(inner),
            Err(error) => found.unreadable.push((folder, error)),
        }
        progress(seen.len());
    }
    found.journals.sort();
    found
}

/// Adds the journals of a folder, and returns its subfolders.
fn search_folder(
    folder: &Path,
    name: &str,
    seen: &mut HashSet<(u64, u64)>,
    journals: &mut Vec<PathBuf>,
) -> std::io::Result<Vec<PathBuf>> {
    let metadata = fs::metadata(folder)?;
    if !seen.insert((metadata.dev(), metadata.ino())) {
        return Ok(Vec::new());
    }
    let is_journal = |file: &str| file.starts_with(name) && file.ends_with(".db");
    let holds_journals = folder.file_name().is_some_and(|last| last == FOLDER);
    let mut inner = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        // A link may point to a folder. Broken links are ignored.
        let kind = entry.file_type()?;
        if kind.is_dir() || kind.is_symlink() && path.is_dir() {
            inner.push(path);
        } else if entry.file_name().to_str().is_some_and(is_journal) {
            journals.push(path);
        }
    }
    // A folder of journals has no subfolders, but may hold a thousand journals.
    Ok(if holds_journals { Vec::new() } else { inner })
}
