//! Splits Rust text into tokens, without comments, strings, characters, lifetimes and numbers.

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    pub text: String,
    pub line: usize,
}

impl Token {
    pub fn is_name(&self) -> bool {
        self.text.starts_with(|first: char| first.is_alphabetic() || first == '_')
    }
}

/// A position in the text.
struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    line: usize,
}

pub fn tokens(text: &str) -> Vec<Token> {
    let mut scanner = Scanner { text: text.as_bytes(), at: 0, line: 1 };
    let mut found = Vec::new();
    while let Some(token) = scanner.next_token() {
        found.push(token);
    }
    found
}

impl Scanner<'_> {
    fn next_token(&mut self) -> Option<Token> {
        loop {
            let first = self.peek(0)?;
            match first {
                _ if first.is_ascii_whitespace() => self.skip(1),
                b'/' if self.peek(1) == Some(b'/') => self.skip_while(|byte| byte != b'\n'),
                b'/' if self.peek(1) == Some(b'*') => self.skip_comment(),
                b'"' => self.skip_string(),
                b'\'' => self.skip_quote(),
                b'0'..=b'9' => self.skip_while(is_word),
                _ if is_word(first) && self.skip_prefixed_string() => {}
                _ if is_word(first) => return Some(self.word()),
                b':' if self.peek(1) == Some(b':') => return Some(self.token(2)),
                _ => return Some(self.token(1)),
            }
        }
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.text.get(self.at + ahead).copied()
    }

    fn skip(&mut self, count: usize) {
        for _ in 0..count {
            if self.peek(0) == Some(b'\n') {
                self.line += 1;
            }
            self.at += 1;
        }
    }

    fn skip_while(&mut self, goes_on: impl Fn(u8) -> bool) {
        while self.peek(0).is_some_and(&goes_on) {
            self.skip(1);
        }
    }

    fn skip_comment(&mut self) {
        let mut depth = 0;
        loop {
            match (self.peek(0), self.peek(1)) {
                (None, _) => return,
                (Some(b'/'), Some(b'*')) => (depth, _) = (depth + 1, self.skip(2)),
                (Some(b'*'), Some(b'/')) => (depth, _) = (depth - 1, self.skip(2)),
                _ => self.skip(1),
            }
            if depth == 0 {
                return;
            }
        }
    }

    fn skip_string(&mut self) {
        self.skip(1);
        while let Some(byte) = self.peek(0) {
            match byte {
                b'\\' => self.skip(2),
                b'"' => return self.skip(1),
                _ => self.skip(1),
            }
        }
    }

    /// Skips a character or a lifetime.
    fn skip_quote(&mut self) {
        self.skip(1);
        if self.peek(0) == Some(b'\\') {
            self.skip(2);
            self.skip_while(|byte| byte != b'\'');
            return self.skip(1);
        }
        let length = std::str::from_utf8(&self.text[self.at..])
            .ok()
            .and_then(|rest| rest.chars().next())
            .map_or(1, char::len_utf8);
        if self.peek(length) == Some(b'\'') { self.skip(length + 1) } else { self.skip_while(is_word) }
    }

    /// Skips `r"…"`, `r#"…"#`, `b"…"`, `br"…"`, `c"…"` and `b'…'`. Returns false if no string starts here.
    fn skip_prefixed_string(&mut self) -> bool {
        let prefix = self.text[self.at..].iter().take_while(|byte| is_word(**byte)).count();
        let word = &self.text[self.at..self.at + prefix];
        if !matches!(word, b"r" | b"b" | b"br" | b"c" | b"cr") {
            return false;
        }
        let hashes = self.text[self.at + prefix..].iter().take_while(|byte| **byte == b'#').count();
        let quote = self.peek(prefix + hashes);
        if word == b"b" && quote == Some(b'\'') {
            self.skip(1);
            self.skip_quote();
            return true;
        }
        if quote != Some(b'"') {
            return false;
        }
        self.skip(prefix + hashes);
        if !word.contains(&b'r') {
            self.skip_string();
            return true;
        }
        let end = [b"\"".as_slice(), &b"#".repeat(hashes)].concat();
        self.skip(1);
        while self.at < self.text.len() && !self.text[self.at..].starts_with(&end) {
            self.skip(1);
        }
        self.skip(end.len());
        true
    }

    fn word(&mut self) -> Token {
        if self.text[self.at..].starts_with(b"r#") {
            self.skip(2);
        }
        let length = self.text[self.at..].iter().take_while(|byte| is_word(**byte)).count();
        self.token(length)
    }

    fn token(&mut self, length: usize) -> Token {
        let text = String::from_utf8_lossy(&self.text[self.at..self.at + length]).into_owned();
        let line = self.line;
        self.skip(length);
        Token { text, line }
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}
