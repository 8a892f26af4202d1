//! Parses YAML 1.2 into trees, one for each document, with anchors, aliases, merge keys and tags.
//!
//! The parser returns events one by one, so this module limits the depth. Expanded aliases count against the limit on
//! values, which stops documents that double themselves repeatedly.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span, StrInput, Tag};

use super::budget::Budget;
use super::keys::Keys;
use super::tree::{Entry, Node, NodeKind, excerpt};
use super::{LoadOptions, SyntaxError};
use crate::problem::Position;

pub(super) mod layout;
pub(super) mod scalar;

/// Parses every document up to the first error. The error belongs to the document after the last one returned.
pub(super) fn parse(text: &str, options: &LoadOptions) -> (Vec<Node>, Option<SyntaxError>) {
    let mut documents = Vec::new();
    let mut builder = TreeBuilder { budget: Budget::new(options), anchors: HashMap::new(), open: Vec::new() };
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = next(&mut parser, options) {
        let step = event.and_then(|(event, span)| builder.take(event, position(span.start)));
        match step {
            Ok(Some(document)) => documents.push(document),
            Ok(None) => {}
            Err(error) => return (documents, Some(error)),
        }
    }
    (documents, None)
}

/// The parser's message for too many nested brackets. The scanner runs ahead of the events, so its limit may apply
/// before ours.
const SCANNED_TOO_DEEP: &str = "recursion limit exceeded";

fn next<'t>(
    parser: &mut Parser<'t, StrInput<'t>>,
    options: &LoadOptions,
) -> Option<Result<(Event<'t>, Span), SyntaxError>> {
    let event = parser.next_event()?;
    Some(event.map_err(|error| match (position(*error.marker()), error.info()) {
        (position, SCANNED_TOO_DEEP) => Budget::too_deep(options.max_depth, position),
        (position, info) => SyntaxError::new(position, format!("not YAML: {info}")),
    }))
}

fn position(marker: Marker) -> Position {
    Position::new(marker.line(), marker.col() + 1)
}

/// A collection that is not complete yet.
struct OpenCollection {
    position: Position,
    anchor: usize,
    content: Content,
}

enum Content {
    List(Vec<Node>),
    Map { entries: Vec<Entry>, keys: Keys, key: Option<(String, Position, bool)>, merged: Vec<Node> },
}

struct TreeBuilder {
    budget: Budget,
    anchors: HashMap<usize, (Node, usize)>,
    open: Vec<OpenCollection>,
}

impl TreeBuilder {
    /// Processes one event, and returns the document that it completes.
    fn take(&mut self, event: Event<'_>, position: Position) -> Result<Option<Node>, SyntaxError> {
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(None),
            Event::DocumentStart(_) => {
                self.anchors.clear();
                Ok(None)
            }
            Event::Alias(anchor) => self.alias(anchor, position),
            Event::Scalar(text, style, anchor, tag) => self.scalar(&text, style, anchor, tag.as_deref(), position),
            Event::SequenceStart(anchor, tag) => {
                check_collection_tag(tag.as_ref(), "seq", position)?;
                self.begin(OpenCollection { position, anchor, content: Content::List(Vec::new()) })
            }
            Event::MappingStart(anchor, tag) => {
                check_collection_tag(tag.as_ref(), "map", position)?;
                let content =
                    Content::Map { entries: Vec::new(), keys: Keys::default(), key: None, merged: Vec::new() };
                self.begin(OpenCollection { position, anchor, content })
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
        }
    }

    fn begin(&mut self, open: OpenCollection) -> Result<Option<Node>, SyntaxError> {
        self.budget.consume(1, open.position)?;
        self.budget.descend(self.open.len(), open.position)?;
        if let Some(OpenCollection { content: Content::Map { key: None, .. }, .. }) = self.open.last() {
            return Err(SyntaxError::new(open.position, "a key must be a text")
                .hint("put it in quotes if it begins with a bracket or a brace"));
        }
        self.open.push(open);
        Ok(None)
    }

    fn end(&mut self) -> Result<Option<Node>, SyntaxError> {
        let Some(OpenCollection { position, anchor, content }) = self.open.pop() else { return Ok(None) };
        let kind = match content {
            Content::List(items) => NodeKind::List(items),
            Content::Map { entries, merged, .. } => NodeKind::Map(merge(entries, merged)),
        };
        let node = Node::new(position, kind);
        self.remember(anchor, &node);
        self.add(node)
    }

    fn alias(&mut self, anchor: usize, position: Position) -> Result<Option<Node>, SyntaxError> {
        let Some((node, size)) = self.anchors.get(&anchor) else {
            return Err(SyntaxError::new(position, "an alias refers to a value that contains it"));
        };
        self.budget.consume(*size, position).map_err(|error| error.hint("aliases make this document too large"))?;
        // The depth counts as if the value stood here without the alias.
        if let Some(below) = levels(node).checked_sub(1) {
            self.budget.descend(self.open.len() + below, position)?;
        }
        let node = Node { position, ..node.clone() };
        self.add(node)
    }

    fn scalar(
        &mut self,
        text: &str,
        style: ScalarStyle,
        anchor: usize,
        tag: Option<&Tag>,
        position: Position,
    ) -> Result<Option<Node>, SyntaxError> {
        self.budget.consume(1, position)?;
        let plain = style == ScalarStyle::Plain && tag.is_none();
        let resolved = scalar::resolve(text, plain, tag);
        if let Some(OpenCollection { content: Content::Map { key: key @ None, .. }, .. }) = self.open.last_mut() {
            *key = Some((text.to_owned(), position, plain));
            let kind = resolved.unwrap_or_else(|_| NodeKind::Text(text.to_owned()));
            self.remember(anchor, &Node { position, plain, kind });
            return Ok(None);
        }
        let kind = resolved.map_err(|message| SyntaxError::new(position, message))?;
        let node = Node { position, plain, kind };
        self.remember(anchor, &node);
        self.add(node)
    }

    fn remember(&mut self, anchor: usize, node: &Node) {
        if anchor > 0 {
            self.anchors.insert(anchor, (node.clone(), count(node)));
        }
    }

    /// Adds a complete node to the open collection; returns it if it is the whole document.
    fn add(&mut self, node: Node) -> Result<Option<Node>, SyntaxError> {
        let Some(open) = self.open.last_mut() else { return Ok(Some(node)) };
        match &mut open.content {
            Content::List(items) => items.push(node),
            Content::Map { entries, keys, key, merged } => match key.take() {
                None => return self.alias_as_key(node),
                Some((name, _, true)) if name == "<<" => merged.extend(mergeable(node)?),
                Some((name, position, _)) => {
                    keys.add(entries, &name, position)?;
                    entries.push(Entry::new(name, position, node));
                }
            },
        }
        Ok(None)
    }

    fn alias_as_key(&mut self, node: Node) -> Result<Option<Node>, SyntaxError> {
        let NodeKind::Text(text) = node.kind else {
            return Err(SyntaxError::new(node.position, "a key must be a text"));
        };
        if let Some(OpenCollection { content: Content::Map { key, .. }, .. }) = self.open.last_mut() {
            *key = Some((text, node.position, false));
        }
        Ok(None)
    }
}

fn check_collection_tag(tag: Option<&Cow<'_, Tag>>, wanted: &str, position: Position) -> Result<(), SyntaxError> {
    match tag {
        None => Ok(()),
        Some(tag) if tag.is_yaml_core_schema() && tag.suffix == wanted => Ok(()),
        Some(tag) => Err(SyntaxError::new(position, scalar::unknown_tag(tag))),
    }
}

/// Returns the mappings that `<<` merges: one, or a list of them.
fn mergeable(node: Node) -> Result<Vec<Node>, SyntaxError> {
    let sources = match node.kind {
        NodeKind::List(items) => items,
        _ => vec![node],
    };
    match sources.iter().find(|source| !matches!(source.kind, NodeKind::Map(_))) {
        None => Ok(sources),
        Some(other) => Err(SyntaxError::new(other.position, format!("`<<` merges mappings, not {}", other.describe()))),
    }
}

/// Adds merged entries. Keys of the mapping itself win, then those of the source that comes first.
fn merge(mut entries: Vec<Entry>, sources: Vec<Node>) -> Vec<Entry> {
    if sources.is_empty() {
        return entries;
    }
    let mut known: HashSet<Box<str>> = entries.iter().map(|entry| entry.key.clone()).collect();
    for source in sources {
        let NodeKind::Map(merged) = source.kind else { continue };
        entries.extend(merged.into_iter().filter(|entry| known.insert(entry.key.clone())));
    }
    entries
}

fn count(node: &Node) -> usize {
    let below = |node: &Node| -> usize {
        node.items().iter().map(count).sum::<usize>()
            + node.entries().iter().map(|entry| count(&entry.node)).sum::<usize>()
    };
    1 + below(node)
}

/// Returns the nesting depth of lists and mappings; 0 for a single value.
fn levels(node: &Node) -> usize {
    if !matches!(node.kind, NodeKind::List(_) | NodeKind::Map(_)) {
        return 0;
    }
    let items = node.items().iter().map(levels).max();
    let entries = node.entries().iter().map(|entry| levels(&entry.node)).max();
    1 + items.max(entries).unwrap_or(0)
}

/// Returns whether an unquoted text is a boolean in YAML 1.1, which kubectl reads.
pub(super) fn is_boolean_for_kubectl(text: &str) -> bool {
    matches!(text.to_ascii_lowercase().as_str(), "yes" | "no" | "on" | "off" | "y" | "n")
}

/// Returns a text as a message shows it.
pub(super) fn shown(text: &str) -> String {
    format!("'{}'", excerpt(text))
}
