//! The tree that all formats are converted to: values with their positions.

use serde_json::Number;

use crate::problem::Position;

/// A value and its position.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Node {
    pub position: Position,
    /// The text has no quotes, in a format where that matters (YAML).
    pub plain: bool,
    pub kind: NodeKind,
}

/// The content of a value.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum NodeKind {
    #[default]
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub key: Box<str>,
    /// The key as the author wrote it; none if it was not renamed.
    pub written: Option<Box<str>>,
    pub position: Position,
    pub node: Node,
}

impl Node {
    pub fn new(position: Position, kind: NodeKind) -> Self {
        Self { position, plain: false, kind }
    }

    pub fn text(position: Position, text: impl Into<String>) -> Self {
        Self::new(position, NodeKind::Text(text.into()))
    }

    /// Returns a description of the value for messages.
    pub fn describe(&self) -> String {
        match &self.kind {
            NodeKind::Null => "nothing".to_owned(),
            NodeKind::Bool(value) => format!("the boolean {value}"),
            NodeKind::Number(number) => format!("the number {number}"),
            NodeKind::Text(text) => format!("the text '{}'", excerpt(text)),
            NodeKind::List(_) => "a list".to_owned(),
            NodeKind::Map(_) => "a mapping".to_owned(),
        }
    }

    pub fn is_null(&self) -> bool {
        matches!(self.kind, NodeKind::Null)
    }

    pub fn entries(&self) -> &[Entry] {
        match &self.kind {
            NodeKind::Map(entries) => entries,
            _ => &[],
        }
    }

    pub fn items(&self) -> &[Node] {
        match &self.kind {
            NodeKind::List(items) => items,
            _ => &[],
        }
    }

    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries().iter().find(|entry| &*entry.key == key)
    }

    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entry(key).map(|entry| &entry.node)
    }

    pub fn as_text(&self) -> Option<&str> {
        match &self.kind {
            NodeKind::Text(text) => Some(text),
            _ => None,
        }
    }
}

impl Entry {
    pub fn new(key: impl Into<Box<str>>, position: Position, node: Node) -> Self {
        Self { key: key.into(), written: None, position, node }
    }

    /// Returns the key as the file spells it.
    pub fn written(&self) -> &str {
        self.written.as_deref().unwrap_or(&self.key)
    }

    pub fn rename(&mut self, key: &str) {
        if &*self.key != key {
            let old = std::mem::replace(&mut self.key, key.into());
            self.written.get_or_insert(old);
        }
    }
}

/// Returns the beginning of a text on one line, short enough for a message.
pub(crate) fn excerpt(text: &str) -> String {
    const MAX_CHARS: usize = 40;
    let mut shown: String = text.chars().take(MAX_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(MAX_CHARS).is_some() {
        shown.push('…');
    }
    shown
}
