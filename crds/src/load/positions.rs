//! Finds the position of a field in the text.

use super::path::{PathStep, steps};
use super::tree::{Node, NodeKind};
use crate::problem::Position;
use crate::schema::snake_case;

/// The positions of one document's fields.
#[derive(Clone, Debug)]
pub struct Positions {
    root: Node,
    bare: bool,
}

impl Positions {
    pub(super) fn new(root: Node, bare: bool) -> Self {
        Self { root, bare }
    }

    /// Returns the position of a field such as `spec.jobs[3].command`, or of the nearest enclosing field that is in
    /// the text.
    pub fn of(&self, field: &str) -> Option<Position> {
        let (position, _) = self.walk(field);
        (position != Position::default()).then_some(position)
    }

    /// Returns the field as the file spells it: `jobs[0].depends_on` for `spec.jobs[0].dependsOn` in a bare file.
    pub fn as_written(&self, field: &str) -> String {
        if self.bare { self.walk(field).1 } else { field.to_owned() }
    }

    fn walk(&self, field: &str) -> (Position, String) {
        let mut position = self.root.position;
        let mut node = Some(&self.root);
        let mut written = String::new();
        for (depth, step) in steps(field).into_iter().enumerate() {
            match step {
                PathStep::Item(index) => {
                    node = node.and_then(|list| list.items().get(index));
                    written.push_str(&format!("[{index}]"));
                    position = node.map_or(position, |item| item.position);
                }
                PathStep::Key(key) => {
                    let entry = node.and_then(|map| map.entry(key));
                    node = entry.map(|entry| &entry.node);
                    if let Some(entry) = entry {
                        position = if is_scalar(&entry.node) { entry.node.position } else { entry.position };
                    }
                    // The author of a bare file has not written these keys.
                    if depth > 0 || !matches!(key, "spec" | "metadata") {
                        let name = entry.map_or_else(|| snake_case(key), |entry| entry.written().to_owned());
                        let dot = if written.is_empty() { "" } else { "." };
                        written.push_str(&format!("{dot}{name}"));
                    }
                }
            }
        }
        (position, written)
    }
}

fn is_scalar(node: &Node) -> bool {
    !matches!(node.kind, NodeKind::List(_) | NodeKind::Map(_))
}
