//! Checks whole documents: encodings, envelopes, documents with errors, hints.

use super::*;
use crate::load::tree::excerpt;

#[test]
fn encodings_are_recognised() {
    let cases: [(&[u8], &str); 3] = [
        (b"\xfe\xff\0n", "1:1 error: the file is not UTF-8 text (it seems to be UTF-16; save it as UTF-8)"),
        (b"\x28\xb5\x2f\xfd\xff", "1:2 error: the file is not UTF-8 text (it seems to be compressed with zstd)"),
        (b"a: b\n\xc3\xa9\xc3\xa9: \xff", "2:5 error: the file is not UTF-8 text"),
    ];
    for (bytes, expected) in cases {
        let loaded = load(bytes, Some(Format::Yaml), &LoadOptions::default());
        assert_eq!(loaded.problems.iter().map(shown).collect::<Vec<_>>(), [expected]);
    }
}

#[test]
fn a_format_is_guessed_from_the_text() {
    let guess = |text: &str| {
        let loaded = load(text.as_bytes(), None, &LoadOptions::default());
        loaded.problems.iter().map(shown).collect::<Vec<_>>()
    };
    let none = Vec::<String>::new();
    assert_eq!(guess("// c\n{name: 'a'}"), none, "JSON5");
    assert_eq!(guess("name: a\n"), none, "YAML");
    assert_eq!(guess("name \"a\"\njob \"b\" { command \"c\"; }\n"), none, "KDL");
    assert_eq!(guess("{name: a}"), ["1:8 error: unexpected 'a' (put texts in quotes)"], "a brace begins JSON");
    assert_eq!(guess("words\n"), ["1:1 error: expected a mapping at the top of the document, found the text 'words'"]);
}

#[test]
fn a_document_with_errors_says_which_fields_are_wrong() {
    let flawed =
        |text: &str| read(text, Format::Yaml).flawed.into_iter().flat_map(|flawed| flawed.wrong).collect::<Vec<_>>();
    let bare = "name: 1\njobs:\n- {name: a, command: x, depends_on: [1], input_user_data: b}\n";
    assert_eq!(flawed(bare), ["metadata.name", "spec.jobs[0].dependsOn[0]", "spec.jobs[0].inputUserData"]);
    let full = envelope("user: 1\nuserData: [{name: a}, {name: a}]\n");
    assert_eq!(flawed(&full), ["spec.user", "spec.userData[1].name"], "one field's error hides no other field's");
    let many = envelope("user: 1\nproject: 2\n");
    let options = LoadOptions { max_problems: 1, ..LoadOptions::default() };
    assert!(load(many.as_bytes(), Some(Format::Yaml), &options).flawed.is_empty(), "not every wrong field is known");
    let valid = read("name: a\n", Format::Yaml);
    assert_eq!((valid.documents.len(), valid.flawed.len()), (1, 0));
}

#[test]
fn an_error_hides_only_what_follows_from_it() {
    let jobs: Vec<String> = (0..11).map(|job| format!("{{name: j{job}, command: x}}")).collect();
    let text = envelope(&format!("jobs: [{}]", jobs.join(", ")))
        .replace("{name: j1, command: x}", "{name: j1, command: 1}")
        .replace("name: j10", "name: j0");
    let problems: Vec<String> =
        read(&text, Format::Yaml).problems.iter().map(|problem| problem.field.clone()).collect();
    assert_eq!(problems, ["spec.jobs[1].command", "spec.jobs[10].name"]);
}

#[test]
fn the_name_as_its_author_wrote_it_is_kept() {
    let display = |text: &str| spec(text, Format::Yaml).display_name;
    assert_eq!(display("name: My Flow\n").as_deref(), Some("My Flow"));
    assert_eq!(display("name: My Flow\ndisplay_name: Other\n").as_deref(), Some("Other"));
    assert_eq!(display("name: my-flow\n"), None);
}

#[test]
fn values_of_the_wrong_type_say_what_to_write() {
    let hint = |line: &str| read(&envelope(line), Format::Yaml).problems[0].hint.clone();
    let cases = [
        ("suspend: 'Y'", Some("write true")),
        ("suspend: 'ON'", Some("write true")),
        ("suspend: 'True'", Some("write true")),
        ("suspend: 'n'", Some("write false")),
        ("suspend: 'off'", Some("write false")),
        ("suspend: 'no'", Some("write false")),
        ("suspend: 'false'", Some("write false")),
        ("suspend: 'perhaps'", None),
        ("files: [{name: a, path: b, stMtime: ' 1.5 '}]", Some("remove the quotes")),
        ("runId: 'one'", None),
        ("stopPolicy: 1", Some("put it in quotes: \"1\"")),
        ("stopPolicy: true", Some("put it in quotes: \"true\"")),
        ("orphanAfter: 1.5", Some("write PT4H, 4h30m or 1-02:00:00")),
        ("user: [a]", None),
    ];
    for (line, expected) in cases {
        assert_eq!(hint(line).as_deref(), expected, "{line}");
    }
    let bare = read("name: a\norphan_after: 30\n", Format::Yaml).problems[0].hint.clone();
    assert_eq!(bare.as_deref(), Some("write 30s, 30m or 30h"));
}

#[test]
fn words_that_kubectl_reads_as_booleans() {
    for word in ["y", "Y", "n", "yes", "No", "ON", "off"] {
        let problems = all_problems(&envelope(&format!("user: {word}")), Format::Yaml);
        let expected = format!(
            "6:9 warning spec.user: kubectl reads the unquoted word {word} as a boolean (put it in quotes: \"{word}\")"
        );
        assert_eq!(problems, [expected]);
    }
    for word in ["yep", "o", "of", "yess", "'yes'"] {
        assert_eq!(all_problems(&envelope(&format!("user: {word}")), Format::Yaml), Vec::<String>::new(), "{word}");
    }
}

#[test]
fn long_texts_are_cut_in_messages() {
    assert_eq!(excerpt(&"é".repeat(40)), "é".repeat(40));
    assert_eq!(excerpt(&"é".repeat(41)), format!("{}…", "é".repeat(40)));
    assert_eq!(excerpt("a\tb\nc"), "a b c");
    let field = |letters: usize| {
        let text = envelope(&format!("{}: 1", "k".repeat(letters)));
        read(&text, Format::Yaml).problems[0].field.clone()
    };
    assert_eq!(field(100), format!("spec.{}", "k".repeat(100)));
    assert_eq!(field(101), format!("spec.{}…", "k".repeat(40)));
}

#[test]
fn a_mapping_of_many_keys_has_each_once() {
    for keys in [1, 15, 16, 17, 40] {
        let entries: String = (0..keys).map(|key| format!("  k{key}: 1\n")).collect();
        let text = format!("name: a\nmetadata:\n{entries}");
        assert_eq!(all_problems(&text, Format::Yaml), Vec::<String>::new(), "{keys} keys");
        for again in [0, keys - 1] {
            let twice = format!("{text}  k{again}: 2\n");
            let expected =
                format!("{}:3 error: the key `k{again}` occurs twice (it is also on line {})", keys + 3, again + 3);
            assert_eq!(all_problems(&twice, Format::Yaml), [expected]);
        }
    }
}
