//! Lifts edges between files to edges between sibling modules.

use super::Edge;

/// Lifts each edge to the two siblings that contain its ends. Drops edges between a module and its own descendants.
pub fn siblings(edges: &[Edge]) -> Vec<Edge> {
    edges
        .iter()
        .filter_map(|edge| {
            let (from, to) = (sibling(&edge.from, &edge.to)?, sibling(&edge.to, &edge.from)?);
            Some(Edge { from, to, ..edge.clone() })
        })
        .collect()
}

/// Returns the part of a path up to the first name in which it differs from another one.
fn sibling(path: &str, other: &str) -> Option<String> {
    let common = path.split("::").zip(other.split("::")).take_while(|(one, two)| one == two).count();
    let parts: Vec<&str> = path.split("::").collect();
    let is_ancestor = parts.len() == common || other.split("::").count() == common;
    (!is_ancestor).then(|| parts[..=common].join("::"))
}
