//! Parses texts of KDL: quoted, raw, and over several lines.

use crate::load::SyntaxError;
use crate::load::cursor::Cursor;

/// Returns whether a character may be part of an unquoted word.
pub(super) fn is_bare(letter: char) -> bool {
    !letter.is_whitespace()
        && !letter.is_control()
        && !matches!(letter, '\\' | '/' | '(' | ')' | '{' | '}' | ';' | '[' | ']' | '"' | '#' | '=')
}

pub(super) fn is_newline(letter: char) -> bool {
    matches!(letter, '\n' | '\r' | '\u{85}' | '\u{b}' | '\u{c}' | '\u{2028}' | '\u{2029}')
}

/// Reads a text in quotes, if one begins here.
pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<Option<String>, SyntaxError> {
    let rest = cursor.rest();
    // KDL 1 puts an `r` before the hashes, and there may be no hash at all.
    let marked = rest.strip_prefix('r').filter(|tail| tail.trim_start_matches('#').starts_with('"'));
    let tail = marked.unwrap_or(rest);
    let hashes = tail.len() - tail.trim_start_matches('#').len();
    let raw = marked.is_some() || hashes > 0;
    let Some(quoted) = tail.get(hashes..).filter(|quoted| quoted.starts_with('"')) else { return Ok(None) };
    let lines = marked.is_none() && quoted.starts_with("\"\"\"");
    let quotes = if lines { "\"\"\"" } else { "\"" };
    let open = cursor.here();
    cursor.skip(rest.len() - quoted.len() + quotes.len());
    let closing = format!("{quotes}{}", "#".repeat(hashes));
    let Some(length) = length(cursor.rest(), &closing, raw) else {
        return Err(SyntaxError::new(open, "the text is never closed"));
    };
    let content = cursor.rest().get(..length).unwrap_or_default();
    let text = match (lines, raw) {
        (true, true) => dedent(content),
        (true, false) => dedent(content).and_then(|text| unescape(&text)),
        (false, true) => Ok(content.to_owned()),
        (false, false) => unescape(content),
    };
    let text = text.map_err(|message| SyntaxError::new(open, message))?;
    cursor.skip(length + closing.len());
    Ok(Some(text))
}

/// Returns the length in bytes of a text up to its closing quotes; none if they are missing.
fn length(rest: &str, closing: &str, raw: bool) -> Option<usize> {
    let mut at = 0;
    loop {
        let tail = rest.get(at..)?;
        let end = tail.find(closing)?;
        if raw {
            return Some(at + end);
        }
        match tail.get(..end)?.find('\\') {
            None => return Some(at + end),
            Some(escape) => at += escape + 1 + tail.get(escape + 1..)?.chars().next()?.len_utf8(),
        }
    }
}

fn unescape(content: &str) -> Result<String, &'static str> {
    let wrong = "the text has an unknown escape sequence";
    let mut text = String::with_capacity(content.len());
    let mut rest = content;
    while let Some((before, after)) = rest.split_once('\\') {
        text.push_str(before);
        let letter = after.chars().next().ok_or(wrong)?;
        rest = after.get(letter.len_utf8()..).unwrap_or_default();
        match letter {
            'n' => text.push('\n'),
            'r' => text.push('\r'),
            't' => text.push('\t'),
            'b' => text.push('\u{8}'),
            'f' => text.push('\u{c}'),
            's' => text.push(' '),
            '\\' | '"' | '/' => text.push(letter),
            'u' => {
                let (code, tail) = rest.strip_prefix('{').and_then(|tail| tail.split_once('}')).ok_or(wrong)?;
                let code =
                    Some(code).filter(|code| code.len() <= 6).and_then(|code| u32::from_str_radix(code, 16).ok());
                text.push(code.and_then(char::from_u32).ok_or(wrong)?);
                rest = tail;
            }
            letter if letter.is_whitespace() => rest = rest.trim_start(),
            _ => return Err(wrong),
        }
    }
    text.push_str(rest);
    Ok(text)
}

/// Removes the indentation of the closing quotes from the lines between the quotes.
fn dedent(content: &str) -> Result<String, &'static str> {
    let content = content.replace("\r\n", "\n");
    let mut lines: Vec<&str> = content.split(is_newline).collect();
    let margin = lines.pop().unwrap_or_default();
    if lines.is_empty() || !lines.remove(0).is_empty() || !margin.chars().all(char::is_whitespace) {
        return Err("the quotes of a text of several lines must be on lines of their own");
    }
    let line = |line: &&str| match line.strip_prefix(margin) {
        Some(text) if !line.trim().is_empty() => Ok(text.to_owned()),
        _ if line.trim().is_empty() => Ok(String::new()),
        _ => Err("a line of the text begins before its closing quotes"),
    };
    let lines: Result<Vec<String>, _> = lines.iter().map(line).collect();
    lines.map(|lines| lines.join("\n"))
}
