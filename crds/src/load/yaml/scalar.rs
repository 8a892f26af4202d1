//! Resolves YAML scalars by the core schema of YAML 1.2.

use saphyr_parser::Tag;
use serde_json::Number;

use crate::load::json::token::finite;
use crate::load::tree::NodeKind;

/// Resolves a scalar; the error is a message.
pub(crate) fn resolve(text: &str, plain: bool, tag: Option<&Tag>) -> Result<NodeKind, String> {
    let Some(tag) = tag else {
        return if plain { resolve_plain(text) } else { Ok(NodeKind::Text(text.to_owned())) };
    };
    if !tag.is_yaml_core_schema() {
        return if tag.handle.is_empty() && tag.suffix == "!" {
            Ok(NodeKind::Text(text.to_owned()))
        } else {
            Err(unknown_tag(tag))
        };
    }
    let resolved = match tag.suffix.as_str() {
        "str" => return Ok(NodeKind::Text(text.to_owned())),
        "null" => null(text),
        "bool" => boolean(text),
        "int" => integer(text).map(NodeKind::Number),
        "float" => integer(text).or_else(|| float(text)).map(NodeKind::Number),
        _ => return Err(unknown_tag(tag)),
    };
    resolved.ok_or_else(|| format!("{} is not a !!{}", super::shown(text), tag.suffix))
}

pub(crate) fn unknown_tag(tag: &Tag) -> String {
    format!("the tag `{}{}` has no meaning here", tag.handle, tag.suffix)
}

fn resolve_plain(text: &str) -> Result<NodeKind, String> {
    let first = text.bytes().next().unwrap_or(b'~');
    if let Some(kind) = null(text).or_else(|| boolean(text)) {
        return Ok(kind);
    }
    if !(first.is_ascii_digit() || matches!(first, b'+' | b'-' | b'.')) {
        return Ok(NodeKind::Text(text.to_owned()));
    }
    if matches!(text.trim_start_matches(['+', '-']), ".inf" | ".Inf" | ".INF")
        || matches!(text, ".nan" | ".NaN" | ".NAN")
    {
        return Err(format!("{text} is not a finite number; put it in quotes if it is a text"));
    }
    let number = integer(text).or_else(|| float(text));
    Ok(number.map_or_else(|| NodeKind::Text(text.to_owned()), NodeKind::Number))
}

fn null(text: &str) -> Option<NodeKind> {
    matches!(text, "" | "~" | "null" | "Null" | "NULL").then_some(NodeKind::Null)
}

fn boolean(text: &str) -> Option<NodeKind> {
    match text {
        "true" | "True" | "TRUE" => Some(NodeKind::Bool(true)),
        "false" | "False" | "FALSE" => Some(NodeKind::Bool(false)),
        _ => None,
    }
}

fn integer(text: &str) -> Option<Number> {
    let radix = |digits: &str, radix: u32| {
        if digits.starts_with(['+', '-']) { None } else { u64::from_str_radix(digits, radix).ok().map(Number::from) }
    };
    if let Some(digits) = text.strip_prefix("0x") {
        return radix(digits, 16);
    }
    if let Some(digits) = text.strip_prefix("0o") {
        return radix(digits, 8);
    }
    let (negative, digits) = signed(text);
    let decimal = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if decimal { finite(negative, digits) } else { None }
}

/// Parses `[-+]? (\. [0-9]+ | [0-9]+ (\. [0-9]*)?) ([eE] [-+]? [0-9]+)?`.
fn float(text: &str) -> Option<Number> {
    let (negative, digits) = signed(text);
    let (mantissa, exponent) = match digits.find(['e', 'E']) {
        Some(at) => (digits.get(..at)?, Some(digits.get(at + 1..)?)),
        None => (digits, None),
    };
    let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mantissa_is_number = all_digits(whole) && all_digits(fraction) && !(whole.is_empty() && fraction.is_empty());
    let exponent_is_number = exponent.is_none_or(|part| {
        let (_, part) = signed(part);
        !part.is_empty() && all_digits(part)
    });
    if mantissa_is_number && exponent_is_number { finite(negative, digits) } else { None }
}

fn signed(text: &str) -> (bool, &str) {
    match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    }
}
