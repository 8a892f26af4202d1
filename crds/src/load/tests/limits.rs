use proptest::prelude::*;

use super::*;

const FORMATS: [Option<Format>; 4] = [Some(Format::Yaml), Some(Format::Json5), Some(Format::Kdl), None];

fn first(text: &[u8], format: Option<Format>, options: &LoadOptions) -> String {
    shown(&load(text, format, options).problems[0])
}

#[test]
fn files_that_are_too_large_are_not_looked_at() {
    let options = LoadOptions { max_bytes: 10, ..LoadOptions::default() };
    let expected =
        "error: the file has more than 10 bytes, which is the limit (use parameters to make many jobs from one entry)";
    assert_eq!(first(b"name: a\n# x", Some(Format::Yaml), &options), expected);
}

#[test]
fn bytes_that_are_no_text() {
    let options = LoadOptions::default();
    let cases: [(&[u8], &str); 4] = [
        (b"name: a\nuser: \xc3\x28", "2:7 error: the file is not UTF-8 text"),
        (b"\xff\xfen\0a\0", "1:1 error: the file is not UTF-8 text (it seems to be UTF-16; save it as UTF-8)"),
        (b"\x1f\x8b\x08\0\0\0", "1:2 error: the file is not UTF-8 text (it seems to be compressed with gzip)"),
        (b"name: \xc3\xa9\xff", "1:8 error: the file is not UTF-8 text"),
    ];
    for (bytes, expected) in cases {
        assert_eq!(first(bytes, Some(Format::Yaml), &options), expected);
    }
    let marked = load(b"\xef\xbb\xbfname: a\n", Some(Format::Yaml), &options);
    assert!(marked.problems.is_empty());
}

#[test]
fn deep_nesting_is_refused() {
    let options = LoadOptions::default();
    let many = 200_000;
    let cases = [
        (format!("{{\"a\":{}", "[".repeat(many)), Some(Format::Json)),
        (format!("a: {}", "[".repeat(many)), Some(Format::Yaml)),
        (format!("a:\n {}", "- ".repeat(many)), Some(Format::Yaml)),
        (format!("a {}", "{ b ".repeat(many)), Some(Format::Kdl)),
        ((0..200).map(|i| format!("{}a:\n", " ".repeat(i))).collect(), Some(Format::Yaml)),
    ];
    for (text, format) in cases {
        let problem = first(text.as_bytes(), format, &options);
        assert!(problem.ends_with("error: values are nested more than 64 deep"), "{problem}");
    }
    let comments = first("/*".repeat(many).as_bytes(), Some(Format::Kdl), &options);
    assert_eq!(comments, "1:1 error: the comment is never closed");
    let fits = format!("name: a\nmetadata:\n  a: {}1{}\n", "[".repeat(60), "]".repeat(60));
    spec(&fits, Format::Yaml);
}

#[test]
fn aliases_cannot_blow_a_document_up() {
    let mut text = "name: a\nmetadata:\n  a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
    for level in 1..12 {
        let aliases = vec![format!("*a{}", level - 1); 10].join(",");
        text.push_str(&format!("  a{level}: &a{level} [{aliases}]\n"));
    }
    let problem = first(text.as_bytes(), Some(Format::Yaml), &LoadOptions::default());
    assert!(
        problem.ends_with("error: the document has more than 6000000 values (aliases make this document too large)"),
        "{problem}"
    );

    let mut deep = "name: a\nmetadata:\n  a0: &a0 [x]\n".to_owned();
    for level in 1..70 {
        deep.push_str(&format!("  a{level}: &a{level} [*a{}]\n", level - 1));
    }
    let problem = first(deep.as_bytes(), Some(Format::Yaml), &LoadOptions::default());
    assert!(problem.ends_with("error: values are nested more than 64 deep"), "{problem}");
}

#[test]
fn a_document_has_only_so_many_values() {
    let options = LoadOptions { max_values: 100, ..LoadOptions::default() };
    let many = vec!["1"; 200].join(",");
    for (text, format) in [(format!("a: [{many}]"), Format::Yaml), (format!("[{many}]"), Format::Json)] {
        let problem = first(text.as_bytes(), Some(format), &options);
        assert!(
            problem.ends_with(
                "error: the document has more than 100 values (use parameters to make many jobs from one entry)"
            ),
            "{problem}"
        );
    }
}

#[test]
fn garbage_of_any_kind_gets_an_answer() {
    let options = LoadOptions::default();
    let patterns: [&[u8]; 8] = [b"a", b"\0", b"{", b"- ", b"a: ", b"\"", b"&a *a ", b"a {} \xe2\x82\xac;\n"];
    for pattern in patterns {
        let text: Vec<u8> = pattern.iter().copied().cycle().take(256 << 10).collect();
        for format in FORMATS {
            assert!(load(&text, format, &options).has_errors(), "{pattern:?} {format:?}");
        }
    }
}

proptest! {
    #[test]
    fn bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        for format in FORMATS {
            let _ = load(&bytes, format, &LoadOptions::default());
        }
    }

    #[test]
    fn texts_never_panic(text in "\\PC{0,100}") {
        for format in FORMATS {
            let _ = load(text.as_bytes(), format, &LoadOptions::default());
        }
    }

    #[test]
    fn nearly_documents_never_panic(parts in proptest::collection::vec(
        prop::sample::select(vec![
            "name", "jobs", "command", ": ", ":", "\n", "\n  ", "- ", "[", "]", "{", "}", ",", "\"", "'", "a", "é", "1",
            "&a ", "*a", "<<", "!!int ", "|", ">", "#", "//", "/*", "*/", "\\", "\\u", "r#\"", "\"#", "=", ";", "---\n", "?",
            "apiVersion", "kind", "spec", "metadata", "env", "true", "~", "\t", "\r\n", "\u{feff}", "/-", "(t)",
        ]), 0..60)) {
        let text = parts.concat();
        for format in FORMATS {
            let _ = load(text.as_bytes(), format, &LoadOptions::default());
        }
    }
}
