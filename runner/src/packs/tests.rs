use std::io::Write;

use proptest::prelude::*;

use super::*;

/// Writes a pack with its index, as a shim does.
fn write(dir: &Path, outputs: &[(&str, Stream, &[u8])]) -> (PathBuf, Vec<PackEntry>) {
    let pack = dir.join("packed_k_1.pack");
    let (mut data, mut index, mut offset) = (Vec::new(), String::new(), 0);
    let mut entries = Vec::new();
    for (label, stream, output) in outputs {
        let record = record(label, *stream, output);
        let entry = PackEntry { label: (*label).to_owned(), stream: *stream, offset, length: output.len() as u64 };
        index.push_str(&index_line(&entry));
        offset += record.len() as u64;
        data.extend(record);
        entries.push(entry);
    }
    fs::write(&pack, data).expect("written");
    fs::write(index_path(&pack), index).expect("written");
    (pack, entries)
}

const THREE: &[(&str, Stream, &[u8])] = &[
    ("wf1_j1_r1_a1", Stream::Out, b"one\n"),
    ("wf1_j2_r1_a1", Stream::Err, b"torc-log wf1_j9_r1_a1 o 3 0000000000000000\nabc\n"),
    ("wf1_j3_r1_a1", Stream::Out, b"\0\xff no text\n\n"),
];

#[test]
fn what_is_packed_is_found_again() {
    let dir = tempfile::tempdir().expect("a folder");
    let (pack, written) = write(dir.path(), THREE);
    assert_eq!(entries(&pack).expect("readable"), written);
    for (entry, (_, _, output)) in written.iter().zip(THREE) {
        assert_eq!(read(&pack, entry.offset).expect("readable"), *output);
        let named = reference(&pack, entry.offset);
        assert_eq!(parse_reference(&named), Some((pack.clone(), entry.offset)));
    }
    assert!(read(&pack, 3).is_err(), "no record begins there");
    for plain in ["/a/job_wf1_j1_r1_a1.o", "/a/me@host/x.o", "/a/x.log@7", "/a/x.pack@", "/a/x.pack"] {
        assert_eq!(parse_reference(plain), None, "{plain}");
    }
}

#[test]
fn the_index_can_be_lost_late_or_wrong() {
    let dir = tempfile::tempdir().expect("a folder");
    let (pack, written) = write(dir.path(), THREE);
    let whole = fs::read_to_string(index_path(&pack)).expect("readable");
    let first_line = whole.find('\n').expect("a line") + 1;
    for index in ["", &whole[..first_line], &whole[..first_line + 7], "nonsense\n", "wf1_j1_r1_a1 o 99999 5\n"] {
        fs::write(index_path(&pack), index).expect("written");
        assert_eq!(entries(&pack).expect("readable"), written, "{index:?}");
    }
    fs::remove_file(index_path(&pack)).expect("removed");
    assert_eq!(entries(&pack).expect("readable"), written);
}

#[test]
fn damage_is_noticed() {
    let dir = tempfile::tempdir().expect("a folder");
    let (pack, written) = write(dir.path(), THREE);
    let mut bytes = fs::read(&pack).expect("readable");
    let last = bytes.len() - 3;
    bytes[last] ^= 1;
    fs::write(&pack, bytes).expect("written");
    assert!(read(&pack, written[2].offset).is_err());
    assert!(read(&pack, written[0].offset).is_ok());
}

proptest! {
    // A crash may cut a pack at any byte: complete records stay readable, and nothing else is read.
    #[test]
    fn a_torn_tail_is_ignored(
        outputs in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..8),
        cut in any::<prop::sample::Index>(),
        zeros in 0_usize..40,
    ) {
        let dir = tempfile::tempdir().expect("a folder");
        let labelled: Vec<(String, &[u8])> =
            outputs.iter().enumerate().map(|(n, output)| (format!("wf1_j{n}_r1_a1"), output.as_slice())).collect();
        let all: Vec<(&str, Stream, &[u8])> =
            labelled.iter().map(|(label, output)| (label.as_str(), Stream::Out, *output)).collect();
        let (pack, written) = write(dir.path(), &all);
        let size = fs::metadata(&pack).expect("a file").len();
        let cut = cut.index(usize::try_from(size).expect("fits") + 1) as u64;
        let file = fs::OpenOptions::new().write(true).open(&pack).expect("a file");
        file.set_len(cut).expect("cut");
        let mut end = fs::OpenOptions::new().append(true).open(&pack).expect("a file");
        end.write_all(&vec![0; zeros]).expect("written");
        // Lengths differ in their number of digits, so each record has its own length.
        let number = |entry: &PackEntry| -> usize {
            entry.label[5..].split('_').next().expect("a number").parse().expect("a number")
        };
        let ends = |entry: &PackEntry| {
            entry.offset + record(&entry.label, entry.stream, &outputs[number(entry)]).len() as u64
        };
        let whole: Vec<PackEntry> = written.into_iter().filter(|entry| ends(entry) <= cut + 1).collect();
        let _ = fs::remove_file(index_path(&pack));
        let found = entries(&pack).expect("readable");
        // The line end after an output may be missing or a zero. Earlier records stay readable.
        prop_assert!(found.len() + 1 >= whole.len() && found.len() <= whole.len() + 1);
        for entry in found.iter().filter(|entry| ends(entry) <= cut) {
            prop_assert_eq!(&read(&pack, entry.offset).expect("readable"), &outputs[number(entry)]);
        }
    }
}
