//! KDL to a tree of the same shape as the other formats of a bare file.
//!
//! The schema says how a node is read: a node that stands for an item of a list (`job "a" { … }`) adds to that list,
//! its first argument is the item's name, properties and children are its fields. Both KDL 1 and KDL 2 are read.

use kdl::{KdlDocument, KdlEntry, KdlNode, KdlValue};
use serde_json::Number;

use super::budget::Budget;
use super::tree::{Entry, Kind, Node, Place};
use super::{LoadOptions, SyntaxError, json};
use crate::problem::Problem;
use crate::schema::{BARE, Record, Shape};

mod nesting;

/// Far more than a person writes; larger documents are made by programs, which can make JSON as well.
const MOST_BYTES: usize = 4 << 20;

/// Spellings that are neither a field nor the singular of one.
const OTHER_NAMES: [(&str, &str); 2] = [("depends_on_job", "depends_on"), ("blocked_by_job", "depends_on")];

/// Reads a document; the problems are harmless ones.
pub(super) fn parse(text: &str, options: &LoadOptions) -> Result<(Node, Vec<Problem>), SyntaxError> {
    let start = Place { line: 1, column: 1 };
    if text.len() > MOST_BYTES {
        return Err(SyntaxError::new(
            start,
            format!("a KDL document may have {MOST_BYTES} bytes, this has {}", text.len()),
        )
        .hint("write large documents as JSON or YAML"));
    }
    let lines = Lines::new(text);
    if let Some(offset) = nesting::deeper_than(text, options.max_depth) {
        return Err(SyntaxError::new(
            lines.place(offset),
            format!("values are nested more than {} deep", options.max_depth),
        ));
    }
    let document = KdlDocument::parse(text).map_err(|error| lines.syntax_error(&error))?;
    let mut reader = Reader { lines, options, budget: Budget::new(options), problems: Vec::new() };
    let entries = reader.record(document.nodes(), &BARE)?;
    Ok((Node::new(start, Kind::Map(entries)), reader.problems))
}

/// Where the lines of a text begin.
struct Lines<'t> {
    text: &'t str,
    starts: Vec<usize>,
}

impl<'t> Lines<'t> {
    fn new(text: &'t str) -> Self {
        let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
        Self { text, starts: std::iter::once(0).chain(breaks).collect() }
    }

    fn place(&self, offset: usize) -> Place {
        let line = self.starts.partition_point(|start| *start <= offset);
        let start = self.starts.get(line.saturating_sub(1)).copied().unwrap_or(0);
        let before = self.text.as_bytes().get(start..offset).unwrap_or_default();
        Place::new(line, before.iter().filter(|byte| **byte & 0xC0 != 0x80).count() + 1)
    }

    fn syntax_error(&self, error: &kdl::KdlError) -> SyntaxError {
        let Some(first) = error.diagnostics.first() else {
            return SyntaxError::new(Place { line: 1, column: 1 }, "not KDL");
        };
        let message = first.message.as_deref().or(first.label.as_deref()).unwrap_or("syntax error");
        let problem = SyntaxError::new(self.place(first.span.offset()), format!("not KDL: {message}"));
        match &first.help {
            Some(help) => problem.hint(help.clone()),
            None => problem,
        }
    }
}

struct Reader<'t> {
    lines: Lines<'t>,
    options: &'t LoadOptions,
    budget: Budget,
    problems: Vec<Problem>,
}

impl Reader<'_> {
    fn record(&mut self, nodes: &[KdlNode], record: &Record) -> Result<Vec<Entry>, SyntaxError> {
        let mut entries = Vec::new();
        for node in nodes {
            self.field(node, record, &mut entries)?;
        }
        Ok(entries)
    }

    /// Reads one node as a field of a record.
    fn field(&mut self, node: &KdlNode, record: &Record, entries: &mut Vec<Entry>) -> Result<(), SyntaxError> {
        let place = self.lines.place(node.span().offset());
        self.budget.spend(1 + node.entries().len(), place)?;
        let name = node.name().value();
        let Some((key, shape)) = target(name, record) else {
            let value = self.free(node)?;
            entries.push(Entry::new(name, place, value));
            return Ok(());
        };
        match shape {
            Shape::List { items, .. } => {
                let added = match &**items {
                    Shape::Record(item) => vec![self.item(node, item)?],
                    _ => self.arguments(node),
                };
                match entries.iter_mut().find(|entry| *entry.key == *key) {
                    Some(Entry { node: Node { kind: Kind::List(items), .. }, .. }) => items.extend(added),
                    _ => entries.push(Entry::new(key, place, Node::new(place, Kind::List(added)))),
                }
            }
            Shape::Record(inner) => {
                let value = self.item(node, inner)?;
                self.set(entries, Entry::new(key, place, value));
            }
            Shape::Map(_) => {
                let value = self.free_map(node)?;
                self.set(entries, Entry::new(key, place, value));
            }
            Shape::Any => {
                let value = self.embedded_json(node)?;
                self.set(entries, Entry::new(key, place, value));
            }
            _ => {
                let value = self.arguments(node).into_iter().next().unwrap_or(Node::new(place, Kind::Null));
                self.set(entries, Entry::new(key, place, value));
            }
        }
        Ok(())
    }

    /// A field that is given twice counts once, as it always has: the last wins.
    fn set(&mut self, entries: &mut Vec<Entry>, entry: Entry) {
        match entries.iter_mut().find(|known| known.key == entry.key) {
            None => entries.push(entry),
            Some(known) => {
                let mut problem = Problem::warning("", format!("`{}` is given twice; the last counts", entry.key));
                problem.position = Some(entry.place.into());
                self.problems.push(problem);
                *known = entry;
            }
        }
    }

    /// A node as a record: its name, its properties, its children.
    fn item(&mut self, node: &KdlNode, record: &Record) -> Result<Node, SyntaxError> {
        let place = self.lines.place(node.span().offset());
        let mut entries = Vec::new();
        if record.field("name").is_some()
            && let Some(name) = self.arguments(node).into_iter().next()
        {
            entries.push(Entry::new("name", name.place, name));
        }
        for property in node.entries() {
            if let Some(name) = property.name() {
                let value = self.value(property);
                let name = name.value();
                self.set(&mut entries, Entry::new(name, value.place, value));
            }
        }
        for child in children(node) {
            self.field(child, record, &mut entries)?;
        }
        Ok(Node::new(place, Kind::Map(entries)))
    }

    /// Keys of the author's choice.
    fn free_map(&mut self, node: &KdlNode) -> Result<Node, SyntaxError> {
        let place = self.lines.place(node.span().offset());
        let mut entries = Vec::new();
        for property in node.entries() {
            if let Some(name) = property.name() {
                let value = self.value(property);
                self.set(&mut entries, Entry::new(name.value(), value.place, value));
            }
        }
        for child in children(node) {
            let place = self.lines.place(child.span().offset());
            self.budget.spend(1 + child.entries().len(), place)?;
            let value = self.free(child)?;
            self.set(&mut entries, Entry::new(child.name().value(), place, value));
        }
        Ok(Node::new(place, Kind::Map(entries)))
    }

    /// A value of any shape: a mapping, a list or a single value.
    fn free(&mut self, node: &KdlNode) -> Result<Node, SyntaxError> {
        let place = self.lines.place(node.span().offset());
        if node.children().is_some() {
            return self.free_map(node);
        }
        let mut arguments = self.arguments(node);
        Ok(match arguments.len() {
            0 => Node::new(place, Kind::Null),
            1 => arguments.swap_remove(0),
            _ => Node::new(place, Kind::List(arguments)),
        })
    }

    /// A value of any shape, which a file of Torc 1.0 gives as JSON in a text.
    fn embedded_json(&mut self, node: &KdlNode) -> Result<Node, SyntaxError> {
        let value = self.free(node)?;
        let parsed = value.as_text().and_then(|text| json::parse(text, self.options).ok());
        Ok(match parsed {
            Some(parsed) => Node { place: value.place, ..parsed },
            None => value,
        })
    }

    fn arguments(&self, node: &KdlNode) -> Vec<Node> {
        node.entries().iter().filter(|entry| entry.name().is_none()).map(|entry| self.value(entry)).collect()
    }

    fn value(&self, entry: &KdlEntry) -> Node {
        let place = self.lines.place(entry.span().offset());
        let kind = match entry.value() {
            KdlValue::String(text) => Kind::Text(text.clone()),
            KdlValue::Integer(value) => integer(*value),
            KdlValue::Float(value) => Number::from_f64(*value).map_or(Kind::Null, Kind::Number),
            KdlValue::Bool(value) => Kind::Bool(*value),
            KdlValue::Null => Kind::Null,
        };
        Node::new(place, kind)
    }
}

fn children(node: &KdlNode) -> &[KdlNode] {
    node.children().map_or(&[], KdlDocument::nodes)
}

fn integer(value: i128) -> Kind {
    let number = i64::try_from(value)
        .map(Number::from)
        .or_else(|_| u64::try_from(value).map(Number::from))
        .ok()
        .or_else(|| Number::from_f64(value as f64));
    number.map_or(Kind::Null, Kind::Number)
}

/// The key and shape of the field that a node's name stands for.
fn target<'r>(name: &str, record: &'r Record) -> Option<(String, &'r Shape)> {
    let found = |key: String| {
        let field = record.named_in_snake_case(&key)?;
        Some((key, record.shape_of(field)))
    };
    if let Some(exact) = found(name.to_owned()) {
        return Some(exact);
    }
    if let Some((_, key)) = OTHER_NAMES.iter().find(|(other, _)| *other == name) {
        return found((*key).to_owned());
    }
    [format!("{name}s"), format!("{name}es")]
        .into_iter()
        .filter_map(found)
        .find(|(_, shape)| matches!(shape, Shape::List { .. }))
}
