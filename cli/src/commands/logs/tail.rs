//! Output of files from the position of the last call.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Cursor, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use torc_runner::packs;

use crate::error::CliError;
use crate::output::Printer;

/// Maximum number of bytes of one read.
const CHUNK_BYTES: usize = 64 * 1024;
/// Maximum number of bytes of the last lines, because a line may be endless.
const MAX_TAIL_BYTES: u64 = 64 << 10;

/// The position up to which each file was printed.
pub struct TailPrinter {
    lines: Option<usize>,
    offsets: HashMap<PathBuf, u64>,
    printed: bool,
}

impl TailPrinter {
    /// Returns a tail that begins at the last `lines`, or at the start of each file.
    pub fn new(lines: Option<usize>) -> Self {
        Self { lines, offsets: HashMap::new(), printed: false }
    }

    pub fn has_printed(&self) -> bool {
        self.printed
    }

    /// Prints the output since the last call. Returns whether there was any.
    pub fn print(&mut self, files: &[PathBuf], output: Printer) -> Result<bool, CliError> {
        let mut found = false;
        for path in files {
            match self.print_file(path, output) {
                Ok(printed) => found |= printed,
                Err(TailError::Output(error)) => return Err(error),
                // A log appears when there is output; until then there is no file.
                Err(TailError::Input(error)) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(TailError::Input(error)) => {
                    return Err(CliError::unexpected(format!("could not read {}", path.display()), error));
                }
            }
        }
        self.printed |= found;
        Ok(found)
    }

    /// Prints the output of a job from a pack. It is complete, so it is printed once.
    fn print_packed(&mut self, path: &Path, pack: &Path, offset: u64, output: Printer) -> Result<bool, TailError> {
        if self.offsets.contains_key(path) {
            return Ok(false);
        }
        let bytes = packs::read(pack, offset)?;
        let start = match self.lines {
            Some(lines) => last_lines(&mut Cursor::new(&bytes), lines)?,
            None => 0,
        };
        let shown = bytes.get(usize::try_from(start).unwrap_or(0)..).unwrap_or_default();
        output.raw(shown).map_err(TailError::Output)?;
        self.offsets.insert(path.to_owned(), 0);
        Ok(!shown.is_empty())
    }

    fn print_file(&mut self, path: &Path, output: Printer) -> Result<bool, TailError> {
        if let Some((pack, offset)) = path.to_str().and_then(packs::parse_reference) {
            return self.print_packed(path, &pack, offset, output);
        }
        let mut file = File::open(path)?;
        let start = match self.offsets.get(path) {
            Some(offset) => *offset,
            None => match self.lines {
                Some(lines) => last_lines(&mut file, lines)?,
                None => 0,
            },
        };
        file.seek(SeekFrom::Start(start))?;
        let mut offset = start;
        let mut buffer = vec![0; CHUNK_BYTES];
        loop {
            let length = file.read(&mut buffer)?;
            if length == 0 {
                break;
            }
            output.raw(&buffer[..length]).map_err(TailError::Output)?;
            offset += u64::try_from(length).unwrap_or(0);
        }
        self.offsets.insert(path.to_owned(), offset);
        Ok(offset > start)
    }
}

/// Returns a chunk of a file and its offset.
pub fn chunk(path: &str, offset: u64, lines: Option<usize>, most: usize) -> std::io::Result<(u64, Vec<u8>)> {
    if let Some((pack, at)) = packs::parse_reference(path) {
        return chunk_of(&mut Cursor::new(packs::read(&pack, at)?), offset, lines, most);
    }
    chunk_of(&mut File::open(path)?, offset, lines, most)
}

fn chunk_of(
    file: &mut (impl Read + Seek),
    offset: u64,
    lines: Option<usize>,
    most: usize,
) -> std::io::Result<(u64, Vec<u8>)> {
    let start = match lines {
        Some(lines) => last_lines(file, lines)?.max(offset),
        None => offset,
    };
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.take(most as u64).read_to_end(&mut bytes)?;
    Ok((start, bytes))
}

enum TailError {
    Input(std::io::Error),
    Output(CliError),
}

impl From<std::io::Error> for TailError {
    fn from(error: std::io::Error) -> Self {
        Self::Input(error)
    }
}

/// Returns the last lines of a log; none if it cannot be read.
pub fn last_lines_of(path: &str, lines: usize) -> Vec<String> {
    let read = || -> std::io::Result<Vec<u8>> {
        if let Some((pack, offset)) = packs::parse_reference(path) {
            let bytes = packs::read(&pack, offset)?;
            let start = last_lines(&mut Cursor::new(&bytes), lines)?;
            return Ok(bytes.get(usize::try_from(start).unwrap_or(0)..).unwrap_or_default().to_vec());
        }
        let mut file = File::open(path)?;
        let start = last_lines(&mut file, lines)?;
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        file.take(MAX_TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().unwrap_or_default();
    String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect()
}

/// Returns the offset of the last lines. Searches from the end, so that a large file is not read completely.
fn last_lines(file: &mut (impl Read + Seek), lines: usize) -> std::io::Result<u64> {
    let size = file.seek(SeekFrom::End(0))?;
    let chunk = u64::try_from(CHUNK_BYTES).unwrap_or(1);
    let mut end = size;
    let mut found = 0;
    while end > 0 {
        let start = end.saturating_sub(chunk);
        file.seek(SeekFrom::Start(start))?;
        let mut buffer = vec![0; usize::try_from(end - start).unwrap_or(CHUNK_BYTES)];
        file.read_exact(&mut buffer)?;
        for (index, byte) in buffer.iter().enumerate().rev() {
            let position = start + u64::try_from(index).unwrap_or(0);
            // A newline at the end of the file begins no line.
            if *byte == b'\n' && position + 1 < size {
                found += 1;
                if found == lines {
                    return Ok(position + 1);
                }
            }
        }
        end = start;
    }
    Ok(if lines == 0 { size } else { 0 })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::Write as _;

    use super::*;

    #[test]
    fn the_last_lines_are_found_from_the_end() {
        for (text, lines, expected) in [
            ("a\nb\nc\n", 1, "c\n"),
            ("a\nb\nc\n", 2, "b\nc\n"),
            ("a\nb\nc", 2, "b\nc"),
            ("a\nb\nc\n", 9, "a\nb\nc\n"),
            ("a\n\n", 1, "\n"),
            ("abc", 0, ""),
            ("", 3, ""),
        ] {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(text.as_bytes()).unwrap();
            let start = usize::try_from(last_lines(&mut file, lines).unwrap()).unwrap();
            assert_eq!(&text[start..], expected, "{lines} of {text:?}");
        }
    }

    #[test]
    fn pieces_follow_one_another() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("o").to_str().unwrap().to_owned();
        std::fs::write(&path, "one\ntwo\nthree\n").unwrap();
        for (offset, lines, most, expected) in [
            (0, None, 100, (0, "one\ntwo\nthree\n")),
            (0, None, 5, (0, "one\nt")),
            (5, None, 5, (5, "wo\nth")),
            (14, None, 5, (14, "")),
            (0, Some(1), 100, (8, "three\n")),
            (10, Some(1), 100, (10, "ree\n")),
        ] {
            let (start, bytes) = chunk(&path, offset, lines, most).unwrap();
            assert_eq!((start, bytes.as_slice()), (expected.0, expected.1.as_bytes()), "{offset} {lines:?} {most}");
        }
        assert!(chunk("/none", 0, None, 1).is_err());
    }

    #[test]
    fn chunks_do_not_matter() {
        let text: String = (0..20_000).map(|number| format!("line {number}\n")).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let start = usize::try_from(last_lines(&mut file, 15_000).unwrap()).unwrap();
        assert!(text[start..].starts_with("line 5000\n"));
    }
}
