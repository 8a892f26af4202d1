//! Parses and prints parameter values.
//!
//! The forms, their order of precedence and the format of numbers are those of Torc 1.0. So the same document gives the
//! same names and commands.

use std::fmt::Write;

use serde_json::{Number, Value};

/// The tolerance at the end of a range of floats, because repeated addition accumulates rounding errors.
const FLOAT_TOLERANCE: f64 = 1e-10;
/// The largest padding and number of decimals. A larger number is probably a typing error.
const WIDEST_FORMAT: usize = 1_000;

/// One value of a parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum Scalar {
    Integer(i64),
    Float(f64),
    Text(String),
}

/// The format of a value. A format that does not suit the value has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueFormat {
    Plain,
    ZeroPadded(usize),
    Decimals(usize),
}

/// The reason why a parameter has no values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    #[error("`{0}` is not a range: a range is `start:end` or `start:end:step`")]
    RangeParts(String),
    #[error("`{0}` is not a range: start, end and step must be numbers")]
    RangeNumbers(String),
    #[error("the step of `{0}` is zero, so the range never ends")]
    StepZero(String),
    #[error("more than {0} values, which is the limit")]
    TooMany(usize),
    #[error("the file `{0}` has not been read into the document")]
    FileNotRead(String),
    #[error("`@` must be followed by the name of a file")]
    FileName,
    #[error("a parameter must be a range, a list, a file or a single value, not a map")]
    Map,
}

impl Scalar {
    /// Returns the value of a word: an integer or a float if possible, otherwise text.
    pub fn infer(word: &str) -> Self {
        if let Ok(integer) = word.parse::<i64>() {
            Self::Integer(integer)
        } else if let Ok(float) = word.parse::<f64>() {
            Self::Float(float)
        } else {
            Self::Text(word.to_owned())
        }
    }

    /// Returns the value of an element of a list or table. Its type is known, so text is never read as a number.
    pub fn of_json(value: &Value) -> Self {
        match value {
            Value::String(text) => Self::Text(text.clone()),
            Value::Number(number) => match (number.as_i64(), number.as_f64()) {
                (Some(integer), _) => Self::Integer(integer),
                (None, Some(float)) => Self::Float(float),
                (None, None) => Self::Text(number.to_string()),
            },
            other => Self::Text(other.to_string()),
        }
    }

    /// Returns the value as JSON. Numbers that JSON does not have become text.
    pub fn into_json(self) -> Value {
        match self {
            Self::Integer(integer) => Value::from(integer),
            Self::Float(float) => {
                Number::from_f64(float).map_or_else(|| Value::String(float.to_string()), Value::Number)
            }
            Self::Text(text) => Value::String(text),
        }
    }

    /// Appends the value to `out`.
    pub fn print(&self, format: ValueFormat, out: &mut String) {
        // Writing to a string cannot fail.
        let _ = match (self, format) {
            (Self::Integer(integer), ValueFormat::ZeroPadded(width)) => write!(out, "{integer:0width$}"),
            (Self::Float(float), ValueFormat::Decimals(decimals)) => write!(out, "{float:.decimals$}"),
            (Self::Integer(integer), _) => write!(out, "{integer}"),
            (Self::Float(float), _) => write!(out, "{float}"),
            (Self::Text(text), _) => out.write_str(text),
        };
    }
}

impl ValueFormat {
    /// Parses `03d` or `.2f`. Any other format is plain.
    pub fn parse(spec: &str) -> Self {
        let number = |digits: &str| digits.parse::<usize>().ok().filter(|&n| n <= WIDEST_FORMAT);
        let padded = spec.strip_suffix('d').and_then(|s| s.strip_prefix('0')).and_then(number);
        let decimals = spec.strip_suffix('f').and_then(|s| s.strip_prefix('.')).and_then(number);
        match (padded, decimals) {
            (Some(width), _) => Self::ZeroPadded(width),
            (None, Some(decimals)) => Self::Decimals(decimals),
            (None, None) => Self::Plain,
        }
    }
}

/// Returns the values of a parameter. More than `most` values are an error.
pub fn parse(value: &Value, most: usize) -> Result<Vec<Scalar>, ValueError> {
    let values = match value {
        Value::Array(elements) => {
            if elements.len() > most {
                return Err(ValueError::TooMany(most));
            }
            elements.iter().map(Scalar::of_json).collect()
        }
        Value::String(text) => parse_text(text.trim(), most)?,
        Value::Object(_) => return Err(ValueError::Map),
        other => vec![Scalar::of_json(other)],
    };
    if values.len() > most { Err(ValueError::TooMany(most)) } else { Ok(values) }
}

/// Returns the file name of an `@file` value.
pub fn file_name(value: &Value) -> Option<&str> {
    value.as_str()?.trim().strip_prefix('@').map(str::trim)
}

fn parse_text(text: &str, most: usize) -> Result<Vec<Scalar>, ValueError> {
    if let Some(file) = text.strip_prefix('@') {
        let file = file.trim();
        return Err(if file.is_empty() { ValueError::FileName } else { ValueError::FileNotRead(file.to_owned()) });
    }
    let text = without_braces(text);
    if text.starts_with('[') && text.ends_with(']') {
        return Ok(parse_list(text));
    }
    if text.contains(':') {
        return parse_range(text, most);
    }
    Ok(vec![Scalar::infer(text)])
}

/// Removes the braces of `{1:100}`, which users write by analogy with tokens. A text with a comma stays, because it has
/// another meaning.
fn without_braces(text: &str) -> &str {
    match text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
        Some(inner) if !text.contains(',') => inner.trim(),
        _ => text,
    }
}

fn parse_list(text: &str) -> Vec<Scalar> {
    let inner = text.trim_start_matches('[').trim_end_matches(']').trim();
    if inner.is_empty() {
        return Vec::new();
    }
    split_outside_quotes(inner).into_iter().map(|item| list_item(item.trim())).collect()
}

fn list_item(item: &str) -> Scalar {
    match Scalar::infer(item) {
        Scalar::Text(text) => Scalar::Text(text.trim_matches('\'').trim_matches('"').to_owned()),
        number => number,
    }
}

/// Splits at commas outside of quoted items. A quote opens only at the start of an item, so an apostrophe inside a word
/// is a letter.
fn split_outside_quotes(text: &str) -> Vec<&str> {
    let mut items = Vec::new();
    let mut start = 0;
    let mut quote = None;
    let mut at_start = true;
    for (position, character) in text.char_indices() {
        match (quote, character) {
            (None, ',') => {
                items.push(&text[start..position]);
                start = position + 1;
                at_start = true;
                continue;
            }
            (None, '\'' | '"') if at_start && closes_later(&text[position + 1..], character) => quote = Some(character),
            (Some(open), c) if c == open => quote = None,
            _ => {}
        }
        at_start = at_start && character.is_whitespace();
    }
    items.push(&text[start..]);
    items
}

/// Returns whether the quote is closed at the end of an item.
fn closes_later(rest: &str, quote: char) -> bool {
    rest.match_indices(quote).any(|(position, _)| {
        let after = rest[position + 1..].trim_start();
        after.is_empty() || after.starts_with(',')
    })
}

fn parse_range(text: &str, most: usize) -> Result<Vec<Scalar>, ValueError> {
    let parts: Vec<&str> = text.split(':').map(str::trim).collect();
    let (start, end, step) = match parts.as_slice() {
        [start, end] => (*start, *end, ""),
        [start, end, step] => (*start, *end, *step),
        _ => return Err(ValueError::RangeParts(text.to_owned())),
    };
    let not_numbers = || ValueError::RangeNumbers(text.to_owned());
    if let (Ok(start), Ok(end)) = (start.parse::<i64>(), end.parse::<i64>()) {
        let step = if step.is_empty() { 1 } else { step.parse::<i64>().map_err(|_| not_numbers())? };
        return integers(start, end, step, most, text);
    }
    let (Ok(start), Ok(end)) = (start.parse::<f64>(), end.parse::<f64>()) else {
        return Err(not_numbers());
    };
    let step = if step.is_empty() { 1.0 } else { step.parse::<f64>().map_err(|_| not_numbers())? };
    floats(start, end, step, most, text)
}

fn integers(start: i64, end: i64, step: i64, most: usize, text: &str) -> Result<Vec<Scalar>, ValueError> {
    if step == 0 {
        return Err(ValueError::StepZero(text.to_owned()));
    }
    let span = i128::from(end) - i128::from(start);
    let steps = span / i128::from(step);
    if span != 0 && (span > 0) != (step > 0) {
        return Ok(Vec::new());
    }
    if steps >= i128::try_from(most).unwrap_or(i128::MAX) {
        return Err(ValueError::TooMany(most));
    }
    let values = (0..=steps).filter_map(|n| i64::try_from(i128::from(start) + n * i128::from(step)).ok());
    Ok(values.map(Scalar::Integer).collect())
}

/// Returns a range of floats. It adds the step repeatedly instead of multiplying, because the rounding shows in names
/// and must be the same in every version.
fn floats(start: f64, end: f64, step: f64, most: usize, text: &str) -> Result<Vec<Scalar>, ValueError> {
    if step == 0.0 {
        return Err(ValueError::StepZero(text.to_owned()));
    }
    let mut values = Vec::new();
    let mut current = start;
    while if step > 0.0 { current <= end + FLOAT_TOLERANCE } else { current >= end - FLOAT_TOLERANCE } {
        if values.len() == most {
            return Err(ValueError::TooMany(most));
        }
        values.push(Scalar::Float(current));
        current += step;
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn printed(value: &Value) -> Vec<String> {
        let print = |scalar: &Scalar| {
            let mut out = String::new();
            scalar.print(ValueFormat::Plain, &mut out);
            out
        };
        parse(value, 1_000).unwrap().iter().map(print).collect()
    }

    #[test]
    fn every_form_gives_its_values() {
        let table: &[(Value, &[&str])] = &[
            (json!("1:5"), &["1", "2", "3", "4", "5"]),
            (json!(" 0:10:4 "), &["0", "4", "8"]),
            (json!("5:1:-2"), &["5", "3", "1"]),
            (json!("5:1"), &[]),
            (json!("1:5:-1"), &[]),
            (json!("3:3"), &["3"]),
            (json!("{1:3}"), &["1", "2", "3"]),
            (json!("{ 1:2 }"), &["1", "2"]),
            (json!("0.0:1.0:0.5"), &["0", "0.5", "1"]),
            (json!("0.1:0.5:0.1"), &["0.1", "0.2", "0.30000000000000004", "0.4", "0.5"]),
            (json!("1.0:0.0:-0.5"), &["1", "0.5", "0"]),
            (json!("0.5:2"), &["0.5", "1.5"]),
            (json!("[1,5,10]"), &["1", "5", "10"]),
            (json!("[0.001, 1e-4, 1.0]"), &["0.001", "0.0001", "1"]),
            (json!("['train','test']"), &["train", "test"]),
            (json!("[\"a\", b, 'c']"), &["a", "b", "c"]),
            (json!("['a,b', 'c']"), &["a,b", "c"]),
            (json!("[don't, isn't]"), &["don't", "isn't"]),
            (json!("['007', 007]"), &["007", "7"]),
            (json!("[]"), &[]),
            (json!("hello"), &["hello"]),
            (json!("42"), &["42"]),
            (json!(42), &["42"]),
            (json!(true), &["true"]),
            (json!([1, 2.5, "x", "007", false]), &["1", "2.5", "x", "007", "false"]),
            (json!([0.0001, 0.001, 0.01]), &["0.0001", "0.001", "0.01"]),
            (json!([]), &[]),
        ];
        for (value, expected) in table {
            assert_eq!(&printed(value), expected, "{value}");
        }
    }

    #[test]
    fn bad_forms_are_errors() {
        let table = [
            (json!("1:2:3:4"), ValueError::RangeParts("1:2:3:4".into())),
            (json!("a:b"), ValueError::RangeNumbers("a:b".into())),
            (json!("1:2:x"), ValueError::RangeNumbers("1:2:x".into())),
            (json!("1:2:0"), ValueError::StepZero("1:2:0".into())),
            (json!("1.5:2:0.0"), ValueError::StepZero("1.5:2:0.0".into())),
            (json!("@runs.txt"), ValueError::FileNotRead("runs.txt".into())),
            (json!("@ "), ValueError::FileName),
            (json!({"a": 1}), ValueError::Map),
            (json!("1:9223372036854775807"), ValueError::TooMany(1_000)),
            (json!("-9223372036854775808:9223372036854775807:9"), ValueError::TooMany(1_000)),
            (json!("0.0:inf"), ValueError::TooMany(1_000)),
            (json!("1.5:2:1e-300"), ValueError::TooMany(1_000)),
        ];
        for (value, expected) in table {
            assert_eq!(parse(&value, 1_000), Err(expected), "{value}");
        }
    }

    #[test]
    fn formats_apply_to_what_they_are_for() {
        let table = [
            (Scalar::Integer(7), "03d", "007"),
            (Scalar::Integer(-7), "03d", "-07"),
            (Scalar::Integer(1234), "03d", "1234"),
            (Scalar::Integer(7), ".2f", "7"),
            (Scalar::Integer(7), "d", "7"),
            (Scalar::Integer(7), "3d", "7"),
            (Scalar::Integer(7), "099999999d", "7"),
            (Scalar::Float(0.001), ".4f", "0.0010"),
            (Scalar::Float(0.30000000000000004), ".1f", "0.3"),
            (Scalar::Float(2.0), "03d", "2"),
            (Scalar::Float(2.0), ".99999f", "2"),
            (Scalar::Text("x".into()), "03d", "x"),
        ];
        for (scalar, spec, expected) in table {
            let mut out = String::new();
            scalar.print(ValueFormat::parse(spec), &mut out);
            assert_eq!(out, expected, "{scalar:?} as {spec}");
        }
    }

    #[test]
    fn as_many_values_as_the_limit_are_fine() {
        let forms = |count: i64| {
            let list: Vec<i64> = (1..=count).collect();
            [
                json!(format!("1:{count}")),
                json!(format!("{count}:1:-1")),
                json!(format!("1.0:{count}.0")),
                json!(format!("{count}.0:1.0:-1.0")),
                json!(list),
                json!(format!("{list:?}")),
            ]
        };
        for (count, expected) in [(2, Ok(2)), (3, Ok(3)), (4, Err(ValueError::TooMany(3)))] {
            for form in forms(count) {
                assert_eq!(parse(&form, 3).map(|values| values.len()), expected, "{form}");
            }
        }
    }

    #[test]
    fn ends_of_ranges_and_odd_texts() {
        let table: &[(Value, &[&str])] = &[
            (json!("3:3:-1"), &["3"]),
            (json!("1:6:2"), &["1", "3", "5"]),
            (json!("6:1:-2"), &["6", "4", "2"]),
            (json!("-1:1"), &["-1", "0", "1"]),
            (json!("0.0:0.3:0.1"), &["0", "0.1", "0.2", "0.30000000000000004"]),
            (json!("0.3:0.1:-0.1"), &["0.3", "0.19999999999999998", "0.09999999999999998"]),
            (json!("1.0:0.0"), &[]),
            (json!("0.0:1.0:-0.5"), &[]),
            (json!("1:2.5"), &["1", "2"]),
            (json!("{1,2}"), &["{1,2}"]),
            (json!("{x}"), &["x"]),
            (json!("{x"), &["{x"]),
            (json!("[1"), &["[1"]),
            (json!("['a, b]"), &["a", "b"]),
            (json!("[ 'a,b' , \"c,d\",'e']"), &["a,b", "c,d", "e"]),
            (json!("[1:2, x]"), &["1:2", "x"]),
            (json!("9223372036854775807:9223372036854775807"), &["9223372036854775807"]),
        ];
        for (value, expected) in table {
            assert_eq!(&printed(value), expected, "{value}");
        }
    }

    #[test]
    fn the_widest_formats() {
        let width = |spec: &str, scalar: Scalar| {
            let mut out = String::new();
            scalar.print(ValueFormat::parse(spec), &mut out);
            out.len()
        };
        for (spec, expected) in [("0999d", 999), ("01000d", 1_000), ("01001d", 1)] {
            assert_eq!(width(spec, Scalar::Integer(7)), expected, "{spec}");
        }
        for (spec, expected) in [(".999f", 1_001), (".1000f", 1_002), (".1001f", 1)] {
            assert_eq!(width(spec, Scalar::Float(2.0)), expected, "{spec}");
        }
        assert_eq!(file_name(&json!(" @ a b.txt ")), Some("a b.txt"));
        assert_eq!((file_name(&json!("a@b")), file_name(&json!(1))), (None, None));
    }
}
