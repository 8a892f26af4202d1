//! How deep a KDL text nests, found without recursion: the parser behind it would go down as deep as the text does.

/// The offset of the first brace or block comment below this depth.
pub(super) fn deeper_than(text: &str, limit: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let (mut at, mut braces, mut comments) = (0, 0_usize, 0_usize);
    while let Some(byte) = bytes.get(at) {
        let next = bytes.get(at + 1);
        match (byte, next) {
            (b'/', Some(b'*')) => {
                comments += 1;
                at += 1;
            }
            (b'*', Some(b'/')) if comments > 0 => {
                comments -= 1;
                at += 1;
            }
            _ if comments > 0 => {}
            (b'/', Some(b'/')) => at += length(bytes, at, |byte| byte != b'\n'),
            (b'"' | b'#', _) => at = after_text(bytes, at) - 1,
            (b'{', _) => braces += 1,
            (b'}', _) => braces = braces.saturating_sub(1),
            _ => {}
        }
        if braces + comments > limit {
            return Some(at.min(bytes.len()));
        }
        at += 1;
    }
    None
}

fn length(bytes: &[u8], from: usize, belongs: impl Fn(u8) -> bool) -> usize {
    bytes.get(from..).unwrap_or_default().iter().take_while(|byte| belongs(**byte)).count()
}

/// The offset behind a text that may begin here: `"…"`, `"""…"""`, or either between hashes.
fn after_text(bytes: &[u8], at: usize) -> usize {
    let hashes = length(bytes, at, |byte| byte == b'#');
    let quotes = length(bytes, at + hashes, |byte| byte == b'"');
    if quotes == 0 {
        return at + hashes.max(1);
    }
    if quotes == 2 {
        return at + hashes + 2;
    }
    let closing = if quotes >= 3 { 3 } else { 1 };
    let mut at = at + hashes + closing;
    while let Some(byte) = bytes.get(at) {
        if *byte == b'\\' && hashes == 0 {
            at += 2;
        } else if *byte == b'"'
            && length(bytes, at, |byte| byte == b'"') >= closing
            && length(bytes, at + closing, |byte| byte == b'#') >= hashes
        {
            return at + closing + hashes;
        } else {
            at += 1;
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::deeper_than;

    #[test]
    fn only_real_braces_count() {
        let cases = [
            ("a { b { c } }", 1, Some(6)),
            ("a { b { c } }", 2, None),
            ("a \"{{{{\" { }", 1, None),
            ("a #\"{{\"{\"# { }", 1, None),
            ("a \"\\\"{{{\" { }", 1, None),
            ("a \"\"\"\n{{\"{\n\"\"\" { }", 1, None),
            ("// {{{{\na { }", 1, None),
            ("/* {{{ */ a { }", 1, None),
            ("/* /* /* */ */ */", 2, Some(7)),
            ("a \"\" { b { } }", 1, Some(9)),
            ("a #true { }", 0, Some(8)),
        ];
        for (text, limit, expected) in cases {
            assert_eq!(deeper_than(text, limit), expected, "{text}");
        }
    }
}
