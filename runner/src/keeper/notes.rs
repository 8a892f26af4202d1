//! Notes on disk about what was started, for the keeper that comes after one that was killed: which processes may be left,
//! and whose output a scratch file holds.
//!
//! A note is one line at a fixed place, written over by the next job of its slot, so that a start costs two small writes.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use torc_api::wire::AttemptKey;

use super::procfs;
use crate::clock::Moment;

/// Room for a note; paths are at most 4 KiB each.
const NOTE_BYTES: u64 = 16 * 1024;

/// The file of notes.
#[derive(Debug)]
pub struct Notes {
    file: File,
    path: PathBuf,
}

/// Whose notes these are: the first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Author {
    /// The value of `TORC_KEEPER` in the environment of everything it started.
    pub keeper: String,
    /// Which start of the machine that was.
    pub boot_id: String,
}

/// A job, as far as its successor must know.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Note {
    /// Which attempt.
    pub key: AttemptKey,
    /// Where its output goes, and where it belongs.
    pub logs: Vec<(PathBuf, PathBuf)>,
    /// Its first process; absent before the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// The process started in one of the ticks from the first to the second.
    pub ticks: (u64, u64),
}

impl Note {
    /// The job started between these moments, as this process.
    pub fn started(&mut self, pid: i32, between: (Moment, Moment)) {
        self.pid = Some(pid);
        self.ticks = (procfs::ticks(between.0), procfs::ticks(between.1));
    }

    /// The noted process, if exactly that one is still there.
    pub fn living_process(&self) -> Option<i32> {
        let pid = self.pid?;
        let started = procfs::start_ticks(pid)?;
        (self.ticks.0 <= started && started <= self.ticks.1).then_some(pid)
    }
}

impl Notes {
    /// Fresh notes by this author; earlier ones are gone.
    pub fn create(dir: &Path, author: &Author) -> io::Result<Self> {
        let path = path(dir);
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
        let notes = Self { file, path };
        notes.write(0, &serde_json::to_string(author)?)?;
        Ok(notes)
    }

    /// Writes the note of a slot over the one before.
    pub fn set(&self, slot: usize, note: &Note) -> io::Result<()> {
        self.write(slot as u64 + 1, &serde_json::to_string(note)?)
    }

    fn write(&self, line: u64, text: &str) -> io::Result<()> {
        let text = format!("{text}\n");
        if text.len() as u64 > NOTE_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a path is too long"));
        }
        self.file.write_all_at(text.as_bytes(), line * NOTE_BYTES)
    }

    /// Nothing is left to be known.
    pub fn remove(self) {
        let _ = fs::remove_file(self.path);
    }
}

/// The notes that a keeper in this place left behind.
pub fn left_notes(dir: &Path) -> Option<(Author, Vec<Note>)> {
    let file = File::open(path(dir)).ok()?;
    let length = file.metadata().ok()?.len();
    let author = serde_json::from_str(&read_line(&file, 0)?).ok()?;
    let lines = 1..length.div_ceil(NOTE_BYTES);
    let notes = lines.filter_map(|line| serde_json::from_str(&read_line(&file, line)?).ok()).collect();
    Some((author, notes))
}

fn read_line(file: &File, line: u64) -> Option<String> {
    let mut buffer = vec![0; NOTE_BYTES as usize];
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], line * NOTE_BYTES + filled as u64).ok()? {
            0 => break,
            read => filled += read,
        }
    }
    let end = buffer[..filled].iter().position(|byte| *byte == b'\n')?;
    String::from_utf8(buffer[..end].to_vec()).ok()
}

fn path(dir: &Path) -> PathBuf {
    dir.join("keeper.notes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_survive_their_author() {
        let dir = tempfile::tempdir().expect("a folder");
        assert_eq!(left_notes(dir.path()), None);
        let author = Author { keeper: "k1".to_owned(), boot_id: "b".to_owned() };
        let notes = Notes::create(dir.path(), &author).expect("created");
        assert_eq!(left_notes(dir.path()), Some((author.clone(), Vec::new())));
        let long = Note { logs: vec![("x".repeat(300).into(), "y".into())], pid: Some(7), ..Note::default() };
        let short = Note { key: AttemptKey { job: 5, ..AttemptKey::default() }, ..Note::default() };
        notes.set(2, &long).expect("written");
        notes.set(0, &long).expect("written");
        notes.set(0, &short).expect("written");
        assert_eq!(left_notes(dir.path()), Some((author, vec![short, long])));
        notes.remove();
        assert_eq!(left_notes(dir.path()), None);
    }

    #[test]
    fn a_process_is_known_by_its_start() {
        let own = i32::try_from(std::process::id()).expect("fits");
        let started = procfs::start_ticks(own).expect("alive");
        let note = |ticks| Note { pid: Some(own), ticks, ..Note::default() };
        assert_eq!(note((started, started)).living_process(), Some(own));
        assert_eq!(note((started - 1, started + 1)).living_process(), Some(own));
        assert_eq!(note((started + 1, started + 2)).living_process(), None);
        assert_eq!(note((0, started - 1)).living_process(), None);
        assert_eq!(Note::default().living_process(), None);
    }

    #[test]
    fn a_path_that_is_too_long_is_an_error() {
        let dir = tempfile::tempdir().expect("a folder");
        let author = Author { keeper: String::new(), boot_id: String::new() };
        let notes = Notes::create(dir.path(), &author).expect("created");
        let note = Note { logs: vec![("x".repeat(20_000).into(), "y".into())], ..Note::default() };
        assert!(notes.set(0, &note).is_err());
    }
}
