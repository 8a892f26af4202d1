//! Parses the tokens of JSON5: blanks, names, numbers, quoted texts.

use serde_json::Number;

/// The reason why a quoted text cannot be read, and the offset.
pub(super) struct UnreadableText {
    pub offset: usize,
    pub message: &'static str,
}

pub(super) fn is_blank(letter: char) -> bool {
    letter.is_whitespace() || letter == '\u{feff}'
}

pub(super) fn starts_name(letter: char) -> bool {
    letter.is_alphabetic() || letter == '_' || letter == '$'
}

pub(super) fn continues_name(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_' || letter == '$'
}

/// Parses a number of JSON5; none if it is not finite.
pub(super) fn number(text: &str) -> Option<Number> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if let Some(hexadecimal) = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        let value = if hexadecimal.starts_with(['+', '-']) { None } else { i64::from_str_radix(hexadecimal, 16).ok() };
        return value.map(|value| Number::from(if negative { -value } else { value }));
    }
    let first = digits.bytes().next()?;
    let leading_zero = digits.len() > 1 && first == b'0' && digits.as_bytes().get(1).is_some_and(u8::is_ascii_digit);
    if leading_zero || !(first.is_ascii_digit() || first == b'.') {
        return None;
    }
    finite(negative, digits)
}

/// Returns a decimal number: an integer if it fits, else a float.
pub(crate) fn finite(negative: bool, digits: &str) -> Option<Number> {
    if digits.bytes().all(|byte| byte.is_ascii_digit())
        && let Ok(value) = digits.parse::<u64>()
    {
        return match (negative, i64::try_from(value)) {
            (false, _) => Some(Number::from(value)),
            (true, Ok(value)) => Some(Number::from(-value)),
            (true, Err(_)) if value == i64::MIN.unsigned_abs() => Some(Number::from(i64::MIN)),
            (true, Err(_)) => Number::from_f64(-(value as f64)),
        };
    }
    let numeric = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-');
    if !digits.bytes().all(numeric) {
        return None;
    }
    let value: f64 = digits.parse().ok()?;
    Number::from_f64(if negative { -value } else { value })
}

/// Returns the text up to the closing quote, and its length in bytes with the quote.
pub(super) fn unquote(rest: &str, quote: u8) -> Result<(String, usize), UnreadableText> {
    let unclosed = UnreadableText { offset: rest.len(), message: "the text is never closed" };
    let mut text = String::new();
    let mut at = 0;
    while let Some(tail) = rest.as_bytes().get(at..) {
        let Some(stop) = tail.iter().position(|byte| *byte == quote || matches!(byte, b'\\' | b'\n' | b'\r')) else {
            return Err(unclosed);
        };
        text.push_str(rest.get(at..at + stop).unwrap_or_default());
        at += stop;
        match rest.as_bytes().get(at) {
            Some(b'\\') => at += escape(rest, at, &mut text)?,
            Some(byte) if *byte == quote => return Ok((text, at + 1)),
            _ => return Err(UnreadableText { offset: at, message: "a line ends inside a text; write \\n" }),
        }
    }
    Err(unclosed)
}

/// Reads one escape sequence and returns its length in bytes.
fn escape(rest: &str, at: usize, text: &mut String) -> Result<usize, UnreadableText> {
    let wrong = UnreadableText { offset: at, message: "not an escape sequence" };
    let tail = rest.get(at + 1..).unwrap_or_default();
    let Some(letter) = tail.chars().next() else { return Err(UnreadableText { offset: rest.len(), ..wrong }) };
    let (character, length) = match letter {
        'n' => ('\n', 1),
        't' => ('\t', 1),
        'r' => ('\r', 1),
        'b' => ('\u{8}', 1),
        'f' => ('\u{c}', 1),
        'v' => ('\u{b}', 1),
        '0' => ('\0', 1),
        'x' => (hexadecimal(tail, 1, 3).and_then(char::from_u32).ok_or(wrong)?, 3),
        'u' => unicode(tail).ok_or(wrong)?,
        '1'..='9' => return Err(wrong),
        '\r' => return Ok(if tail.starts_with("\r\n") { 3 } else { 2 }),
        '\n' | '\u{2028}' | '\u{2029}' => return Ok(1 + letter.len_utf8()),
        other => (other, other.len_utf8()),
    };
    text.push(character);
    Ok(1 + length)
}

/// Reads `uXXXX`, or a surrogate pair of two, and returns the number of bytes.
fn unicode(tail: &str) -> Option<(char, usize)> {
    let first = hexadecimal(tail, 1, 5)?;
    if !(0xD800..0xDC00).contains(&first) {
        return char::from_u32(first).map(|character| (character, 5));
    }
    if tail.get(5..7)? != "\\u" {
        return None;
    }
    let second = hexadecimal(tail, 7, 11).filter(|code| (0xDC00..0xE000).contains(code))?;
    char::from_u32(0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00)).map(|character| (character, 11))
}

fn hexadecimal(tail: &str, from: usize, to: usize) -> Option<u32> {
    let digits = tail.get(from..to)?;
    if digits.bytes().all(|byte| byte.is_ascii_hexdigit()) { u32::from_str_radix(digits, 16).ok() } else { None }
}
