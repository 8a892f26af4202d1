//! Converts KDL to the tree of the other formats.
//!
//! The schema decides how a node is read. A node of a list (`job "a" { … }`) adds an item to it: the first argument is
//! the item's name, properties and children are its fields. The parser accepts KDL 1 and KDL 2.

use std::collections::HashMap;

use super::tree::{Entry, Node, NodeKind, excerpt};
use super::{LoadOptions, SyntaxError, json};
use crate::problem::{Position, Problem};
use crate::schema::{BARE, RecordSchema, ValueShape};

mod syntax;
mod text;

use syntax::KdlNode;

/// Spellings that are neither a field nor the singular of one. Examples of Torc 1.0 have them, and its parser ignores
/// them, so jobs start before their dependencies.
const OTHER_NAMES: [(&str, &str); 2] = [("depends_on_job", "depends_on"), ("blocked_by_job", "depends_on")];

/// Parses a document. The problems are warnings.
pub(super) fn parse(text: &str, options: &LoadOptions) -> Result<(Node, Vec<Problem>), SyntaxError> {
    let nodes = syntax::parse(text, options)?;
    let mut reader = KdlReader { options, problems: Vec::new() };
    let entries = reader.record(nodes, &BARE);
    let start = Position::START;
    Ok((Node::new(start, NodeKind::Map(entries)), reader.problems))
}

struct KdlReader<'t> {
    options: &'t LoadOptions,
    problems: Vec<Problem>,
}

/// The fields read so far, with an index by key.
#[derive(Default)]
struct KdlFields {
    entries: Vec<Entry>,
    index: HashMap<Box<str>, usize>,
}

impl KdlFields {
    fn known(&mut self, key: &str) -> Option<&mut Entry> {
        self.index.get(key).and_then(|at| self.entries.get_mut(*at))
    }

    fn push(&mut self, entry: Entry) {
        self.index.insert(entry.key.clone(), self.entries.len());
        self.entries.push(entry);
    }

    /// Adds items to a list that may have begun with another node.
    fn append(&mut self, key: String, position: Position, added: Vec<Node>) {
        match self.known(&key) {
            Some(Entry { node: Node { kind: NodeKind::List(items), .. }, .. }) => items.extend(added),
            Some(other) => other.node = Node::new(position, NodeKind::List(added)),
            None => self.push(Entry::new(key, position, Node::new(position, NodeKind::List(added)))),
        }
    }
}

impl KdlReader<'_> {
    fn record(&mut self, nodes: Vec<KdlNode>, record: &RecordSchema) -> Vec<Entry> {
        let mut fields = KdlFields::default();
        for node in nodes {
            self.field(node, record, &mut fields);
        }
        fields.entries
    }

    /// Reads one node as a field of a record.
    fn field(&mut self, node: KdlNode, record: &RecordSchema, fields: &mut KdlFields) {
        let position = node.position;
        let Some((key, shape)) = target(&node.name, record) else {
            let name = node.name.clone();
            let value = self.free(node);
            self.set(fields, Entry::new(name, position, value));
            return;
        };
        if OTHER_NAMES.iter().any(|(other, _)| *other == node.name) {
            self.warn(format!("`{}` is read as `{key}`, while Torc 1.0 ignored it", node.name), position);
        }
        let value = match shape {
            ValueShape::List { items, .. } => {
                let added = match &**items {
                    ValueShape::RecordSchema(item) => vec![self.item(node, item)],
                    _ => node.arguments,
                };
                fields.append(key, position, added);
                return;
            }
            ValueShape::RecordSchema(inner) => self.item(node, inner),
            ValueShape::Map { .. } => self.free_map(node),
            ValueShape::Any => self.embedded_json(node),
            _ => node.arguments.into_iter().next().unwrap_or(Node::new(position, NodeKind::Null)),
        };
        self.set(fields, Entry::new(key, position, value));
    }

    /// Sets a field. If it is given twice, the last value wins, as in Torc 1.0.
    fn set(&mut self, fields: &mut KdlFields, entry: Entry) {
        let Some(known) = fields.known(&entry.key) else { return fields.push(entry) };
        let position = entry.position;
        let message = format!("`{}` is given twice; the last value is used", excerpt(&entry.key));
        *known = entry;
        self.warn(message, position);
    }

    fn warn(&mut self, message: String, position: Position) {
        if self.problems.len() < self.options.max_problems {
            let mut problem = Problem::warning("", message);
            problem.position = Some(position);
            self.problems.push(problem);
        }
    }

    /// Reads a node as a record: its name, properties and children.
    fn item(&mut self, node: KdlNode, record: &RecordSchema) -> Node {
        let mut fields = KdlFields::default();
        if record.field("name").is_some()
            && let Some(name) = node.arguments.into_iter().next()
        {
            fields.push(Entry::new("name", name.position, name));
        }
        for property in node.properties {
            self.set(&mut fields, property);
        }
        for child in node.children.unwrap_or_default() {
            self.field(child, record, &mut fields);
        }
        Node::new(node.position, NodeKind::Map(fields.entries))
    }

    /// Reads a node as a mapping with keys of the author's choice.
    fn free_map(&mut self, node: KdlNode) -> Node {
        let mut fields = KdlFields::default();
        for property in node.properties {
            self.set(&mut fields, property);
        }
        for child in node.children.unwrap_or_default() {
            let (name, position) = (child.name.clone(), child.position);
            let value = self.free(child);
            self.set(&mut fields, Entry::new(name, position, value));
        }
        Node::new(node.position, NodeKind::Map(fields.entries))
    }

    /// Reads a node as any value: a mapping, a list or a single value.
    fn free(&mut self, mut node: KdlNode) -> Node {
        if node.children.is_some() {
            return self.free_map(node);
        }
        match node.arguments.len() {
            0 => Node::new(node.position, NodeKind::Null),
            1 => node.arguments.swap_remove(0),
            _ => Node::new(node.position, NodeKind::List(node.arguments)),
        }
    }

    /// Reads any value. Torc 1.0 writes it as JSON in a string.
    fn embedded_json(&mut self, node: KdlNode) -> Node {
        let value = self.free(node);
        match value.as_text().and_then(|text| json::parse(text, self.options).ok()) {
            Some(parsed) => Node { position: value.position, ..parsed },
            None => value,
        }
    }
}

/// Returns the key and the shape of the field that a node's name denotes.
fn target<'r>(name: &str, record: &'r RecordSchema) -> Option<(String, &'r ValueShape)> {
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
        .find(|(_, shape)| matches!(shape, ValueShape::List { .. }))
}
