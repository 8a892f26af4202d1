//! Analyzes regular expressions to find the names that they may match.
//!
//! A candidate set may be too large, but never too small.

/// The names that an expression may match.
#[derive(Debug, PartialEq, Eq)]
pub enum Candidates {
    /// Exactly this name, which matches.
    Exactly(String),
    /// Exactly the names with this prefix, which all match.
    StartingWith(String),
    /// Some of the names with this prefix: those whose rest matches `tail` from its start.
    AmongStartingWith { prefix: String, tail: String },
    /// Exactly the names that contain this text, which all match.
    Containing(String),
    /// Some of the names that contain this text.
    AmongContaining(String),
    /// Some of all names, without a restriction.
    Any,
}

/// Returns the candidates that follow from the literal parts of an expression.
pub fn candidates(pattern: &str) -> Candidates {
    let Some(pieces) = pieces(pattern) else { return Candidates::Any };
    match pieces.as_slice() {
        [PatternPart::Start, PatternPart::Literal { text, .. }, PatternPart::End] => Candidates::Exactly(text.clone()),
        [PatternPart::Start, PatternPart::Literal { text, .. }]
        | [PatternPart::Start, PatternPart::Literal { text, .. }, PatternPart::Anything] => {
            Candidates::StartingWith(text.clone())
        }
        [PatternPart::Start, PatternPart::Literal { text, end }, ..] if !has_lookbehind(&pattern[*end..]) => {
            Candidates::AmongStartingWith { prefix: text.clone(), tail: format!("^(?:{})", &pattern[*end..]) }
        }
        [PatternPart::Literal { text, .. }]
        | [PatternPart::Literal { text, .. }, PatternPart::Anything]
        | [PatternPart::Anything, PatternPart::Literal { text, .. }]
        | [PatternPart::Anything, PatternPart::Literal { text, .. }, PatternPart::Anything] => {
            Candidates::Containing(text.clone())
        }
        pieces => longest(pieces).map_or(Candidates::Any, Candidates::AmongContaining),
    }
}

/// Returns whether the rest of an expression depends on the text before it.
fn has_lookbehind(tail: &str) -> bool {
    tail.replace("[^", "[").contains('^') || tail.contains("\\b") || tail.contains("\\B")
}

fn longest(pieces: &[PatternPart]) -> Option<String> {
    let literals = pieces.iter().filter_map(|piece| match piece {
        PatternPart::Literal { text, .. } => Some(text),
        _ => None,
    });
    literals.max_by_key(|text| text.len()).cloned()
}

#[derive(Debug, PartialEq, Eq)]
enum PatternPart {
    Start,
    End,
    /// A literal text, and the offset of its end in the expression.
    Literal {
        text: String,
        end: usize,
    },
    /// Any text, as `.*` matches it.
    Anything,
    /// A part that is not analyzed further.
    Opaque,
}

/// Splits an expression into parts; `None` if it has alternatives at the top, flags, or a form that is not supported
/// here.
fn pieces(pattern: &str) -> Option<Vec<PatternPart>> {
    let mut pieces = Vec::new();
    let mut literal = String::new();
    let mut end = 0;
    let mut rest = pattern;
    while let Some(character) = rest.chars().next() {
        let (piece, length) = atom(rest, character)?;
        rest = &rest[length..];
        let quantified = quantifier(rest);
        rest = &rest[quantified..];
        let position = pattern.len() - rest.len();
        let piece = match piece {
            Atom::Letter(letter) if quantified == 0 => {
                literal.push(letter);
                end = position;
                continue;
            }
            Atom::Start if quantified == 0 => PatternPart::Start,
            Atom::End if quantified == 0 => PatternPart::End,
            Atom::Dot if quantified == 1 && pattern[..position].ends_with('*') => PatternPart::Anything,
            _ => PatternPart::Opaque,
        };
        flush(&mut pieces, &mut literal, end);
        pieces.push(piece);
    }
    flush(&mut pieces, &mut literal, end);
    Some(pieces)
}

fn flush(pieces: &mut Vec<PatternPart>, literal: &mut String, end: usize) {
    if !literal.is_empty() {
        pieces.push(PatternPart::Literal { text: std::mem::take(literal), end });
    }
}

enum Atom {
    Letter(char),
    Start,
    End,
    Dot,
    Opaque,
}

/// Returns the first element of `rest` and its length in bytes.
fn atom(rest: &str, character: char) -> Option<(Atom, usize)> {
    match character {
        '^' => Some((Atom::Start, 1)),
        '$' => Some((Atom::End, 1)),
        '.' => Some((Atom::Dot, 1)),
        '[' => Some((Atom::Opaque, class_length(rest)?)),
        '(' if rest.starts_with("(?") && !rest.starts_with("(?:") => None,
        '(' => Some((Atom::Opaque, group_length(rest)?)),
        '\\' => {
            let escaped = rest[1..].chars().next()?;
            if escaped.is_ascii_punctuation() && !matches!(escaped, '<' | '>') {
                Some((Atom::Letter(escaped), 2))
            } else if matches!(escaped, 'd' | 'D' | 'w' | 'W' | 's' | 'S') {
                Some((Atom::Opaque, 2))
            } else {
                None
            }
        }
        '|' | ')' | '*' | '+' | '?' | '{' | '}' | ']' => None,
        letter => Some((Atom::Letter(letter), letter.len_utf8())),
    }
}

/// Returns the length in bytes of the repetition at the start of `rest`; 0 for none.
fn quantifier(rest: &str) -> usize {
    let first = match rest.as_bytes().first() {
        Some(b'*' | b'+' | b'?') => 1,
        Some(b'{') => rest.find('}').map_or(0, |close| close + 1),
        _ => return 0,
    };
    first + rest[first..].bytes().take_while(|byte| matches!(byte, b'?' | b'*' | b'+')).count()
}

fn class_length(rest: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, character) in rest.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '[' => return None,
            // A bracket right after the opening one is a literal.
            ']' if !matches!(&rest[..at], "[" | "[^") => return Some(at + 1),
            _ => {}
        }
    }
    None
}

fn group_length(rest: &str) -> Option<usize> {
    let mut depth = 0usize;
    let mut at = 0;
    while let Some(character) = rest[at..].chars().next() {
        match character {
            '\\' => at += 1 + rest[at + 1..].chars().next()?.len_utf8(),
            '[' => at += class_length(&rest[at..])?,
            '(' if rest[at..].starts_with("(?") && !rest[at..].starts_with("(?:") => return None,
            '(' => {
                depth += 1;
                at += 1;
            }
            ')' => {
                depth = depth.checked_sub(1)?;
                at += 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            other => at += other.len_utf8(),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_found_where_they_must_be() {
        let own = str::to_owned;
        let among = |prefix: &str, tail: &str| Candidates::AmongStartingWith { prefix: own(prefix), tail: own(tail) };
        let table = [
            ("^job_7$", Candidates::Exactly(own("job_7"))),
            ("^job\\.7$", Candidates::Exactly(own("job.7"))),
            ("^job_", Candidates::StartingWith(own("job_"))),
            ("^job_.*", Candidates::StartingWith(own("job_"))),
            ("^job_.*$", among("job_", "^(?:.*$)")),
            ("^job_\\d+$", among("job_", "^(?:\\d+$)")),
            ("^job_[^_]{3}$", among("job_", "^(?:[^_]{3}$)")),
            ("^jobs?_x$", among("job", "^(?:s?_x$)")),
            ("^job(^a|b)", Candidates::AmongContaining(own("job"))),
            ("^job(\\b|c)d", Candidates::AmongContaining(own("job"))),
            ("^(a|b)_longer$", Candidates::AmongContaining(own("_longer"))),
            ("job_7", Candidates::Containing(own("job_7"))),
            ("eval_.*", Candidates::Containing(own("eval_"))),
            (".*_end", Candidates::Containing(own("_end"))),
            ("job_\\d", Candidates::AmongContaining(own("job_"))),
            ("a+bc", Candidates::AmongContaining(own("bc"))),
            ("a{2}bc", Candidates::AmongContaining(own("bc"))),
            ("^a|b$", Candidates::Any),
            ("(?i)abc", Candidates::Any),
            ("x(?i)abc", Candidates::Any),
            ("\\pL_abc", Candidates::Any),
            (".*", Candidates::Any),
            ("", Candidates::Any),
            ("(", Candidates::Any),
        ];
        for (pattern, expected) in table {
            assert_eq!(candidates(pattern), expected, "{pattern}");
        }
    }

    #[test]
    fn classes_groups_and_repetitions_are_skipped_whole() {
        let own = str::to_owned;
        let among = |text: &str| Candidates::AmongContaining(own(text));
        let table = [
            ("[]x]_end", among("_end")),
            ("[^]x]_end", among("_end")),
            ("[\\]x]_end", among("_end")),
            ("[[:alpha:]]_end", Candidates::Any),
            ("[a_end", Candidates::Any),
            ("(a(b|c)d)_end", among("_end")),
            ("(\\)x)_end", among("_end")),
            ("([)]x)_end", among("_end")),
            ("(?:x|y)_end", among("_end")),
            ("(a(?i)b)_end", Candidates::Any),
            ("(a_end", Candidates::Any),
            ("a)_end", Candidates::Any),
            ("é+?_end", among("_end")),
            ("a{2,3}?_end", among("_end")),
            ("ab*_end", among("_end")),
            ("\\w\\S_end", among("_end")),
            ("\\<_end", Candidates::Any),
            ("\\", Candidates::Any),
            ("short.+longer", among("longer")),
            ("longer.+short", among("longer")),
            (".*_end.*", Candidates::Containing(own("_end"))),
            (".+_end", among("_end")),
            (".*?_end", among("_end")),
            ("^+a", among("a")),
            ("^é$", Candidates::Exactly(own("é"))),
            ("^a[^b]", Candidates::AmongStartingWith { prefix: own("a"), tail: own("^(?:[^b])") }),
            ("^a[^b]^", among("a")),
            ("^a\\Bb", Candidates::Any),
            ("^a(\\Bb)", among("a")),
        ];
        for (pattern, expected) in table {
            assert_eq!(candidates(pattern), expected, "{pattern}");
        }
    }
}
