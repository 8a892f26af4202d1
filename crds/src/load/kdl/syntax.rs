//! Parses the syntax of KDL 1 and KDL 2 together. A text that is valid in both means the same in both.
//!
//! Type annotations and nodes after `/-` are parsed and ignored.

use super::text::{self, is_newline};
use crate::load::budget::Budget;
use crate::load::cursor::Cursor;
use crate::load::json::token::finite;
use crate::load::tree::{Entry, Node, NodeKind, excerpt};
use crate::load::{LoadOptions, SyntaxError};
use crate::problem::Position;

/// A node: a name, arguments, properties, children.
pub(super) struct KdlNode {
    pub name: String,
    pub position: Position,
    pub arguments: Vec<Node>,
    pub properties: Vec<Entry>,
    pub children: Option<Vec<KdlNode>>,
}

/// Parses a text with any number of nodes.
pub(super) fn parse(text: &str, options: &LoadOptions) -> Result<Vec<KdlNode>, SyntaxError> {
    let mut reader = KdlParser { cursor: Cursor::new(text), budget: Budget::new(options), depth: 0 };
    let nodes = reader.nodes()?;
    match reader.cursor.peek() {
        None => Ok(nodes),
        Some(_) => Err(reader.cursor.expected("a node")),
    }
}

struct KdlParser<'t> {
    cursor: Cursor<'t>,
    budget: Budget,
    depth: usize,
}

/// An element after a node's name.
enum KdlPart {
    Argument(Node),
    Property(Entry),
    Children(Vec<KdlNode>),
}

impl KdlParser<'_> {
    /// Parses nodes up to the end of the document or a closing brace, which it does not consume.
    fn nodes(&mut self) -> Result<Vec<KdlNode>, SyntaxError> {
        let mut nodes = Vec::new();
        loop {
            self.skip_blanks(true)?;
            if matches!(self.cursor.peek(), None | Some('}')) {
                return Ok(nodes);
            }
            let left_out = self.cursor.consume_text("/-");
            if left_out {
                self.skip_blanks(true)?;
            }
            let node = self.node()?;
            if !left_out {
                nodes.push(node);
            }
        }
    }

    fn node(&mut self) -> Result<KdlNode, SyntaxError> {
        self.annotation()?;
        let position = self.cursor.here();
        self.budget.consume(1, position)?;
        let name = self.name("a node")?;
        let mut node = KdlNode { name, position, arguments: Vec::new(), properties: Vec::new(), children: None };
        loop {
            self.skip_blanks(false)?;
            let left_out = self.cursor.consume_text("/-");
            if left_out {
                self.skip_blanks(true)?;
            } else if self.ends_node() {
                return Ok(node);
            }
            let part = self.part()?;
            if left_out {
                continue;
            }
            match part {
                KdlPart::Argument(value) => node.arguments.push(value),
                KdlPart::Property(property) => node.properties.push(property),
                KdlPart::Children(children) => node.children = Some(children),
            }
        }
    }

    fn ends_node(&mut self) -> bool {
        match self.cursor.peek() {
            None | Some('}') => true,
            Some(letter) if is_newline(letter) => true,
            _ => self.cursor.take(';'),
        }
    }

    fn part(&mut self) -> Result<KdlPart, SyntaxError> {
        if self.cursor.peek() == Some('{') {
            return self.children().map(KdlPart::Children);
        }
        self.annotation()?;
        let position = self.cursor.here();
        self.budget.consume(1, position)?;
        let value = self.value(position)?;
        let NodeKind::Text(name) = &value.kind else { return Ok(KdlPart::Argument(value)) };
        self.skip_blanks(false)?;
        if !self.cursor.take('=') {
            return Ok(KdlPart::Argument(value));
        }
        let name = name.clone();
        self.skip_blanks(false)?;
        self.annotation()?;
        let position = self.cursor.here();
        Ok(KdlPart::Property(Entry::new(name, position, self.value(position)?)))
    }

    fn children(&mut self) -> Result<Vec<KdlNode>, SyntaxError> {
        let open = self.cursor.here();
        self.budget.descend(self.depth, open)?;
        self.depth += 1;
        self.cursor.skip(1);
        let nodes = self.nodes()?;
        self.depth -= 1;
        if self.cursor.take('}') { Ok(nodes) } else { Err(SyntaxError::new(open, "the brace is never closed")) }
    }

    fn value(&mut self, position: Position) -> Result<Node, SyntaxError> {
        if let Some(text) = text::read(&mut self.cursor)? {
            return Ok(Node::text(position, text));
        }
        if self.cursor.take('#') {
            let word = self.cursor.run(text::is_bare);
            return keyword(word).map(|kind| Node::new(position, kind)).ok_or_else(|| {
                let message = format!("'#{}' is not a finite number, #true, #false or #null", excerpt(word));
                SyntaxError::new(position, message)
            });
        }
        let word = self.cursor.run(text::is_bare);
        let unsigned = word.strip_prefix(['+', '-']).unwrap_or(word);
        let numeric = unsigned.strip_prefix('.').unwrap_or(unsigned).starts_with(|first: char| first.is_ascii_digit());
        if word.is_empty() {
            return Err(self.cursor.expected("a value"));
        }
        if numeric {
            let number = number(word).ok_or_else(|| {
                let error = SyntaxError::new(position, format!("'{}' is not a number", excerpt(word)));
                error.hint("put texts in quotes")
            })?;
            return Ok(Node::new(position, number));
        }
        Ok(keyword(word).map_or_else(|| Node::text(position, word), |kind| Node::new(position, kind)))
    }

    fn name(&mut self, what: &str) -> Result<String, SyntaxError> {
        if let Some(text) = text::read(&mut self.cursor)? {
            return Ok(text);
        }
        match self.cursor.run(text::is_bare) {
            "" => Err(self.cursor.expected(what)),
            word => Ok(word.to_owned()),
        }
    }

    /// Skips a type annotation `(type)`, because the schema decides.
    fn annotation(&mut self) -> Result<(), SyntaxError> {
        if !self.cursor.take('(') {
            return Ok(());
        }
        self.skip_blanks(false)?;
        self.name("a type")?;
        self.skip_blanks(false)?;
        if self.cursor.take(')') { self.skip_blanks(false) } else { Err(self.cursor.expected("')'")) }
    }

    /// Skips blanks and comments; between nodes also line ends and semicolons.
    fn skip_blanks(&mut self, between_nodes: bool) -> Result<(), SyntaxError> {
        loop {
            self.cursor.run(|letter| {
                let ends_node = is_newline(letter) || letter == ';';
                if ends_node { between_nodes } else { letter.is_whitespace() || letter == '\u{feff}' }
            });
            let rest = self.cursor.rest();
            if rest.starts_with("//") {
                self.cursor.skip_until(&['\n', '\r']);
            } else if rest.starts_with("/*") {
                self.skip_comment()?;
            } else if self.cursor.take('\\') {
                self.skip_line_end()?;
            } else {
                return Ok(());
            }
        }
    }

    /// Skips a backslash at the end of a line, which continues the node.
    fn skip_line_end(&mut self) -> Result<(), SyntaxError> {
        self.cursor.run(|letter| letter.is_whitespace() && !is_newline(letter));
        if self.cursor.rest().starts_with("//") {
            self.cursor.skip_until(&['\n', '\r']);
        }
        let carriage_return = self.cursor.take('\r');
        if self.cursor.take('\n') || carriage_return || self.cursor.peek().is_none() {
            return Ok(());
        }
        Err(self.cursor.expected("the end of the line"))
    }

    /// Skips a comment. Comments nest; a counter avoids recursion.
    fn skip_comment(&mut self) -> Result<(), SyntaxError> {
        let open = self.cursor.here();
        let mut depth = 0_usize;
        loop {
            if self.cursor.consume_text("/*") {
                depth += 1;
            } else if self.cursor.consume_text("*/") {
                depth -= 1;
                if depth == 0 {
                    return Ok(());
                }
            } else if self.cursor.peek().is_none() {
                return Err(SyntaxError::new(open, "the comment is never closed"));
            } else {
                let letter = self.cursor.peek().map_or(1, char::len_utf8);
                self.cursor.skip(letter);
                self.cursor.skip_until(&['/', '*']);
            }
        }
    }
}

/// Returns the value of a keyword, which KDL 1 writes without the hash.
fn keyword(word: &str) -> Option<NodeKind> {
    match word {
        "true" => Some(NodeKind::Bool(true)),
        "false" => Some(NodeKind::Bool(false)),
        "null" => Some(NodeKind::Null),
        _ => None,
    }
}

fn number(word: &str) -> Option<NodeKind> {
    let (negative, digits) = match word.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, word.strip_prefix('+').unwrap_or(word)),
    };
    let digits: String = digits.chars().filter(|letter| *letter != '_').collect();
    let radix = [("0x", 16), ("0o", 8), ("0b", 2)].into_iter().find_map(|(prefix, radix)| {
        let digits = digits.strip_prefix(prefix)?;
        Some(i64::from_str_radix(digits, radix).ok().filter(|_| !digits.starts_with(['+', '-'])))
    });
    match radix {
        Some(value) => value.map(|value| NodeKind::Number((if negative { -value } else { value }).into())),
        None => finite(negative, &digits).map(NodeKind::Number),
    }
}
