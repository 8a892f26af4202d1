//! Packed logs: the outputs of many short jobs in a few files that only grow.
//!
//! A pack is a sequence of records: a header line with attempt, stream and length, the output, and a line end. The
//! index of a pack has one short line for each record, and can be rebuilt from the pack. A record that is incomplete
//! after a crash is ignored, with everything after it.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// The first word of every record.
const RECORD_TAG: &str = "torc-log";
/// Upper limit of a header's length.
const MAX_HEADER_BYTES: u64 = 256;
/// The file name extensions of a pack and of its index.
pub const PACK: &str = "pack";
const INDEX: &str = "index";

/// The stream of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stream {
    Out,
    Err,
}

impl Stream {
    fn letter(self) -> char {
        match self {
            Self::Out => 'o',
            Self::Err => 'e',
        }
    }

    fn from_letter(text: &str) -> Option<Self> {
        match text {
            "o" => Some(Self::Out),
            "e" => Some(Self::Err),
            _ => None,
        }
    }
}

/// The position of one output in its pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackEntry {
    /// The attempt, e.g. `wf1_j2_r1_a3`.
    pub label: String,
    /// The stream that the output was written to.
    pub stream: Stream,
    /// Offset of its record.
    pub offset: u64,
    /// Length of the output in bytes.
    pub length: u64,
}

/// Returns a record, which is appended to a pack in one write.
pub fn record(label: &str, stream: Stream, output: &[u8]) -> Vec<u8> {
    let header = format!("{RECORD_TAG} {label} {} {} {:016x}\n", stream.letter(), output.len(), checksum(output));
    let mut record = Vec::with_capacity(header.len() + output.len() + 1);
    record.extend_from_slice(header.as_bytes());
    record.extend_from_slice(output);
    record.push(b'\n');
    record
}

/// Returns a line of the index.
pub fn index_line(entry: &PackEntry) -> String {
    format!("{} {} {} {}\n", entry.label, entry.stream.letter(), entry.offset, entry.length)
}

/// Computes FNV-1a, which is enough to detect a torn record.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Returns the reference of an output in results: the pack's path, `@`, and the offset of the record.
pub fn reference(pack: &Path, offset: u64) -> String {
    format!("{}@{offset}", pack.display())
}

/// Returns pack and offset, if a path is a reference to a pack.
pub fn parse_reference(path: &str) -> Option<(PathBuf, u64)> {
    let (pack, offset) = path.rsplit_once('@')?;
    let is_pack = Path::new(pack).extension().is_some_and(|extension| extension == PACK);
    Some((PathBuf::from(pack), offset.parse().ok()?)).filter(|_| is_pack)
}

/// Returns the output of the record at this offset.
pub fn read(pack: &Path, offset: u64) -> io::Result<Vec<u8>> {
    let mut file = BufReader::new(File::open(pack)?);
    file.seek(SeekFrom::Start(offset))?;
    let broken = || io::Error::new(io::ErrorKind::InvalidData, format!("no complete record at byte {offset}"));
    let header = read_header(&mut file)?.ok_or_else(broken)?;
    let mut output = vec![0; usize::try_from(header.length).map_err(|_| broken())?];
    file.read_exact(&mut output).map_err(|_| broken())?;
    if checksum(&output) == header.checksum { Ok(output) } else { Err(broken()) }
}

struct PackHeader {
    label: String,
    stream: Stream,
    length: u64,
    checksum: u64,
    bytes: u64,
}

/// Reads the next header; none at the end, and where there is no valid header.
fn read_header(file: &mut impl BufRead) -> io::Result<Option<PackHeader>> {
    let mut line = Vec::new();
    let bytes = file.take(MAX_HEADER_BYTES).read_until(b'\n', &mut line)?;
    Ok(parse_header(&line, bytes as u64))
}

fn parse_header(line: &[u8], bytes: u64) -> Option<PackHeader> {
    let text = std::str::from_utf8(line.strip_suffix(b"\n")?).ok()?;
    let words: Vec<&str> = text.split(' ').collect();
    let [RECORD_TAG, label, stream, length, checksum] = words.as_slice() else { return None };
    Some(PackHeader {
        label: (*label).to_owned(),
        stream: Stream::from_letter(stream)?,
        length: length.parse().ok()?,
        checksum: u64::from_str_radix(checksum, 16).ok()?,
        bytes,
    })
}

/// Returns the complete records from an offset on, and the offset after them.
pub fn scan(pack: &Path, from: u64) -> io::Result<(Vec<PackEntry>, u64)> {
    let size = fs::metadata(pack)?.len();
    let mut file = BufReader::new(File::open(pack)?);
    file.seek(SeekFrom::Start(from))?;
    let (mut entries, mut offset) = (Vec::new(), from);
    while let Some(header) = read_header(&mut file)? {
        let end = offset.saturating_add(header.bytes).saturating_add(header.length).saturating_add(1);
        if end > size {
            break;
        }
        file.seek_relative(i64::try_from(header.length).unwrap_or(i64::MAX).saturating_add(1))?;
        entries.push(PackEntry { label: header.label, stream: header.stream, offset, length: header.length });
        offset = end;
    }
    Ok((entries, offset))
}

/// Returns the path of a pack's index.
pub fn index_path(pack: &Path) -> PathBuf {
    pack.with_extension(INDEX)
}

/// Returns all outputs of a pack: from its index, and from the pack itself where the index ends.
pub fn entries(pack: &Path) -> io::Result<Vec<PackEntry>> {
    let text = fs::read_to_string(index_path(pack)).unwrap_or_default();
    let size = fs::metadata(pack)?.len();
    // The last line may be torn. Nothing after an invalid line is used.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let known: Vec<PackEntry> =
        whole.lines().map_while(parse_index_line).take_while(|entry| entry.offset < size).collect();
    match known.split_last() {
        None => Ok(scan(pack, 0)?.0),
        Some((last, before)) => {
            let mut all = before.to_vec();
            all.extend(scan(pack, last.offset)?.0);
            Ok(all)
        }
    }
}

fn parse_index_line(line: &str) -> Option<PackEntry> {
    let words: Vec<&str> = line.split(' ').collect();
    let [label, stream, offset, length] = words.as_slice() else { return None };
    Some(PackEntry {
        label: (*label).to_owned(),
        stream: Stream::from_letter(stream)?,
        offset: offset.parse().ok()?,
        length: length.parse().ok()?,
    })
}

#[cfg(test)]
mod tests;
