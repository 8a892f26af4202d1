//! Records of started jobs on disk. After a shim was killed, the next one learns from them which processes may be left,
//! and which job wrote a scratch file.
//!
//! A record is one line at a fixed offset, replaced by the next job of its slot, so that a start costs two small
//! writes.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use torc_api::wire::AttemptKey;

use crate::clock::BootInstant;
use crate::procfs;

/// Size of a record; paths have at most 4 KiB each.
const RECORD_BYTES: u64 = 16 * 1024;

/// The file of records.
#[derive(Debug)]
pub struct StartLog {
    file: File,
    path: PathBuf,
}

/// The first line: the shim that wrote the records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartLogHeader {
    /// The value of `TORC_SHIM` in the environment of its processes.
    pub shim: String,
    /// The boot ID of the machine.
    pub boot_id: String,
}

/// A started job, for the cleanup after a crash.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StartRecord {
    pub key: AttemptKey,
    /// Current and final path of each log.
    pub logs: Vec<(PathBuf, PathBuf)>,
    /// The first process; absent before the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// The range of ticks in which the process started.
    pub ticks: (u64, u64),
}

impl StartRecord {
    /// Adds the process that started between two moments.
    pub fn started(&mut self, pid: i32, before: BootInstant, after: BootInstant) {
        self.pid = Some(pid);
        self.ticks = (procfs::ticks(before), procfs::ticks(after));
    }

    /// Returns the recorded process, if exactly this one still exists.
    pub fn living_process(&self) -> Option<i32> {
        let pid = self.pid?;
        let started = procfs::start_ticks(pid)?;
        (self.ticks.0 <= started && started <= self.ticks.1).then_some(pid)
    }
}

impl StartLog {
    /// Creates a file without records, replacing an earlier one.
    pub fn create(dir: &Path, header: &StartLogHeader) -> io::Result<Self> {
        let path = path(dir);
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
        let notes = Self { file, path };
        notes.write(0, &serde_json::to_string(header)?)?;
        Ok(notes)
    }

    /// Replaces the record of a slot.
    pub fn set(&self, slot: usize, record: &StartRecord) -> io::Result<()> {
        self.write(slot as u64 + 1, &serde_json::to_string(record)?)
    }

    fn write(&self, line: u64, text: &str) -> io::Result<()> {
        let text = format!("{text}\n");
        if text.len() as u64 > RECORD_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a path is too long"));
        }
        self.file.write_all_at(text.as_bytes(), line * RECORD_BYTES)
    }

    pub fn remove(self) {
        let _ = fs::remove_file(self.path);
    }
}

/// Returns the records that a shim in this folder left behind.
pub fn read_left(dir: &Path) -> Option<(StartLogHeader, Vec<StartRecord>)> {
    let file = File::open(path(dir)).ok()?;
    let length = file.metadata().ok()?.len();
    let header = serde_json::from_str(&read_line(&file, 0)?).ok()?;
    let lines = 1..length.div_ceil(RECORD_BYTES);
    let notes = lines.filter_map(|line| serde_json::from_str(&read_line(&file, line)?).ok()).collect();
    Some((header, notes))
}

fn read_line(file: &File, line: u64) -> Option<String> {
    let mut buffer = vec![0; RECORD_BYTES as usize];
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], line * RECORD_BYTES + filled as u64).ok()? {
            0 => break,
            read => filled += read,
        }
    }
    let end = buffer[..filled].iter().position(|byte| *byte == b'\n')?;
    String::from_utf8(buffer[..end].to_vec()).ok()
}

fn path(dir: &Path) -> PathBuf {
    dir.join("shim.starts")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_records_survive_their_writer() {
        let dir = tempfile::tempdir().expect("a folder");
        assert_eq!(read_left(dir.path()), None);
        let header = StartLogHeader { shim: "k1".to_owned(), boot_id: "b".to_owned() };
        let notes = StartLog::create(dir.path(), &header).expect("created");
        assert_eq!(read_left(dir.path()), Some((header.clone(), Vec::new())));
        let long =
            StartRecord { logs: vec![("x".repeat(300).into(), "y".into())], pid: Some(7), ..StartRecord::default() };
        let short = StartRecord { key: AttemptKey { job: 5, ..AttemptKey::default() }, ..StartRecord::default() };
        notes.set(2, &long).expect("written");
        notes.set(0, &long).expect("written");
        notes.set(0, &short).expect("written");
        assert_eq!(read_left(dir.path()), Some((header, vec![short, long])));
        notes.remove();
        assert_eq!(read_left(dir.path()), None);
    }

    #[test]
    fn a_process_is_known_by_its_start() {
        let own = i32::try_from(std::process::id()).expect("fits");
        let started = procfs::start_ticks(own).expect("alive");
        let record = |ticks| StartRecord { pid: Some(own), ticks, ..StartRecord::default() };
        assert_eq!(record((started, started)).living_process(), Some(own));
        assert_eq!(record((started - 1, started + 1)).living_process(), Some(own));
        assert_eq!(record((started + 1, started + 2)).living_process(), None);
        assert_eq!(record((0, started - 1)).living_process(), None);
        assert_eq!(StartRecord::default().living_process(), None);
    }

    #[test]
    fn a_path_that_is_too_long_is_an_error() {
        let dir = tempfile::tempdir().expect("a folder");
        let header = StartLogHeader { shim: String::new(), boot_id: String::new() };
        let notes = StartLog::create(dir.path(), &header).expect("created");
        let record = StartRecord { logs: vec![("x".repeat(20_000).into(), "y".into())], ..StartRecord::default() };
        assert!(notes.set(0, &record).is_err());
    }
}
