//! A position in a text that only moves forward.

use super::SyntaxError;
use crate::problem::Position;

pub(super) struct Cursor<'t> {
    text: &'t str,
    at: usize,
    /// The offset at which `position` was computed last. Continuing from there keeps long lines cheap.
    mark: usize,
    position: Position,
}

impl<'t> Cursor<'t> {
    pub fn new(text: &'t str) -> Self {
        Self { text, at: 0, mark: 0, position: Position::START }
    }

    pub fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    pub fn peek(&self) -> Option<char> {
        match self.text.as_bytes().get(self.at) {
            Some(byte) if byte.is_ascii() => Some(char::from(*byte)),
            _ => self.rest().chars().next(),
        }
    }

    /// Moves over this number of bytes, which must end at a character boundary.
    pub fn skip(&mut self, bytes: usize) {
        self.at = (self.at + bytes).min(self.text.len());
    }

    /// Moves over the next character if it is `wanted`, and returns whether it was.
    pub fn take(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.at += wanted.len_utf8();
        }
        found
    }

    /// Moves over `wanted` if it comes next, and returns whether it did.
    pub fn consume_text(&mut self, wanted: &str) -> bool {
        let found = self.rest().starts_with(wanted);
        if found {
            self.at += wanted.len();
        }
        found
    }

    /// Moves over all characters that `belongs` accepts, and returns them.
    pub fn run(&mut self, belongs: impl Fn(char) -> bool) -> &'t str {
        let rest = self.rest();
        let end = rest.find(|letter| !belongs(letter)).unwrap_or(rest.len());
        self.at += end;
        rest.get(..end).unwrap_or_default()
    }

    /// Moves up to the next of these characters, or to the end.
    pub fn skip_until(&mut self, stops: &[char]) {
        let rest = self.rest();
        self.at += rest.find(stops).unwrap_or(rest.len());
    }

    pub fn here(&mut self) -> Position {
        for byte in self.text.as_bytes().get(self.mark..self.at).unwrap_or_default() {
            if *byte == b'\n' {
                self.position = Position { line: self.position.line.saturating_add(1), column: 1 };
            } else if byte & 0xC0 != 0x80 {
                self.position.column = self.position.column.saturating_add(1);
            }
        }
        self.mark = self.at;
        self.position
    }

    pub fn error(&mut self, message: impl Into<String>) -> SyntaxError {
        SyntaxError::new(self.here(), message)
    }

    pub fn expected(&mut self, what: &str) -> SyntaxError {
        match self.peek() {
            Some(letter) => self.error(format!("expected {what}, found '{letter}'")),
            None => self.error(format!("expected {what}, but the document ends")),
        }
    }
}
