//! Resolves paths to the modules that define the named items.

use std::collections::BTreeMap;

use super::source::{Import, Scope};
use super::{Edge, Module, Modules};

/// The item or module that a path names.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Target {
    Module(String),
    /// An item of the module with this path.
    Item(String),
}

/// Length of a chain of re-exports beyond which it is taken for a cycle.
const MAX_REEXPORTS: usize = 16;

impl Modules {
    /// Returns the uses between file modules, with the first place of each pair.
    pub fn edges(&self) -> Vec<Edge> {
        let mut found: BTreeMap<(String, String), Edge> = BTreeMap::new();
        for (path, module) in &self.by_path {
            for (target, line, text) in self.uses(path, &module.scope) {
                let to = &self.by_path[&target].node;
                if *to != module.node {
                    let key = (module.node.clone(), to.clone());
                    let edge = || edge(module, to, line, &text);
                    let first = found.entry(key).or_insert_with(edge);
                    if line < first.line && module.file == first.file {
                        *first = edge();
                    }
                }
            }
        }
        found.into_values().collect()
    }

    /// Returns the modules that a scope uses, with line and path.
    fn uses(&self, module: &str, scope: &Scope) -> Vec<(String, usize, String)> {
        let mut found = Vec::new();
        for import in &scope.imports {
            let text = import.path.join("::");
            match self.resolve(module, &import.path, MAX_REEXPORTS) {
                Some(Target::Item(target)) if !is_reexport(module, &target, import, scope) => {
                    found.push((target, import.line, text));
                }
                Some(Target::Module(target))
                    if import.name.is_none() && !(import.is_public && is_below(&target, module)) =>
                {
                    found.push((target, import.line, format!("{text}::*")));
                }
                _ => {}
            }
        }
        for code in &scope.paths {
            let target = match self.resolve(module, &code.path, MAX_REEXPORTS) {
                Some(Target::Item(target) | Target::Module(target)) => target,
                None => continue,
            };
            found.push((target, code.line, code.path.join("::")));
        }
        found
    }

    fn resolve(&self, module: &str, path: &[String], left: usize) -> Option<Target> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => self.walk("crate", rest, left),
            "self" => self.walk(module, rest, left),
            "super" => self.walk(module.rsplit_once("::")?.0, rest, left),
            name => match self.member(module, name, left)? {
                Target::Module(found) => self.walk(&found, rest, left),
                item @ Target::Item(_) => Some(item),
            },
        }
    }

    fn walk(&self, module: &str, path: &[String], left: usize) -> Option<Target> {
        let Some((first, rest)) = path.split_first() else {
            return Some(Target::Module(module.to_owned()));
        };
        if first == "super" {
            return self.walk(module.rsplit_once("::")?.0, rest, left);
        }
        match self.member(module, first, left) {
            Some(Target::Module(found)) => self.walk(&found, rest, left),
            Some(item) => Some(item),
            // The name comes from a macro or from another crate, so the module counts.
            None => Some(Target::Item(module.to_owned())),
        }
    }

    /// Resolves a name within a module: a child, an item or an import.
    fn member(&self, module: &str, name: &str, left: usize) -> Option<Target> {
        let scope = &self.by_path.get(module)?.scope;
        if scope.children.contains(name) {
            let child = format!("{module}::{name}");
            return self.by_path.contains_key(&child).then_some(Target::Module(child));
        }
        if scope.items.contains(name) {
            return Some(Target::Item(module.to_owned()));
        }
        let left = left.checked_sub(1)?;
        let named = scope.imports.iter().find(|import| import.name.as_deref() == Some(name));
        if let Some(import) = named {
            // `use serde` within a module `serde` leads out of the crate.
            return if import.path.first().is_some_and(|first| first == name) && import.path.len() == 1 {
                None
            } else {
                self.resolve(module, &import.path, left)
            };
        }
        scope.imports.iter().filter(|import| import.name.is_none()).find_map(|import| {
            match self.resolve(module, &import.path, left)? {
                Target::Module(found) if found != module => self.member(&found, name, left),
                _ => None,
            }
        })
    }
}

fn is_below(target: &str, module: &str) -> bool {
    target.strip_prefix(module).is_some_and(|rest| rest.starts_with("::"))
}

/// Returns whether an import only re-exports an item of a child module.
fn is_reexport(module: &str, target: &str, import: &Import, scope: &Scope) -> bool {
    let is_used = import.name.as_ref().is_some_and(|name| {
        scope.names.contains_key(name) || scope.paths.iter().any(|code| code.path.first() == Some(name))
    });
    import.is_public && is_below(target, module) && !is_used
}

fn edge(module: &Module, to: &str, line: usize, path: &str) -> Edge {
    Edge { from: module.node.clone(), to: to.to_owned(), file: module.file.clone(), line, path: path.to_owned() }
}
