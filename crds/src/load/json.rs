//! Parses JSON and JSON5.
//!
//! One reader serves both, because JSON5 contains JSON. So a `.json` file may have comments and trailing commas, too.
//! Keys that occur twice are errors.

use crate::problem::Position;
use serde_json::Number;

use super::budget::Budget;
use super::cursor::Cursor;
use super::keys::Keys;
use super::tree::{Entry, Node, NodeKind, excerpt};
use super::{LoadOptions, SyntaxError};

pub(super) mod token;

/// Parses a text with exactly one value.
pub(super) fn parse(text: &str, options: &LoadOptions) -> Result<Node, SyntaxError> {
    let mut reader = JsonReader { cursor: Cursor::new(text), depth: 0, budget: Budget::new(options) };
    reader.skip_blanks()?;
    let node = reader.value()?;
    reader.skip_blanks()?;
    match reader.cursor.peek() {
        None => Ok(node),
        Some(letter) => Err(reader.cursor.error(format!("unexpected '{letter}' after the end of the document"))),
    }
}

/// Returns whether the first character after blanks and comments is a brace.
pub(super) fn begins_with_brace(text: &str) -> bool {
    let mut reader = JsonReader { cursor: Cursor::new(text), depth: 0, budget: Budget::new(&LoadOptions::default()) };
    reader.skip_blanks().is_ok() && reader.cursor.peek() == Some('{')
}

struct JsonReader<'t> {
    cursor: Cursor<'t>,
    depth: usize,
    budget: Budget,
}

impl JsonReader<'_> {
    fn value(&mut self) -> Result<Node, SyntaxError> {
        let position = self.cursor.here();
        self.budget.consume(1, position)?;
        let kind = match self.cursor.peek() {
            None => return Err(self.cursor.error("the document ends too early")),
            Some('{') => self.nested(Self::map)?,
            Some('[') => self.nested(Self::list)?,
            Some(quote @ ('"' | '\'')) => NodeKind::Text(self.quoted(quote)?),
            Some(letter) if letter.is_ascii_digit() || matches!(letter, '+' | '-' | '.') => {
                NodeKind::Number(self.number(position)?)
            }
            Some(_) => self.word(position)?,
        };
        Ok(Node::new(position, kind))
    }

    fn nested(&mut self, inner: fn(&mut Self) -> Result<NodeKind, SyntaxError>) -> Result<NodeKind, SyntaxError> {
        self.budget.descend(self.depth, self.cursor.here())?;
        self.depth += 1;
        self.cursor.skip(1);
        let kind = inner(self)?;
        self.depth -= 1;
        Ok(kind)
    }

    fn list(&mut self) -> Result<NodeKind, SyntaxError> {
        let mut items = Vec::new();
        loop {
            self.skip_blanks()?;
            if self.cursor.take(']') {
                return Ok(NodeKind::List(items));
            }
            items.push(self.value()?);
            self.skip_blanks()?;
            if !self.cursor.take(',') && self.cursor.peek() != Some(']') {
                return Err(self.cursor.expected("',' or ']'"));
            }
        }
    }

    fn map(&mut self) -> Result<NodeKind, SyntaxError> {
        let mut keys = Keys::default();
        let mut entries = Vec::new();
        loop {
            self.skip_blanks()?;
            if self.cursor.take('}') {
                return Ok(NodeKind::Map(entries));
            }
            let position = self.cursor.here();
            let key = self.key()?;
            self.skip_blanks()?;
            if !self.cursor.take(':') {
                return Err(self.cursor.expected("':'"));
            }
            self.skip_blanks()?;
            let node = self.value()?;
            keys.add(&entries, &key, position)?;
            entries.push(Entry::new(key, position, node));
            self.skip_blanks()?;
            if !self.cursor.take(',') && self.cursor.peek() != Some('}') {
                return Err(self.cursor.expected("',' or '}'"));
            }
        }
    }

    fn key(&mut self) -> Result<String, SyntaxError> {
        match self.cursor.peek() {
            Some(quote @ ('"' | '\'')) => self.quoted(quote),
            Some(letter) if token::starts_name(letter) => Ok(self.cursor.run(token::continues_name).to_owned()),
            _ => Err(self.cursor.expected("a key or '}'")),
        }
    }

    fn word(&mut self, position: Position) -> Result<NodeKind, SyntaxError> {
        let word = self.cursor.run(token::continues_name);
        match word {
            "null" => Ok(NodeKind::Null),
            "true" => Ok(NodeKind::Bool(true)),
            "false" => Ok(NodeKind::Bool(false)),
            "NaN" | "Infinity" => Err(SyntaxError::new(position, format!("{word} is not a finite number"))),
            "" => Err(self.cursor.expected("a value")),
            _ => {
                let error = SyntaxError::new(position, format!("unexpected '{}'", excerpt(word)));
                Err(error.hint("put texts in quotes"))
            }
        }
    }

    fn number(&mut self, position: Position) -> Result<Number, SyntaxError> {
        let text = self.cursor.run(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '+' | '-' | '.'));
        token::number(text).ok_or_else(|| SyntaxError::new(position, format!("'{}' is not a number", excerpt(text))))
    }

    fn quoted(&mut self, quote: char) -> Result<String, SyntaxError> {
        let open = self.cursor.here();
        self.cursor.skip(quote.len_utf8());
        let rest = self.cursor.rest();
        match token::unquote(rest, quote as u8) {
            Ok((text, length)) => {
                self.cursor.skip(length);
                Ok(text)
            }
            Err(error) if error.offset >= rest.len() => Err(SyntaxError::new(open, error.message)),
            Err(error) => {
                self.cursor.skip(error.offset);
                Err(self.cursor.error(error.message))
            }
        }
    }

    fn skip_blanks(&mut self) -> Result<(), SyntaxError> {
        loop {
            self.cursor.run(token::is_blank);
            let rest = self.cursor.rest();
            if rest.starts_with("//") {
                self.cursor.skip_until(&['\n', '\r']);
            } else if rest.starts_with("/*") {
                match rest.find("*/") {
                    Some(end) => self.cursor.skip(end + 2),
                    None => return Err(self.cursor.error("the comment is never closed")),
                }
            } else {
                return Ok(());
            }
        }
    }
}
