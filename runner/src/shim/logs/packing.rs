//! The packs of a shim: one at a time for each folder of logs, and a new one when it is large.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::packs::{self, PackEntry, Stream};

/// Size above which a new pack begins.
const MAX_PACK_BYTES: u64 = 256 << 20;

/// The packs of a shim.
#[derive(Debug)]
pub struct Packing {
    shim: String,
    begun: u32,
    open: HashMap<PathBuf, Pack>,
}

#[derive(Debug)]
struct Pack {
    path: PathBuf,
    data: File,
    index: File,
    size: u64,
}

impl Packing {
    /// Creates packs without open files.
    pub fn new(shim: &str) -> Self {
        Self { shim: shim.chars().take(12).collect(), begun: 0, open: HashMap::new() }
    }

    /// Adds an output, and returns its reference for results.
    pub fn add(&mut self, dir: &Path, label: &str, stream: Stream, output: &[u8]) -> io::Result<String> {
        if self.open.get(dir).is_none_or(|pack| pack.size >= MAX_PACK_BYTES) {
            let pack = self.begin(dir)?;
            self.open.insert(dir.to_path_buf(), pack);
        }
        let Some(pack) = self.open.get_mut(dir) else { return Err(io::ErrorKind::NotFound.into()) };
        match pack.add(label, stream, output) {
            Ok(reference) => Ok(reference),
            Err(error) => {
                // Records after an incomplete one would not be found, so the next output begins a new pack.
                self.open.remove(dir);
                Err(error)
            }
        }
    }

    fn begin(&mut self, dir: &Path) -> io::Result<Pack> {
        self.begun += 1;
        let path = dir.join(format!("packed_{}_{}.{}", self.shim, self.begun, packs::PACK));
        fs::create_dir_all(dir)?;
        let open = |path: &Path| OpenOptions::new().append(true).create_new(true).open(path);
        Ok(Pack { data: open(&path)?, index: open(&packs::index_path(&path))?, path, size: 0 })
    }
}

impl Pack {
    fn add(&mut self, label: &str, stream: Stream, output: &[u8]) -> io::Result<String> {
        let record = packs::record(label, stream, output);
        let entry = PackEntry { label: label.to_owned(), stream, offset: self.size, length: output.len() as u64 };
        self.data.write_all(&record)?;
        self.size += record.len() as u64;
        // An index that cannot be written is rebuilt from the pack by its readers.
        let _ = self.index.write_all(packs::index_line(&entry).as_bytes());
        Ok(packs::reference(&self.path, entry.offset))
    }
}
