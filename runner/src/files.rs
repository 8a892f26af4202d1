//! State of the files that jobs read and write: size, time, and the hash of the content where it is cheap enough.

use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use sha2::{Digest as _, Sha256};
use torc_api::wire::FileStat;

/// Larger files are not hashed, unless the workflow asks for provenance.
pub const MAX_HASHED_BYTES: u64 = 64 << 20;
const CHUNK_BYTES: usize = 256 << 10;

/// Returns the state of a file, without its hash. `path` is relative to `working_dir`, as in the document.
pub fn stat_file(working_dir: &Path, path: &str) -> io::Result<FileStat> {
    let metadata = fs::metadata(working_dir.join(path))?;
    Ok(seen(path, &metadata))
}

fn seen(path: &str, metadata: &Metadata) -> FileStat {
    FileStat {
        path: path.to_owned(),
        size_bytes: if metadata.is_file() { i64::try_from(metadata.len()).unwrap_or(i64::MAX) } else { 0 },
        modified_ms: metadata.mtime().saturating_mul(1_000).saturating_add(metadata.mtime_nsec() / 1_000_000),
        sha256: None,
    }
}

/// Returns whether two states are equal in size and time.
pub fn has_same_stat(before: &FileStat, after: &FileStat) -> bool {
    before.size_bytes == after.size_bytes && before.modified_ms == after.modified_ms
}

/// A cache of hashes, because many jobs read the same file.
#[derive(Debug, Default)]
pub struct Hashes {
    /// Hashes by device and inode.
    known: Mutex<HashMap<(u64, u64), CachedHash>>,
}

#[derive(Debug)]
struct CachedHash {
    modified_ns: i128,
    size: u64,
    hash: String,
}

/// Number of cached hashes. A full cache is dropped.
const MAX_CACHED_HASHES: usize = 100_000;

impl Hashes {
    /// Returns the SHA-256 of a file in hexadecimal digits; none for a folder, and for a file above the limit.
    pub fn of(&self, path: &Path, limit: Option<u64>) -> io::Result<Option<String>> {
        let mut file = File::open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() || limit.is_some_and(|limit| metadata.len() > limit) {
            return Ok(None);
        }
        let place = (metadata.dev(), metadata.ino());
        let modified_ns = i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec());
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.get(&place)
            && (known.modified_ns, known.size) == (modified_ns, metadata.len())
        {
            return Ok(Some(known.hash.clone()));
        }
        drop(known);
        let hash = sha256(&mut file, &mut |_| ())?;
        known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_CACHED_HASHES {
            known.clear();
        }
        known.insert(place, CachedHash { modified_ns, size: metadata.len(), hash: hash.clone() });
        Ok(Some(hash))
    }

    /// Adds the hash to the state of a file, unless the file has changed or cannot be read.
    pub fn complete(&self, working_dir: &Path, seen: FileStat, limit: Option<u64>) -> FileStat {
        let is_same = || stat_file(working_dir, &seen.path).is_ok_and(|now| has_same_stat(&seen, &now));
        if !is_same() {
            return seen;
        }
        let sha256 = self.of(&working_dir.join(&seen.path), limit).ok().flatten();
        // A file that changed while it was read has no valid hash.
        let sha256 = sha256.filter(|_| is_same());
        FileStat { sha256, ..seen }
    }
}

/// Hashes the rest of a file, and reports the number of bytes after every chunk.
pub fn sha256(file: &mut File, progress: &mut dyn FnMut(u64)) -> io::Result<String> {
    let mut hash = Sha256::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        match file.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => {
                hash.update(&chunk[..count]);
                progress(count as u64);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn a_file_has_size_time_and_hash() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a"), "abc").unwrap();
        let seen = stat_file(folder.path(), "a").unwrap();
        assert_eq!((seen.path.as_str(), seen.size_bytes, seen.sha256.as_deref()), ("a", 3, None));
        assert!(seen.modified_ms > 1_700_000_000_000, "{}", seen.modified_ms);
        let hashes = Hashes::default();
        let complete = hashes.complete(folder.path(), seen.clone(), Some(3));
        assert_eq!(complete.sha256.as_deref(), Some(ABC));
        assert_eq!(hashes.complete(folder.path(), seen, Some(2)).sha256, None, "too large");
        let inside = stat_file(folder.path(), ".").unwrap();
        assert_eq!((inside.size_bytes, hashes.complete(folder.path(), inside, None).sha256), (0, None));
        assert!(stat_file(folder.path(), "b").is_err());
    }

    #[test]
    fn what_changed_since_it_was_seen_keeps_what_was_seen() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a"), "abc").unwrap();
        let seen = stat_file(folder.path(), "a").unwrap();
        fs::write(folder.path().join("a"), "abcd").unwrap();
        let hashes = Hashes::default();
        assert_eq!(hashes.complete(folder.path(), seen.clone(), None), seen);
        fs::remove_file(folder.path().join("a")).unwrap();
        assert_eq!(hashes.complete(folder.path(), seen.clone(), None), seen);
    }

    #[test]
    fn a_remembered_hash_goes_with_the_content() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::write(&path, "abc").unwrap();
        let hashes = Hashes::default();
        assert_eq!(hashes.of(&path, None).unwrap().as_deref(), Some(ABC));
        fs::write(&path, "xyz").unwrap();
        let earlier = std::time::SystemTime::now() - std::time::Duration::from_secs(60);
        File::options().write(true).open(&path).unwrap().set_modified(earlier).unwrap();
        assert_ne!(hashes.of(&path, None).unwrap().as_deref(), Some(ABC));
    }

    // J37. A hash is cached for exactly this content: size and time, to the nanosecond.
    #[test]
    fn a_hash_is_remembered_by_size_and_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let at = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::new(1_700_000_000, 5);
        let write = |content: &str, nanoseconds| {
            fs::write(&path, content).unwrap();
            let at = at + std::time::Duration::from_nanos(nanoseconds);
            File::options().write(true).open(&path).unwrap().set_modified(at).unwrap();
        };
        let hashes = Hashes::default();
        write("abc", 0);
        assert_eq!(hashes.of(&path, None).unwrap().as_deref(), Some(ABC));
        write("xyz", 0);
        assert_eq!(hashes.of(&path, None).unwrap().as_deref(), Some(ABC), "nothing shows that it has changed");
        write("xyz", 1_000);
        let xyz = hashes.of(&path, None).unwrap();
        assert_ne!(xyz.as_deref(), Some(ABC), "another time");
        write("wxyz", 1_000);
        assert_ne!(hashes.of(&path, None).unwrap(), xyz, "another size");
    }

    #[test]
    fn two_looks_differ_by_size_or_time() {
        let seen = |size_bytes, modified_ms| FileStat { path: String::new(), size_bytes, modified_ms, sha256: None };
        assert!(has_same_stat(&seen(1, 2), &FileStat { sha256: Some("x".to_owned()), ..seen(1, 2) }));
        assert!(!has_same_stat(&seen(1, 2), &seen(3, 2)) && !has_same_stat(&seen(1, 2), &seen(1, 3)));
    }

    #[test]
    fn hashes_of_several_files_are_remembered() {
        let folder = tempfile::tempdir().unwrap();
        let at = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000);
        let write = |name: &str, content: &str| {
            let path = folder.path().join(name);
            fs::write(&path, content).unwrap();
            File::options().write(true).open(&path).unwrap().set_modified(at).unwrap();
            path
        };
        let hashes = Hashes::default();
        let (first, second) = (write("a", "abc"), write("b", "xyz"));
        for path in [&first, &second] {
            hashes.of(path, None).unwrap();
        }
        write("a", "ABC");
        assert_eq!(hashes.of(&first, None).unwrap().as_deref(), Some(ABC), "it was not read again");
    }
}
