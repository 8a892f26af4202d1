//! JSON and JSON5 to a tree: one reader for both, since JSON5 is the larger.
//!
//! So a `.json` file may have comments and trailing commas too. Keys that occur twice are errors.

use serde_json::Number;

use super::budget::Budget;
use super::tree::{Entry, Kind, Node, Place};
use super::{LoadOptions, SyntaxError};

pub(super) mod token;

/// Reads one value and nothing after it.
pub(super) fn parse(text: &str, options: &LoadOptions) -> Result<Node, SyntaxError> {
    let mut reader =
        Reader { text, at: 0, mark: 0, place: Place { line: 1, column: 1 }, depth: 0, budget: Budget::new(options) };
    reader.skip_blanks()?;
    let node = reader.value()?;
    reader.skip_blanks()?;
    match reader.peek() {
        None => Ok(node),
        Some(letter) => Err(reader.error(format!("unexpected '{letter}' after the end of the document"))),
    }
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
    /// Where `place` was last worked out: it only moves forward, so that long lines cost no more than short ones.
    mark: usize,
    place: Place,
    depth: usize,
    budget: Budget,
}

impl Reader<'_> {
    fn value(&mut self) -> Result<Node, SyntaxError> {
        let place = self.here();
        self.budget.spend(1, place)?;
        let kind = match self.peek() {
            None => return Err(self.error("the document ends too early")),
            Some('{') => self.nested(Self::map)?,
            Some('[') => self.nested(Self::list)?,
            Some('"' | '\'') => Kind::Text(self.quoted()?),
            Some(letter) if letter.is_ascii_digit() || matches!(letter, '+' | '-' | '.') => {
                Kind::Number(self.number(place)?)
            }
            Some(_) => self.word(place)?,
        };
        Ok(Node::new(place, kind))
    }

    fn nested(&mut self, inner: fn(&mut Self) -> Result<Kind, SyntaxError>) -> Result<Kind, SyntaxError> {
        self.budget.descend(self.depth, self.place)?;
        self.depth += 1;
        self.at += 1;
        let kind = inner(self)?;
        self.depth -= 1;
        Ok(kind)
    }

    fn list(&mut self) -> Result<Kind, SyntaxError> {
        let mut items = Vec::new();
        loop {
            self.skip_blanks()?;
            if self.take(']') {
                return Ok(Kind::List(items));
            }
            items.push(self.value()?);
            self.skip_blanks()?;
            if !self.take(',') && self.peek() != Some(']') {
                return Err(self.expected("',' or ']'"));
            }
        }
    }

    fn map(&mut self) -> Result<Kind, SyntaxError> {
        let mut keys = super::keys::Keys::default();
        let mut entries = Vec::new();
        loop {
            self.skip_blanks()?;
            if self.take('}') {
                return Ok(Kind::Map(entries));
            }
            let place = self.here();
            let key = self.key()?;
            self.skip_blanks()?;
            if !self.take(':') {
                return Err(self.expected("':'"));
            }
            self.skip_blanks()?;
            let node = self.value()?;
            keys.add(&entries, &key, place)?;
            entries.push(Entry::new(key, place, node));
            self.skip_blanks()?;
            if !self.take(',') && self.peek() != Some('}') {
                return Err(self.expected("',' or '}'"));
            }
        }
    }

    fn key(&mut self) -> Result<String, SyntaxError> {
        match self.peek() {
            Some('"' | '\'') => self.quoted(),
            Some(letter) if token::starts_name(letter) => Ok(self.run(token::continues_name).to_owned()),
            _ => Err(self.expected("a key or '}'")),
        }
    }

    fn word(&mut self, place: Place) -> Result<Kind, SyntaxError> {
        let word = self.run(token::continues_name);
        match word {
            "null" => Ok(Kind::Null),
            "true" => Ok(Kind::Bool(true)),
            "false" => Ok(Kind::Bool(false)),
            "NaN" | "Infinity" => Err(SyntaxError::new(place, format!("{word} is not a finite number"))),
            "" => Err(self.expected("a value")),
            _ => Err(SyntaxError::new(place, format!("unexpected '{}'", super::tree::excerpt(word)))
                .hint("put texts in quotes")),
        }
    }

    fn number(&mut self, place: Place) -> Result<Number, SyntaxError> {
        let text = self.run(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '+' | '-' | '.'));
        token::number(text)
            .ok_or_else(|| SyntaxError::new(place, format!("'{}' is not a number", super::tree::excerpt(text))))
    }

    fn quoted(&mut self) -> Result<String, SyntaxError> {
        let open = self.here();
        let rest = self.text.get(self.at + 1..).unwrap_or_default();
        let quote = if self.peek() == Some('"') { b'"' } else { b'\'' };
        match token::unquote(rest, quote) {
            Ok((text, length)) => {
                self.at += 1 + length;
                Ok(text)
            }
            Err(error) => {
                self.at = (self.at + 1 + error.offset).min(self.text.len());
                let place = if error.offset >= rest.len() { open } else { self.here() };
                Err(SyntaxError::new(place, error.message))
            }
        }
    }

    fn skip_blanks(&mut self) -> Result<(), SyntaxError> {
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let blanks = rest.len() - rest.trim_start_matches(token::is_blank).len();
            self.at += blanks;
            let rest = rest.get(blanks..).unwrap_or_default();
            if rest.starts_with("//") {
                self.at += rest.find(['\n', '\r']).unwrap_or(rest.len());
            } else if rest.starts_with("/*") {
                match rest.find("*/") {
                    Some(end) => self.at += end + 2,
                    None => return Err(self.error("the comment is never closed")),
                }
            } else {
                return Ok(());
            }
        }
    }

    fn run(&mut self, belongs: impl Fn(char) -> bool) -> &str {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let end = rest.find(|letter| !belongs(letter)).unwrap_or(rest.len());
        self.at += end;
        rest.get(..end).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        match self.text.as_bytes().get(self.at) {
            Some(byte) if byte.is_ascii() => Some(char::from(*byte)),
            _ => self.text.get(self.at..)?.chars().next(),
        }
    }

    fn take(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.at += wanted.len_utf8();
        }
        found
    }

    fn here(&mut self) -> Place {
        for byte in self.text.as_bytes().get(self.mark..self.at).unwrap_or_default() {
            if *byte == b'\n' {
                self.place = Place { line: self.place.line.saturating_add(1), column: 1 };
            } else if byte & 0xC0 != 0x80 {
                self.place.column = self.place.column.saturating_add(1);
            }
        }
        self.mark = self.at;
        self.place
    }

    fn expected(&mut self, what: &str) -> SyntaxError {
        match self.peek() {
            Some(letter) => self.error(format!("expected {what}, found '{letter}'")),
            None => self.error(format!("expected {what}, but the document ends")),
        }
    }

    fn error(&mut self, message: impl Into<String>) -> SyntaxError {
        SyntaxError::new(self.here(), message)
    }
}
