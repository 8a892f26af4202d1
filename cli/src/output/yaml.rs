//! Formats JSON values as YAML.
//!
//! A string is unquoted only if every version of YAML reads it as a string.

use std::fmt::Write as _;

use serde_json::Value;

/// Formats a value as a document.
pub fn to_yaml(value: &Value) -> String {
    let mut text = String::new();
    match value {
        Value::Object(map) if !map.is_empty() => mapping(&mut text, map, 0),
        Value::Array(items) if !items.is_empty() => sequence(&mut text, items, 0),
        other => {
            scalar(&mut text, other, 0);
            text.push('\n');
        }
    }
    text
}

fn mapping(text: &mut String, map: &serde_json::Map<String, Value>, depth: usize) {
    for (index, (key, value)) in map.iter().enumerate() {
        if index > 0 {
            indent(text, depth);
        }
        string(text, key);
        text.push(':');
        entry(text, value, depth);
    }
}

fn entry(text: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            text.push('\n');
            indent(text, depth + 1);
            mapping(text, map, depth + 1);
        }
        Value::Array(items) if !items.is_empty() => {
            text.push('\n');
            indent(text, depth);
            sequence(text, items, depth);
        }
        other => {
            text.push(' ');
            scalar(text, other, depth + 1);
            text.push('\n');
        }
    }
}

fn sequence(text: &mut String, items: &[Value], depth: usize) {
    for (index, value) in items.iter().enumerate() {
        if index > 0 {
            indent(text, depth);
        }
        text.push_str("- ");
        match value {
            Value::Object(map) if !map.is_empty() => mapping(text, map, depth + 1),
            Value::Array(inner) if !inner.is_empty() => sequence(text, inner, depth + 1),
            other => {
                scalar(text, other, depth + 1);
                text.push('\n');
            }
        }
    }
}

fn scalar(text: &mut String, value: &Value, depth: usize) {
    match value {
        Value::String(content) if is_block(content) => block(text, content, depth),
        Value::String(content) => string(text, content),
        Value::Object(_) => text.push_str("{}"),
        Value::Array(_) => text.push_str("[]"),
        other => {
            let _ = write!(text, "{other}");
        }
    }
}

fn string(text: &mut String, content: &str) {
    if is_plain(content) {
        text.push_str(content);
    } else {
        let _ = write!(text, "{}", Value::from(content));
    }
}

/// Returns whether a literal block represents a text of several lines exactly.
fn is_block(content: &str) -> bool {
    content.contains('\n')
        && content.ends_with('\n')
        && !content.ends_with("\n\n")
        && !content.starts_with([' ', '\n', '\t'])
        && content
            .chars()
            .all(|c| c == '\n' || (!c.is_control() && c != '\u{feff}' && c != '\u{2028}' && c != '\u{2029}'))
}

fn block(text: &mut String, content: &str, depth: usize) {
    text.push('|');
    for line in content.lines() {
        text.push('\n');
        if !line.is_empty() {
            indent(text, depth);
            text.push_str(line);
        }
    }
}

fn is_plain(content: &str) -> bool {
    let first_is_safe = content.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == '/');
    first_is_safe
        && !content.ends_with([' ', ':'])
        && !content.contains(": ")
        && !content.contains(" #")
        && content.chars().all(|c| !c.is_control() && (c.is_ascii() || c.is_alphanumeric()))
        && !is_keyword(content)
}

fn is_keyword(content: &str) -> bool {
    const KEYWORDS: [&str; 10] = ["null", "true", "false", "yes", "no", "on", "off", "y", "n", "nan"];
    KEYWORDS.contains(&content.to_ascii_lowercase().as_str())
}

fn indent(text: &mut String, depth: usize) {
    for _ in 0..depth {
        text.push_str("  ");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nested_values_are_indented() {
        let value = json!({
            "a": { "b": [1, { "c": true, "d": [] }, [2, 3]], "e": {} },
            "items": ["x", null],
        });
        let expected = "a:\n  b:\n  - 1\n  - c: true\n    d: []\n  - - 2\n    - 3\n  e: {}\nitems:\n- x\n- null\n";
        assert_eq!(to_yaml(&value), expected);
    }

    #[test]
    fn ambiguous_strings_are_quoted() {
        for (content, expected) in [
            ("plain words", "plain words"),
            ("/a/b.txt", "/a/b.txt"),
            ("", "\"\""),
            ("yes", "\"yes\""),
            ("No", "\"No\""),
            ("12", "\"12\""),
            ("1:30", "\"1:30\""),
            ("- x", "\"- x\""),
            ("a: b", "\"a: b\""),
            ("a #b", "\"a #b\""),
            ("end:", "\"end:\""),
            ("{i}", "\"{i}\""),
            ("tab\there", "\"tab\\there\""),
        ] {
            assert_eq!(to_yaml(&json!(content)), format!("{expected}\n"));
        }
    }

    #[test]
    fn text_of_several_lines_is_a_block() {
        let value = json!({ "jobs": [{ "command": "set -e\n\nrun it\n", "name": "a" }] });
        assert_eq!(to_yaml(&value), "jobs:\n- command: |\n    set -e\n\n    run it\n  name: a\n");
        assert_eq!(to_yaml(&json!("no end\nhere")), "\"no end\\nhere\"\n");
    }
}
