//! Strongly connected components of a graph of modules.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use super::Edge;

/// Modules that all use each other, directly or through others.
#[derive(Debug, Clone)]
pub struct Component {
    pub modules: BTreeSet<String>,
    /// The shortest path from a module back to itself.
    pub cycle: Vec<Edge>,
    /// All edges between these modules.
    pub edges: Vec<Edge>,
}

type Graph<'a> = BTreeMap<&'a str, Vec<&'a Edge>>;

/// Returns the components with more than one module.
pub fn components(edges: &[Edge]) -> Vec<Component> {
    let mut graph = Graph::new();
    for edge in edges {
        graph.entry(&edge.from).or_default().push(edge);
        graph.entry(&edge.to).or_default();
    }
    let reached: BTreeMap<&str, BTreeSet<&str>> = graph.keys().map(|module| (*module, reach(&graph, module))).collect();
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for (module, all) in &reached {
        if !all.contains(module) || seen.contains(module) {
            continue;
        }
        let modules: BTreeSet<&str> = all.iter().copied().filter(|other| reached[other].contains(module)).collect();
        seen.extend(modules.iter().copied());
        found.push(component(&graph, &modules));
    }
    found
}

/// Returns the modules that a module reaches. It contains the module itself only if there is a cycle.
fn reach<'a>(graph: &Graph<'a>, from: &'a str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut open = vec![from];
    while let Some(module) = open.pop() {
        for edge in &graph[module] {
            if found.insert(edge.to.as_str()) {
                open.push(&edge.to);
            }
        }
    }
    found
}

fn component(graph: &Graph<'_>, modules: &BTreeSet<&str>) -> Component {
    let edges = modules.iter().flat_map(|module| &graph[module]).filter(|edge| modules.contains(edge.to.as_str()));
    Component {
        modules: modules.iter().map(|module| (*module).to_owned()).collect(),
        cycle: modules
            .iter()
            .filter_map(|module| shortest_cycle(graph, module))
            .min_by_key(Vec::len)
            .unwrap_or_default(),
        edges: edges.map(|edge| (*edge).clone()).collect(),
    }
}

/// Returns the shortest path from a module to itself.
fn shortest_cycle(graph: &Graph<'_>, module: &str) -> Option<Vec<Edge>> {
    let mut last: BTreeMap<&str, &Edge> = BTreeMap::new();
    let mut open = VecDeque::from([module]);
    while let Some(from) = open.pop_front() {
        for edge in &graph[from] {
            last.entry(&edge.to).or_insert_with(|| {
                open.push_back(&edge.to);
                edge
            });
        }
    }
    let mut way = vec![*last.get(module)?];
    while way[way.len() - 1].from != module {
        way.push(last[way[way.len() - 1].from.as_str()]);
    }
    Some(way.into_iter().rev().cloned().collect())
}

impl fmt::Display for Component {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{} modules: {}", self.modules.len(), Vec::from_iter(self.modules.clone()).join(" "))?;
        writeln!(out, "  shortest cycle:")?;
        self.cycle.iter().try_for_each(|edge| writeln!(out, "    {edge}"))?;
        writeln!(out, "  all {} edges:", self.edges.len())?;
        self.edges.iter().try_for_each(|edge| writeln!(out, "    {edge}"))
    }
}

impl fmt::Display for Edge {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} -> {}  {}:{}  {}", self.from, self.to, self.file, self.line, self.path)
    }
}
