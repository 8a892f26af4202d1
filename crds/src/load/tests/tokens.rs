//! The smallest parts of each format: numbers, escape sequences, comments, tags.

use serde_json::{Value, json};

use super::*;

/// Returns a value in a place where every value is allowed; the first problem otherwise.
fn value(format: Format, text: &str) -> Result<Value, String> {
    let document = match format {
        Format::Kdl => format!("name \"demo\"\nmetadata {{\n v {text}\n}}\n"),
        Format::Yaml => format!("name: demo\nmetadata:\n  v: {text}\n"),
        Format::Json | Format::Json5 => format!("{{name: 'demo', metadata: {{v: {text}}}}}"),
    };
    let mut loaded = read(&document, format);
    if let Some(problem) = loaded.problems.first() {
        return Err(problem.message.clone());
    }
    match loaded.documents.remove(0).document {
        Document::Workflow(workflow) => Ok(workflow.spec.metadata.unwrap_or_default()["v"].clone()),
        other => panic!("not a workflow: {other:?}"),
    }
}

fn check(format: Format, cases: &[(&str, Value)]) {
    for (text, expected) in cases {
        assert_eq!(value(format, text), Ok(expected.clone()), "{text}");
    }
}

fn refuse(format: Format, cases: &[(&str, &str)]) {
    for (text, expected) in cases {
        assert_eq!(value(format, text), Err((*expected).to_owned()), "{text}");
    }
}

#[test]
fn numbers_of_json5() {
    check(
        Format::Json5,
        &[
            ("0", json!(0)),
            ("-0", json!(0)),
            ("0.5", json!(0.5)),
            ("-0X1F", json!(-31)),
            ("9223372036854775807", json!(i64::MAX)),
            ("-9223372036854775807", json!(-9_223_372_036_854_775_807_i64)),
            ("-9223372036854775809", json!(-9_223_372_036_854_775_809.0_f64)),
            ("18446744073709551616", json!(18_446_744_073_709_551_616.0_f64)),
            ("1E+2", json!(100.0)),
            ("1e-2", json!(0.01)),
        ],
    );
    let wrong = |text: &str| format!("'{text}' is not a number");
    for text in ["00", "0x", "0x-1", "--1", "+-1", "1.2.3", "1e", "0xG", "1a", "-", "+", "0b1"] {
        assert_eq!(value(Format::Json5, text), Err(wrong(text)), "{text}");
    }
}

#[test]
fn escape_sequences_of_json5() {
    check(
        Format::Json5,
        &[
            (r#""\n\t\r\b\f\v\0""#, json!("\n\t\r\u{8}\u{c}\u{b}\0")),
            (r#""\"\'\\\/\a""#, json!("\"'\\/a")),
            (r#""\x41\x7e""#, json!("A~")),
            (r#""\u00e9\uFFFD""#, json!("é\u{fffd}")),
            (r#""\ud83d\ude00""#, json!("😀")),
            (r#""\ud800\udc00\udbff\udfff""#, json!("\u{10000}\u{10ffff}")),
            ("\"a\\\nb\\\r\nc\\\rd\"", json!("abcd")),
            ("'a\"b'", json!("a\"b")),
            (r#""a'b""#, json!("a'b")),
        ],
    );
    for text in
        [r#""\x4""#, r#""\xg1""#, r#""\u12""#, r#""\ud83d""#, r#""\ud83d\u0041""#, r#""\udc00""#, r#""\1""#, r#""\9""#]
    {
        assert_eq!(value(Format::Json5, text), Err("not an escape sequence".to_owned()), "{text}");
    }
}

#[test]
fn names_and_comments_of_json5() {
    check(
        Format::Json5,
        &[
            ("{_a1: 1, $b: 2, é: 3}", json!({ "_a1": 1, "$b": 2, "é": 3 })),
            ("/* a */ 1 // b\n", json!(1)),
            ("// a\r 1", json!(1)),
            ("[/**/]", json!([])),
            ("/* * / */ 2", json!(2)),
            ("\u{feff}3", json!(3)),
        ],
    );
    refuse(
        Format::Json5,
        &[
            ("Infinity", "Infinity is not a finite number"),
            ("[,]", "expected a value, found ','"),
            ("{1a: 1}", "expected a key or '}', found '1'"),
            ("{a: 1 b: 2}", "expected ',' or '}', found 'b'"),
            ("True", "unexpected 'True'"),
        ],
    );
}

#[test]
fn scalars_and_tags_of_yaml() {
    check(
        Format::Yaml,
        &[
            ("NULL", json!(null)),
            ("null", json!(null)),
            ("nULL", json!("nULL")),
            ("True", json!(true)),
            ("TRUE", json!(true)),
            ("tRUE", json!("tRUE")),
            ("false", json!(false)),
            ("FALSE", json!(false)),
            ("+1.5", json!(1.5)),
            ("1.", json!(1.0)),
            ("-.5e+1", json!(-5.0)),
            ("1e", json!("1e")),
            ("1e+", json!("1e+")),
            (".", json!(".")),
            ("+", json!("+")),
            ("0x", json!("0x")),
            ("0xG", json!("0xG")),
            ("0o8", json!("0o8")),
            ("-0x1", json!("-0x1")),
            ("1.5.", json!("1.5.")),
            ("-9223372036854775809", json!(-9_223_372_036_854_775_809.0_f64)),
            ("!!bool true", json!(true)),
            ("!!null ''", json!(null)),
            ("!!float 1.5", json!(1.5)),
            ("!!str 1.5", json!("1.5")),
            ("!!seq [1]", json!([1])),
            ("!!map {a: 1}", json!({ "a": 1 })),
            ("\"1\"", json!("1")),
        ][..],
    );
    let infinite = |text: &str| format!("{text} is not a finite number; put it in quotes if it is a text");
    for text in [".inf", "-.inf", "+.Inf", ".INF", ".nan", ".NaN", ".NAN"] {
        assert_eq!(value(Format::Yaml, text), Err(infinite(text)), "{text}");
    }
    refuse(
        Format::Yaml,
        &[
            ("!!bool yes", "'yes' is not a !!bool"),
            ("!!int 1.5", "'1.5' is not a !!int"),
            ("!!null a", "'a' is not a !!null"),
            ("!!float a", "'a' is not a !!float"),
            ("!!seq {a: 1}", "the tag `tag:yaml.org,2002:seq` has no meaning here"),
            ("!!map [1]", "the tag `tag:yaml.org,2002:map` has no meaning here"),
            ("!!binary a", "the tag `tag:yaml.org,2002:binary` has no meaning here"),
            ("{*x : 1}", "not YAML: while parsing node, found unknown anchor"),
        ],
    );
}

#[test]
fn merges_keep_what_comes_first() {
    let text = "name: demo\nmetadata:\n  a: &a {x: 1, y: 1}\n  b: &b {y: 2, z: 2}\n  v: {<<: [*a, *b], z: 3}\n  w: {'<<': 4}\n  u: {&k k: 1, *k : 2}\n";
    let problems = all_problems(text, Format::Yaml);
    assert_eq!(problems, ["7:16 error: the key `k` occurs twice (it is also on line 7)"]);
    let text = text.replace(", *k : 2", "");
    let spec = spec(&text, Format::Yaml);
    let found = spec.metadata.unwrap_or_default();
    assert_eq!(found["v"], json!({ "z": 3, "x": 1, "y": 1 }));
    assert_eq!(found["w"], json!({ "<<": 4 }), "in quotes it is a key like others");
    let anchored = "name: demo\nmetadata: {&k key: 1, &n 2: 3, v: [*k, *n], *k : 4}\n";
    assert_eq!(all_problems(anchored, Format::Yaml), ["2:45 error: the key `key` occurs twice (it is also on line 2)"]);
    let anchored = anchored.replace(", *k : 4", "");
    let found = super::spec(&anchored, Format::Yaml).metadata.unwrap_or_default();
    assert_eq!(found["v"], json!(["key", 2]), "a key may have an anchor");
}

#[test]
fn values_of_kdl() {
    check(
        Format::Kdl,
        &[
            ("+5", json!(5)),
            ("-.5", json!(-0.5)),
            ("0b11", json!(3)),
            ("-0xa", json!(-10)),
            ("1_0", json!(10)),
            ("#false", json!(false)),
            ("true", json!(true)),
            ("-", json!("-")),
            ("-a", json!("-a")),
            ("r", json!("r")),
            ("rest", json!("rest")),
            ("\"\\r\\t\\b\\f\\s\\/\\\"\"", json!("\r\t\u{8}\u{c} /\"")),
            ("\"\\u{10FFFF}\"", json!("\u{10ffff}")),
            ("##\"a\"#b\"##", json!("a\"#b")),
            ("1; w 2", json!(1)),
            ("1 // 2", json!(1)),
            ("1 /* a /* b */ c */ 2", json!([1, 2])),
            ("{ a 1; b 2 }", json!({ "a": 1, "b": 2 })),
            ("a=1 b=(t)2 { c 3 }", json!({ "a": 1, "b": 2, "c": 3 })),
            ("/-1 /-a=2 3", json!(3)),
            ("{ /-a 1; b 2 }", json!({ "b": 2 })),
            ("1 /-{ a 1 }", json!(1)),
            ("\"\"\"\n a\n\n  b\n \"\"\"", json!("a\n\n b")),
        ],
    );
    refuse(
        Format::Kdl,
        &[
            ("0b2", "'0b2' is not a number"),
            ("0x-1", "'0x-1' is not a number"),
            ("\"\\u{110000}\"", "the text has an unknown escape sequence"),
            ("\"\\u{0000041}\"", "the text has an unknown escape sequence"),
            ("\"\\u41\"", "the text has an unknown escape sequence"),
            ("\"\"\"\n  a\n b\n  \"\"\"", "a line of the text begins before its closing quotes"),
            ("\"\"\"\n  a\n x\"\"\"", "the quotes of a text of several lines must be on lines of their own"),
            ("#inf", "'#inf' is not a finite number, #true, #false or #null"),
        ],
    );
}

#[test]
fn singular_and_plural_nodes_of_kdl() {
    let text = "name \"x\"\njob \"j\" {\n  command \"d\"\n  label \"a\"\n  labels \"b\" \"c\"\n  output_file \"o\"\n}\nfile \"o\" { path \"p\"; }\n";
    let spec = spec(text, Format::Kdl);
    assert_eq!(
        (spec.jobs[0].labels.clone(), spec.jobs[0].output_files.clone()),
        (["a", "b", "c"].map(str::to_owned).to_vec(), Some(vec!["o".to_owned()]))
    );
}
